"""Data sets in, problems and prompts out: other folders import any module; none loads torch."""
