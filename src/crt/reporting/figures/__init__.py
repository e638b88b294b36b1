"""One module per figure; `figures(data)` returns none where there is nothing to show."""
