"""From the rows of a verl batch to advantages; needs no verl."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import numpy as np

from crt.algorithm.advantages import Estimator
from crt.algorithm.batch import Batch, TruncatedAs
from crt.algorithm.objectives import Objective
from crt.algorithm.step import Step, decide
from crt.types import Rollout, Verdict

Info = Mapping[str, Any]  # a row of the data file's column `extra_info`
REFERENCE = ("reference_correct", "reference_length", "reference_truncated")

AnyObjective = TypeVar("AnyObjective", bound=Objective)


@dataclass(frozen=True, slots=True)
class Row:
    """One response of verl's batch, as the reward manager described it."""

    info: Info
    text: str
    tokens: int
    stop: Literal["eos", "length"]
    verdict: Verdict
    extracted: str | None

    @property
    def problem_id(self) -> str:
        """Of the problem it answers."""
        return self.info["problem_id"]

    @property
    def rollout(self) -> Rollout:
        """The same, as the core knows it."""
        budget = self.info["budget"]
        return Rollout(
            self.problem_id, self.text, self.tokens, self.stop, self.verdict, self.extracted,
            None if budget is None else int(budget),
        )  # fmt: skip


@dataclass(frozen=True)
class Decided:
    """A step's advantages in the order of verl's rows, and what was decided."""

    advantages: list[float]
    masked: list[bool]  # rows without a gradient: of a problem without a signal, or muted
    step: Step


def decided(
    objective: AnyObjective,
    rows: Sequence[Row | None],
    group_size: int,
    estimator: Estimator = "group_std",
    truncated_as: TruncatedAs = "wrong",
) -> tuple[Decided, AnyObjective]:
    """What the step trains on, and the objective of the next one.

    None is a row that verl added to fill its batch. A problem of which a rollout was lost is left
    out, as one that could not be graded is.
    """
    places: dict[str, list[int]] = {}
    for place, row in enumerate(rows):
        if row is not None:
            places.setdefault(row.problem_id, []).append(place)
    whole = {name: found for name, found in places.items() if len(found) == group_size}
    ordered = [row for found in whole.values() for at in found if (row := rows[at]) is not None]
    reference = reference_of([row.info for row in ordered])
    values, step, after = decide(
        objective, [row.rollout for row in ordered], lambda _: reference, estimator, truncated_as
    )
    advantages, masked = np.zeros(len(rows)), np.ones(len(rows), dtype=bool)
    for found, theirs in zip(whole.values(), values, strict=True):
        advantages[found], masked[found] = theirs, not theirs.any()
    if truncated_as == "mask":
        masked |= [row is None or row.stop == "length" for row in rows]
    lost = tuple(name for name in places if name not in whole)
    told = Step(step.signal, (*step.left_out, *lost))
    return Decided(advantages.tolist(), masked.tolist(), told), after


def reference_columns(reference: Batch | None, problem_id: str) -> dict[str, list[int]]:
    """What the data file says of the frozen policy on a problem; empty if it was not graded."""
    if reference is None or problem_id not in reference.problem_ids:
        return {name: [] for name in REFERENCE}
    at = reference.problem_ids.index(problem_id)
    values = (reference.correct[at], reference.length[at], reference.truncated[at])
    return {name: each.astype(int).tolist() for name, each in zip(REFERENCE, values, strict=True)}


def reference_of(infos: Sequence[Info]) -> Batch | None:
    """The frozen policy's batch on these problems, from the columns of the data file.

    Every rollout of it is there, so that mean, spread and accuracy are those of the core.
    """
    known = {info["problem_id"]: info for info in infos if len(info["reference_correct"])}
    if not known:
        return None
    columns = [np.array([info[name] for info in known.values()]) for name in REFERENCE]
    return Batch(tuple(known), *columns)
