"""The folder of a tiny model, problems and a recipe."""

from tests.support.tiny_model import tiny  # noqa: F401
