"""Data sets in, problems and prompts out; nothing here loads torch.

May import: grading, pocket.
"""
