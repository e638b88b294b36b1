"""The verbosity dial: a run's checkpoints as a family of levels, served and exported."""
