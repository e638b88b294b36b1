"""The method as pure functions of arrays, numpy only.

May import: nothing.
"""
