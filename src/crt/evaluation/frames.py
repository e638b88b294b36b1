"""Evaluations as data frames for a notebook; pandas is needed for these functions alone."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from crt.algorithm.metrics import zip_ratio
from crt.errors import ConfigError, install_command
from crt.evaluation.counts import NUMBERS
from crt.evaluation.metrics import all_metrics
from crt.evaluation.render import as_rows
from crt.evaluation.store import ROLLOUT_KEYS, Evaluation
from crt.evaluation.tables import compare

if TYPE_CHECKING:
    from pandas import DataFrame


def figures_frame(evaluations: Sequence[Evaluation]) -> "DataFrame":
    """One row per metric: evaluation, sets, figure, value, low, high, problems."""
    rows = [
        {"evaluation": each.name, "kind": kind, "sets": name, "figure": key, **value._asdict()}
        for each in evaluations
        for kind, part in all_metrics(each.counts).items()
        for name, metrics in part.items()
        for key, value in metrics.values.items()
    ]
    return _pandas().DataFrame(rows)


def problems_frame(evaluations: Sequence[Evaluation]) -> "DataFrame":
    """One row per problem and evaluation: counts, accuracy in %, mean tokens."""
    pandas = _pandas()
    frame = pandas.concat(
        pandas.DataFrame(
            {
                "evaluation": each.name,
                "data": counts.name,
                "problem_id": counts.ids,
                **{name: getattr(counts, name) for name in NUMBERS},
            }
        )
        for each in evaluations
        for counts in each.counts.values()
    ).reset_index(drop=True)
    frame["acc"] = 100 * frame["correct"] / frame["graded"].where(frame["graded"] > 0)
    frame["len"] = frame["tokens"] / frame["rollouts"]
    return frame


def rollouts_frame(evaluation: Evaluation) -> "DataFrame":
    """One row per response, with its text."""
    rows = ({key: getattr(each, key) for key in ROLLOUT_KEYS} for each in evaluation.rollouts())
    frame = _pandas().DataFrame(rows).astype({"verdict": str})
    frame["zip_ratio"] = frame["text"].map(zip_ratio)
    return frame


def comparison_frame(evaluations: Sequence[Evaluation], **settings: Any) -> "DataFrame":
    """One row per cell of the paper's tables; `settings` are `compare`'s."""
    return _pandas().DataFrame(as_rows(compare(evaluations, **settings).tables))


def _pandas() -> Any:
    try:
        import pandas
    except ImportError:
        raise ConfigError(f"data frames need pandas: {install_command('data')}") from None
    return pandas
