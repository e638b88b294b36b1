"""One module a figure: `rows` from what was read, `drawn` for print, `spec` for the page.

`drawn` and `spec` are pure functions of rows; a figure without rows is left out.
"""
