"""The benchmarks are scripts beside the package: their folder has to be found."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))
