"""What needs the environment of `make test-engines`; elsewhere nothing here is collected."""

import importlib.util
import sys
from pathlib import Path

from tests.support.tiny_model import tiny  # noqa: F401

HERE = Path(__file__).parent
if importlib.util.find_spec("vllm") is None:
    collect_ignore_glob = ["test_*.py"]
else:
    sys.path[:0] = [str(HERE / "support")]
