"""What these tests share is in `made`: this folder itself would hide verl behind its `verl`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "made"))
