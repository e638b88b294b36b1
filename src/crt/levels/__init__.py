"""Levels of verbosity: chosen from a run's checkpoints, described in family.json, exported, served.

`family` and `choose` load neither torch nor a web server; `proxy` and what it needs are `[serve]`.

May import: algorithm, data, evaluation, grading, pocket, sampling, settings.
"""
