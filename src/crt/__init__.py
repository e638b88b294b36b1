"""crt: make a reasoning language model think shorter without getting worse.

The names below load when they are first used, so that `import crt` is quick. Type checkers read
`__init__.pyi`.
"""

import importlib

from crt.version import __version__ as __version__

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

__all__ = sorted(["__version__", *_MODULE_OF])  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> object:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'crt' has no attribute {name!r}")
    return getattr(importlib.import_module(f"crt.{_MODULE_OF[name]}"), name)


def __dir__() -> list[str]:
    return __all__
