"""One module per figure: data → rows → Vega-Lite specification.

Each module has `figures(data)`, which returns none where there is nothing to show.
"""
