"""From run and evaluation directories to one page and to figures for print.

May import: algorithm, data, evaluation, settings.
"""
