"""A tiny model with problems and a recipe, in a folder."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for `trained`, here and in forked processes

from tiny_model import make_tiny


@pytest.fixture(scope="session")
def tiny(tmp_path_factory) -> Path:
    """A folder with `model/`, `data.jsonl` and `recipe.toml`."""
    return make_tiny(tmp_path_factory.mktemp("tiny"))
