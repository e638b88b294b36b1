"""Evaluate a model, score completions, compare: metrics with their n, interval and doubts.

    from crt.evaluation import compare, evaluate, figures_frame, load, score

The names load when they are first used.

May import: algorithm, data, grading, sampling, settings.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from crt.evaluation.completions import score
    from crt.evaluation.evaluator import evaluate_model as evaluate
    from crt.evaluation.render import (
        comparison_frame,
        figures_frame,
        problems_frame,
        rollouts_frame,
    )
    from crt.evaluation.store import Evaluation, load
    from crt.evaluation.tables import compare, load_all

_NAMES_IN = {
    "completions": "score",
    "render": "comparison_frame figures_frame problems_frame rollouts_frame",
    "store": "Evaluation load",
    "tables": "compare load_all",
}
_MODULE_OF = {name: module for module, names in _NAMES_IN.items() for name in names.split()}
__all__ = [
    "Evaluation",
    "compare",
    "comparison_frame",
    "evaluate",
    "figures_frame",
    "load",
    "load_all",
    "problems_frame",
    "rollouts_frame",
    "score",
]


def __getattr__(name: str) -> object:
    if name == "evaluate":  # of a model by its name; `evaluator.evaluate` takes a whole plan
        return importlib.import_module("crt.evaluation.evaluator").evaluate_model
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'crt.evaluation' has no attribute {name!r}")
    return getattr(importlib.import_module(f"crt.evaluation.{_MODULE_OF[name]}"), name)
