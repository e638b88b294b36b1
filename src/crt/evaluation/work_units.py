"""Problems × rollouts as units of work, each with its own seed, in any order and only once."""

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

from crt.data.datasets import Loaded, digest
from crt.evaluation.store import Store
from crt.grading.grader import Grader
from crt.sampling.policy import Response, grade_responses
from crt.types import Problem, Rollout


@dataclass(frozen=True)
class Unit:
    """Some problems of a set and some of their rollouts: what is sampled, or lost, together."""

    name: str  # sorts in the order of the plan
    dataset: str
    problems: tuple[Problem, ...]
    first: int  # rollout
    num_samples: int
    seed: int

    @property
    def size(self) -> int:
        """Responses."""
        return len(self.problems) * self.num_samples


Answered = tuple[Unit, Sequence[Sequence[Response]]]  # for each problem, for each rollout


@dataclass(frozen=True)
class Backend:
    """Whoever answers."""

    model: Mapping[str, Any]  # who it is, for the manifest
    prompt_hash: str | None  # of the chat template with the settings, if it is known
    template: str | None  # the chat template itself, if it is known
    rows: int  # responses that a unit may have
    max_tokens: int  # the cap
    prompt_row: Callable[[Problem], Mapping[str, Any]]  # what is sent for a problem
    answers: Callable[[Iterable[Unit]], Generator[Answered]]  # units as they are done, any order


def plan_units(sets: Sequence[Loaded], rollouts: int, rows: int, seed: int) -> list[Unit]:
    """All the work, cut into units of at most `rows` responses.

    A unit's seed depends on what it holds and not on when it is sampled, so that an evaluation
    that was cut off anywhere gives what an uninterrupted one gives.
    """
    units: list[Unit] = []
    num_samples = min(rollouts, rows)
    step = max(1, rows // rollouts)
    for place, loaded in enumerate(sets):
        for start in range(0, len(loaded), step):
            problems = loaded.problems[start : start + step]
            for first in range(0, rollouts, num_samples):
                name = f"{place:03d}-{start:07d}-{first:05d}"
                unit_seed = seed_of(seed, loaded.name, problems[0].id, first)
                count = min(num_samples, rollouts - first)
                units.append(Unit(name, loaded.name, problems, first, count, unit_seed))
    return units


def seed_of(seed: int, dataset: str, problem_id: str, rollout: int) -> int:
    """A seed of 62 bits that is the same on every machine."""
    return int(digest(str(seed), dataset, problem_id, str(rollout))[:15], 16)


def complete_units(
    units: Sequence[Unit],
    backend: Backend,
    grader: Grader,
    store: Store,
    report: Callable[[int, int], None],
) -> list[str]:
    """Samples, grades and keeps what is not there yet; returns sentences about damaged parts.

    `report` gets every unit's number of responses and of tokens.
    """
    whole, damaged = store.whole_parts({unit.name: unit.size for unit in units})
    report(sum(unit.size for unit in units if unit.name in whole), 0)
    missing = (unit for unit in units if unit.name not in whole)
    with closing(backend.answers(missing)) as answered:
        for unit, groups in answered:
            rollouts = grade_unit(unit, groups, grader)
            store.write_part(unit.name, rollouts)
            report(unit.size, sum(rollout.length or 0 for rollout in rollouts))
    store.join_parts(unit.name for unit in units)
    return damaged


def grade_unit(unit: Unit, groups: Sequence[Sequence[Response]], grader: Grader) -> list[Rollout]:
    """A unit's responses with their verdicts."""
    return [
        replace(rollout, dataset=unit.dataset, index=unit.first + rollout.index)
        for rollout in grade_responses(unit.problems, groups, grader)
    ]
