"""Timing, statistics and the two files that `make bench` writes."""
