"""Methods on the same work: many runs, one reference, one evaluation, the paper's tables.

May import: algorithm, evaluation, reporting, settings.
"""
