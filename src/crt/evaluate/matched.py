"""R_zip at equal length: what the base's own texts have when they are cut to a model's lengths."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from crt.core.metrics import zip_ratio_cut
from crt.errors import DataError
from crt.evaluate.store import Evaluation
from crt.evaluate.tally import Tally

MOST_ROLLOUTS = 4  # per problem: the base's texts are held in memory, and packing takes its time

Rollout = tuple[str, str, int]  # data set, problem, number of the rollout


def length_matched(evaluation: Evaluation, base: Evaluation) -> Mapping[str, Tally]:
    """The evaluation's tallies with `matched`, where the texts of both are there.

    The k-th response to a problem is paired with the base's k-th response to the same problem.
    """
    if any(tally.matched for tally in evaluation.tallies.values()):
        return evaluation.tallies
    try:
        sums = _sums(evaluation, _texts(base))
    except DataError:  # not written, deleted to save space, or damaged: then it is not known
        return evaluation.tallies
    return {name: _with_matched(tally, sums) for name, tally in evaluation.tallies.items()}


def _texts(base: Evaluation) -> dict[Rollout, str]:
    return {
        (record.data, record.problem_id, record.rollout): record.response
        for record in base.rollouts()
        if record.rollout < MOST_ROLLOUTS
    }


def _sums(
    evaluation: Evaluation, base_texts: Mapping[Rollout, str]
) -> dict[tuple[str, str], tuple[float, int]]:
    """Data set and problem → sum and number of the ratios."""
    sums: dict[tuple[str, str], tuple[float, int]] = {}
    for record in evaluation.rollouts():
        text = base_texts.get((record.data, record.problem_id, record.rollout), "")
        ratio = zip_ratio_cut(text, record.response)
        if not np.isnan(ratio):
            total, number = sums.get((record.data, record.problem_id), (0.0, 0))
            sums[record.data, record.problem_id] = (total + ratio, number + 1)
    return sums


def _with_matched(tally: Tally, sums: Mapping[tuple[str, str], tuple[float, int]]) -> Tally:
    rows = np.array([sums.get((tally.name, problem_id), (0.0, 0)) for problem_id in tally.ids])
    return replace(tally, matched=(rows[:, 0].astype(float), rows[:, 1].astype(float)))
