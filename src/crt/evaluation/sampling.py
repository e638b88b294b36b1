"""Problems × rollouts as units of work, each with its own seed, in any order and only once."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from crt.algorithm.metrics import zip_ratio
from crt.data.datasets import Loaded, digest
from crt.evaluation.records import Record, clean, tokens_of
from crt.evaluation.store import Store
from crt.grading.grader import Grade, Grader, Item
from crt.sampling.policy import Response
from crt.types import Problem


@dataclass(frozen=True)
class Unit:
    """Some problems of a set and some of their rollouts: what is sampled, or lost, together."""

    name: str  # sorts in the order of the plan
    data: str
    problems: tuple[Problem, ...]
    first: int  # rollout
    num_samples: int
    seed: int


Answered = tuple[Unit, Sequence[Sequence[Response]]]  # for each problem, for each rollout


class Backend(Protocol):
    """Whoever answers."""

    @property
    def rows(self) -> int:
        """Responses a unit may have."""
        ...

    def model(self) -> Mapping[str, Any]:
        """Who answers, for the manifest."""
        ...

    def prompt_hash(self) -> str | None:
        """Of the chat template with the settings, if it is known."""
        ...

    def template_text(self) -> str | None:
        """The chat template itself, if it is known."""
        ...

    def sent(self, problem: Problem) -> Mapping[str, Any]:
        """What is sent for a problem, for the record."""
        ...

    def answers(self, units: Iterable[Unit]) -> Iterator[Answered]:
        """Units as they are done, in any order."""
        ...


def plan(sets: Sequence[Loaded], rollouts: int, rows: int, seed: int) -> list[Unit]:
    """All the work, cut into units of at most `rows` responses.

    A unit's seed depends on what it holds and not on when it is sampled, so that an evaluation
    that was cut off anywhere gives what an uninterrupted one gives.
    """
    units: list[Unit] = []
    num_samples = min(rollouts, rows)
    step = max(1, rows // rollouts)
    for place, each in enumerate(sets):
        for start in range(0, len(each), step):
            problems = each.problems[start : start + step]
            for first in range(0, rollouts, num_samples):
                name = f"{place:03d}-{start:07d}-{first:05d}"
                own = seed_of(seed, each.name, problems[0].id, first)
                count = min(num_samples, rollouts - first)
                units.append(Unit(name, each.name, problems, first, count, own))
    return units


def seed_of(seed: int, data: str, problem_id: str, rollout: int) -> int:
    """A seed of 62 bits that is the same on every machine."""
    return int(digest(str(seed), data, problem_id, str(rollout))[:15], 16)


def run(
    units: Sequence[Unit],
    backend: Backend,
    grader: Grader,
    store: Store,
    tell: Callable[[int, int], None],
) -> list[str]:
    """Samples, grades and keeps what is not there yet; returns sentences about damaged parts.

    `tell` hears of every unit: how many responses and how many tokens it has.
    """
    sizes = {unit.name: len(unit.problems) * unit.num_samples for unit in units}
    whole, damaged = store.done(sizes)
    for name in whole:
        tell(sizes[name], 0)
    left = (unit for unit in units if unit.name not in whole)
    for unit, answers in backend.answers(left):
        records = graded(unit, answers, grader)
        store.keep(unit.name, records)
        tell(len(records), tokens_of(records))
    store.join([unit.name for unit in units])
    return damaged


def graded(unit: Unit, answers: Sequence[Sequence[Response]], grader: Grader) -> list[Record]:
    """A unit's answers with their verdicts."""
    told = [
        (problem, unit.first + offset, answer)
        for problem, group in zip(unit.problems, answers, strict=True)
        for offset, answer in enumerate(group)
    ]
    grades = grader.grade_many(Item(a.text, p, a.opens_thinking) for p, _, a in told)
    return [
        record(unit.data, problem.id, rollout, answer, grade)
        for (problem, rollout, answer), grade in zip(told, grades, strict=True)
    ]


def record(data: str, problem_id: str, rollout: int, answer: Response, grade: Grade) -> Record:
    """One answer as it is kept."""
    text = clean(answer.text)
    return Record(
        data,
        problem_id,
        rollout,
        text,
        answer.length,
        answer.stop,
        grade.verdict,
        None if grade.extracted is None else clean(grade.extracted),
        clean(grade.reason),
        zip_ratio(text) if text else None,
    )
