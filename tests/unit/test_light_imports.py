"""grading/ and data/ load in a moment: no torch, no sympy, nothing of the layers above."""

import subprocess
import sys
from pathlib import Path

import pytest

import crt

HEAVY = {"torch", "transformers", "sympy", "math_verify", "datasets", "pyarrow", "numpy"}
BELOW = {
    "data": {"grading", "pocket", "errors", "io", "types"},
    "grading": {"errors", "io", "types"},
}


@pytest.mark.parametrize("folder", BELOW)
def test_what_importing_a_folder_loads(folder: str) -> None:
    files = sorted((Path(crt.__file__).parent / folder).glob("*.py"))
    modules = [f"crt.{folder}.{file.stem}" for file in files if file.stem != "symbolic"]
    code = f"import sys, {', '.join(modules)}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = done.stdout.split()
    assert not HEAVY & set(loaded)
    parts = {name.split(".")[1] for name in loaded if name.startswith("crt.")}
    assert parts <= BELOW[folder] | {folder, "version"}
