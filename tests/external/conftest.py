"""What needs the environment of `make test-engines`; elsewhere nothing here is collected."""

import importlib.util
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
if importlib.util.find_spec("vllm") is None:
    collect_ignore_glob = ["test_*.py"]
else:
    sys.path[:0] = [str(HERE / "support"), str(HERE.parent / "train")]


@pytest.fixture(scope="session")
def tiny(tmp_path_factory) -> Path:
    """A folder with `model/`, `data.jsonl` and `recipe.toml`."""
    from tiny_model import make_tiny

    return make_tiny(tmp_path_factory.mktemp("tiny"))
