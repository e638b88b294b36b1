"""Levels of verbosity: chosen from a run's checkpoints, described in family.json, exported, served.

`choose` and `family` need numpy and pydantic alone; `proxy` and what it imports need `[serve]`.
"""
