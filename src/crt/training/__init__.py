"""The paper's training: a frozen reference, Stage I, its result as reference, Stage II.

May import: algorithm, data, grading, sampling, settings.
"""
