"""Families of small models and servers on loopback, for these tests."""

from tests.support.levels import demo, endless_family, four, http, pocket_family  # noqa: F401
