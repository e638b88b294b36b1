"""Evaluate a model, score completions, compare: metrics with their n, interval and doubts.

    from crt.evaluation import compare, evaluate, figures_frame, load, score

The names load when they are first used.

May import: algorithm, data, grading, sampling, settings.
"""

import importlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from crt.evaluation.frames import (
        comparison_frame,
        figures_frame,
        problems_frame,
        rollouts_frame,
    )
    from crt.evaluation.store import Evaluation, load
    from crt.evaluation.tables import compare, load_all

_HOME = {
    "Evaluation": "store",
    "compare": "tables",
    "comparison_frame": "frames",
    "figures_frame": "frames",
    "load": "store",
    "load_all": "tables",
    "problems_frame": "frames",
    "rollouts_frame": "frames",
}
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


def evaluate(
    model: str,
    data: Sequence[str],
    out: Path | str | None = None,
    *,
    name: str | None = None,
    note: Callable[[str], None] | None = None,
    **settings: Any,
) -> "Evaluation":
    """Samples, grades and measures; settings as of `EvaluationConfig`, `ModelConfig` and `Plan`."""
    from crt.config import EvaluationConfig, ModelConfig
    from crt.evaluation.evaluator import Plan, checked
    from crt.evaluation.evaluator import evaluate as run

    how = checked(EvaluationConfig, {"data": tuple(data), **_of(EvaluationConfig, settings)})
    who = checked(ModelConfig, {"name": model, **_of(ModelConfig, settings)})
    return run(Plan(who, how, **settings), out, name=name, note=note)


def score(
    path: Path | str,
    data: Sequence[str],
    out: Path | str | None = None,
    *,
    name: str | None = None,
    note: Callable[[str], None] | None = None,
    **settings: Any,
) -> "Evaluation":
    """Grades and measures completions from a file; settings as of `Scoring`."""
    from crt.evaluation.completions import Scoring
    from crt.evaluation.completions import score as run

    return run(path, Scoring(tuple(data), **settings), out, name=name, note=note)


def _of(kind: Any, settings: dict[str, Any]) -> dict[str, Any]:
    """Takes out of the settings those that belong to this part."""
    return {key: settings.pop(key) for key in list(settings) if key in kind.model_fields}


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'crt.evaluation' has no attribute {name!r}")
    return getattr(importlib.import_module(f"crt.evaluation.{_HOME[name]}"), name)
