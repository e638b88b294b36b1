"""A response and a gold answer in, a verdict out.

May import: nothing.
"""
