"""verl in this very process is on a CPU too."""

import importlib.util
import os
import secrets
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

if importlib.util.find_spec("verl") is not None:
    sys.path.insert(0, str(Path(__file__).parent / "support"))
    os.environ |= {
        "VERL_PLATFORM": "cpu",
        "VERL_ENGINE_DEVICE": "cuda",  # the key under which verl finds its FSDP engine
        "VERL_USE_EXTERNAL_MODULES": "cpu_platform",
    }


@pytest.fixture(scope="session")
def place(tmp_path_factory) -> Iterator[dict[str, Any]]:
    """A folder for all that Ray and vLLM write, with a path short enough for Ray's sockets."""
    from command import environment

    folder = tmp_path_factory.mktemp("cluster")
    ray = Path("/tmp") / f"ray-{secrets.token_hex(4)}"
    ray.mkdir()
    yield {"folder": folder, "environment": environment(folder, ray)}
    shutil.rmtree(ray, ignore_errors=True)
