"""crt: make a reasoning language model think shorter without getting worse.

The names below load when they are first used, so that `import crt` is quick.
"""

import importlib

from crt.version import __version__

TYPE_CHECKING = False  # true to type checkers; importing `typing` would double the time this takes

if TYPE_CHECKING:
    from crt.algorithm.advantages import advantages
    from crt.algorithm.batch import Batch, batch_of
    from crt.algorithm.length import normalised_length
    from crt.algorithm.metrics import AES1, AES2, aes, transitions, zip_ratio, zip_ratios
    from crt.algorithm.objectives import (
        AccuracyOnly,
        Decision,
        LengthOnly,
        Objective,
        PrimalDual,
        Refine,
        Shorten,
        state_of,
        with_state,
    )
    from crt.algorithm.statistics import (
        Certificate,
        Interval,
        bootstrap,
        mean_interval,
        non_inferiority,
    )
    from crt.algorithm.step import Signal, signal
    from crt.algorithm.two_stage import Saturation
    from crt.config import RunConfig
    from crt.data.datasets import load_problems
    from crt.errors import ConfigError, CrtError, DataError, EngineError, GradingError
    from crt.grading.grader import grade_response
    from crt.recipes import load_recipe
    from crt.training.trl.trainer import CRTTrainer
    from crt.types import Problem, Rollout, Verdict

_NAMES_IN = {
    "algorithm.advantages": "advantages",
    "algorithm.batch": "Batch batch_of",
    "algorithm.length": "normalised_length",
    "algorithm.metrics": "AES1 AES2 aes transitions zip_ratio zip_ratios",
    "algorithm.objectives": "AccuracyOnly Decision LengthOnly Objective PrimalDual Refine Shorten "
    "state_of with_state",
    "algorithm.statistics": "Certificate Interval bootstrap mean_interval non_inferiority",
    "algorithm.step": "Signal signal",
    "algorithm.two_stage": "Saturation",
    "config": "RunConfig",
    "data.datasets": "load_problems",
    "errors": "ConfigError CrtError DataError EngineError GradingError",
    "grading.grader": "grade_response",
    "recipes": "load_recipe",
    "training.trl.trainer": "CRTTrainer",
    "types": "Problem Rollout Verdict",
}
_MODULE_OF = {name: module for module, names in _NAMES_IN.items() for name in names.split()}

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
    "grade_response",
    "load_problems",
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
    return getattr(importlib.import_module(f"crt.{_MODULE_OF[name]}"), name)


def __dir__() -> list[str]:
    return __all__
