"""R_zip at equal length: of each pair of responses the longer one is cut to the shorter."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from crt.algorithm.batch import Array
from crt.algorithm.metrics import matched_zip_ratios
from crt.errors import DataError
from crt.evaluation.store import Evaluation
from crt.evaluation.tally import Tally

MOST_ROLLOUTS = 4  # per problem: the base's texts are held in memory, and packing takes its time

Problem = tuple[str, str]  # data set, id
Rollout = tuple[str, str, int]  # data set, problem, number of the rollout


def length_matched(evaluation: Evaluation, base: Evaluation) -> Mapping[str, Tally]:
    """The evaluation's tallies with `matched`, where the texts of both are there.

    The k-th response to a problem is paired with the base's k-th response to the same problem.
    """
    if any(tally.matched is not None for tally in evaluation.tallies.values()):
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


def _sums(evaluation: Evaluation, base_texts: Mapping[Rollout, str]) -> dict[Problem, Array]:
    """Problem → sum of its ratios, sum of the base's, number of pairs."""
    sums: dict[Problem, Array] = {}
    for record in evaluation.rollouts():
        text = base_texts.get((record.data, record.problem_id, record.rollout), "")
        ours, theirs = matched_zip_ratios(record.response, text)
        if not np.isnan(ours):
            key = record.data, record.problem_id
            sums[key] = sums.get(key, np.zeros(3)) + np.array([ours, theirs, 1.0])
    return sums


def _with_matched(tally: Tally, sums: Mapping[Problem, Array]) -> Tally:
    rows = np.array([sums.get((tally.name, each), np.zeros(3)) for each in tally.ids])
    return replace(tally, matched=rows)
