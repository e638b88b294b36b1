"""crt: make a reasoning language model think shorter without getting worse.

The names below load when they are first used, so that `import crt` is quick.
"""

import importlib

from crt.version import __version__

TYPE_CHECKING = False  # true to type checkers; importing `typing` would double the time this takes

if TYPE_CHECKING:
    from crt.config import RunConfig
    from crt.core.advantage import advantages
    from crt.core.batch import Batch, batch_of
    from crt.core.intervals import Certificate, Interval, bootstrap, mean_interval, non_inferiority
    from crt.core.length import normalised_length
    from crt.core.metrics import AES1, AES2, aes, transitions, zip_ratio, zip_ratios
    from crt.core.objectives import (
        AccuracyOnly,
        Decision,
        LengthOnly,
        Objective,
        PrimalDual,
        Refine,
        Shorten,
    )
    from crt.core.saturation import Saturation
    from crt.core.signal import Signal, signal
    from crt.core.state import state_of, with_state
    from crt.engines.local import CRTTrainer
    from crt.errors import ConfigError, CrtError, DataError, EngineError, GradingError
    from crt.recipes import load_recipe
    from crt.types import Problem, Rollout, Verdict

_HOME = {
    "crt.config": ("RunConfig",),
    "crt.core.advantage": ("advantages",),
    "crt.core.batch": ("Batch", "batch_of"),
    "crt.core.intervals": (
        "Certificate",
        "Interval",
        "bootstrap",
        "mean_interval",
        "non_inferiority",
    ),
    "crt.core.length": ("normalised_length",),
    "crt.core.metrics": ("AES1", "AES2", "aes", "transitions", "zip_ratio", "zip_ratios"),
    "crt.core.objectives": (
        "AccuracyOnly",
        "Decision",
        "LengthOnly",
        "Objective",
        "PrimalDual",
        "Refine",
        "Shorten",
    ),
    "crt.core.saturation": ("Saturation",),
    "crt.core.signal": ("Signal", "signal"),
    "crt.core.state": ("state_of", "with_state"),
    "crt.engines.local": ("CRTTrainer",),
    "crt.errors": ("ConfigError", "CrtError", "DataError", "EngineError", "GradingError"),
    "crt.recipes": ("load_recipe",),
    "crt.types": ("Problem", "Rollout", "Verdict"),
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}

__all__ = [
    "AES1",
    "AES2",
    "AccuracyOnly",
    "Batch",
    "CRTTrainer",
    "Certificate",
    "ConfigError",
    "CrtError",
    "DataError",
    "Decision",
    "EngineError",
    "GradingError",
    "Interval",
    "LengthOnly",
    "Objective",
    "PrimalDual",
    "Problem",
    "Refine",
    "Rollout",
    "RunConfig",
    "Saturation",
    "Shorten",
    "Signal",
    "Verdict",
    "__version__",
    "advantages",
    "aes",
    "batch_of",
    "bootstrap",
    "load_recipe",
    "mean_interval",
    "non_inferiority",
    "normalised_length",
    "signal",
    "state_of",
    "transitions",
    "with_state",
    "zip_ratio",
    "zip_ratios",
]


def __getattr__(name: str) -> object:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'crt' has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULE_OF[name]), name)


def __dir__() -> list[str]:
    return __all__
