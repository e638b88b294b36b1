"""Answers as trees, and when two of them are the same: pure functions, no sympy."""
