"""Evaluations as data frames for a notebook; pandas is needed for these functions alone."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from crt.errors import ConfigError
from crt.evaluation.comparison import compare
from crt.evaluation.figures import all_figures
from crt.evaluation.render import as_rows
from crt.evaluation.store import Evaluation
from crt.evaluation.tally import NUMBERS

if TYPE_CHECKING:
    from pandas import DataFrame


def figures_frame(evaluations: Sequence[Evaluation]) -> "DataFrame":
    """One row a figure: evaluation, sets, figure, value, low, high, problems."""
    rows = [
        {"evaluation": each.name, "kind": kind, "sets": name, "figure": key, **value._asdict()}
        for each in evaluations
        for kind, part in all_figures(each.tallies).items()
        for name, figures in part.items()
        for key, value in figures.values.items()
    ]
    return _pandas().DataFrame(rows)


def problems_frame(evaluations: Sequence[Evaluation]) -> "DataFrame":
    """One row a problem and evaluation: counts, accuracy in %, mean tokens."""
    rows = [
        {
            "evaluation": each.name,
            "data": tally.name,
            "problem_id": problem_id,
            **{name: getattr(tally, name)[row] for name in NUMBERS},
        }
        for each in evaluations
        for tally in each.tallies.values()
        for row, problem_id in enumerate(tally.ids)
    ]
    frame = _pandas().DataFrame(rows)
    frame["acc"] = 100 * frame["correct"] / frame["graded"].where(frame["graded"] > 0)
    frame["len"] = frame["tokens"] / frame["rollouts"]
    return frame


def rollouts_frame(evaluation: Evaluation) -> "DataFrame":
    """One row a response, with its text."""
    names = ("data", "problem_id", "rollout", "verdict", "tokens", "stop", "extracted")
    rows = [
        {name: getattr(each, name) for name in (*names, "reason", "zip_ratio", "response")}
        for each in evaluation.rollouts()
    ]
    return _pandas().DataFrame(rows).astype({"verdict": str})


def comparison_frame(evaluations: Sequence[Evaluation], **settings: Any) -> "DataFrame":
    """One row a cell of the paper's tables; `settings` are `compare`'s."""
    return _pandas().DataFrame(as_rows(compare(evaluations, **settings).tables))


def _pandas() -> Any:
    try:
        import pandas
    except ImportError:
        raise ConfigError("data frames need pandas: install it, or crt-train[data]") from None
    return pandas
