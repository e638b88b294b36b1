"""Data sets in, problems and prompts out; every module here is for the other folders."""
