"""verl in this very process is on a CPU too."""

import importlib.util
import os
import sys
from pathlib import Path

if importlib.util.find_spec("verl") is not None:
    sys.path.insert(0, str(Path(__file__).parent / "support"))
    os.environ |= {
        "VERL_PLATFORM": "cpu",
        "VERL_ENGINE_DEVICE": "cuda",  # the key under which verl finds its FSDP engine
        "VERL_USE_EXTERNAL_MODULES": "cpu_platform",
    }
