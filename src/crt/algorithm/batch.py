"""A graded batch as arrays: P problems × G rollouts, the only thing the core sees."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crt.errors import DataError
from crt.types import Rollout, Verdict

Array = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

TruncatedAs = Literal["wrong", "grade", "mask"]
Number = Callable[[Rollout], float]  # of a graded rollout
IsFrom = Callable[[str], bool]  # whether a problem of this data set is meant

TOKENS = "tokens"  # the cost of the paper: all that the model generates


def _none() -> BoolArray:
    return np.zeros((0, 0), dtype=bool)


def _unasked() -> Array:
    return np.zeros(0)


@dataclass(frozen=True, eq=False)
class Batch:
    """P problems × G rollouts. A reference is a batch too: one sampled from a frozen policy.

    `truncated` rollouts ran into the token cap. `muted` ones count in every statistic but take no
    part in the gradient. `budget` is how many tokens each problem's prompt asked for. All three
    may be left out, which means none.

    With a contract `length` is its `cost`, `measured` holds what else its lines ask of rollouts,
    and `within` which problems are of the data sets that they name.
    """

    problem_ids: tuple[str, ...]  # (P,)
    correct: BoolArray  # (P, G)
    length: Array  # (P, G) generated tokens, or another cost: what is shortened
    truncated: BoolArray = field(default_factory=_none)  # (P, G)
    muted: BoolArray = field(default_factory=_none)  # (P, G)
    budget: Array = field(default_factory=_unasked)  # (P,) or empty
    measured: Mapping[str, Array] = field(default_factory=dict[str, Array])  # (P, G) each
    within: Mapping[str, BoolArray] = field(default_factory=dict[str, BoolArray])  # (P,) each
    cost: str = TOKENS  # what `length` is

    def __post_init__(self) -> None:
        set_field = object.__setattr__  # the one moment at which a frozen value is still made
        set_field(self, "problem_ids", tuple(self.problem_ids))
        set_field(self, "correct", _zeros_and_ones(self.correct))
        set_field(self, "length", np.array(self.length, dtype=float))
        set_field(self, "budget", np.array(self.budget, dtype=float))
        shape = self.correct.shape
        for name in ("truncated", "muted"):
            flags: BoolArray = getattr(self, name)
            set_field(
                self, name, _zeros_and_ones(flags) if np.size(flags) else np.zeros(shape, bool)
            )
        if self.correct.ndim != 2 or 0 in shape:
            raise ValueError(f"A batch is problems × rollouts, at least 1 × 1; got {shape}.")
        if len(self.problem_ids) != shape[0] or len(set(self.problem_ids)) != shape[0]:
            raise ValueError(
                f"A batch of {shape[0]} rows, one per problem, needs as many ids, each once; "
                f"got {len(self.problem_ids)}, {len(set(self.problem_ids))} of them different."
            )
        for name in ("length", "truncated", "muted"):
            if getattr(self, name).shape != shape:
                raise ValueError(f"`{name}` is {getattr(self, name).shape}, `correct` is {shape}.")
        if not np.isfinite(self.length).all() or (self.length < 0).any():
            raise ValueError("Every length must be a finite number of tokens, 0 or more.")
        if self.budget.size and (self.budget.shape != shape[:1] or not (self.budget > 0).all()):
            raise ValueError(f"A budget is tokens above 0, one a problem; got {self.budget}.")
        for name in ("correct", "length", "truncated", "muted", "budget"):
            getattr(self, name).flags.writeable = False

    @property
    def accuracy(self) -> float:
        """Â: the share of correct rollouts."""
        return float(self.correct.mean())

    @property
    def accuracy_by_problem(self) -> Array:
        """(P,)"""
        return self.correct.mean(axis=1)

    @property
    def mean_length(self) -> float:
        """What is shortened, a response: tokens, or the contract's cost."""
        return float(self.length.mean())

    @property
    def mean_tokens(self) -> float:
        """Tokens a response, whatever is shortened."""
        return float(self.measured.get(TOKENS, self.length).mean())

    def select(self, problem_ids: Sequence[str]) -> Self:
        """These problems, in this order."""
        row = {problem_id: i for i, problem_id in enumerate(self.problem_ids)}
        absent = [problem_id for problem_id in problem_ids if problem_id not in row]
        if absent:
            raise DataError(
                f"{len(absent)} of {len(problem_ids)} problems have no reference rollouts, "
                f"for example {absent[0]!r}. Measure the reference on the same problems."
            )
        rows = [row[problem_id] for problem_id in problem_ids]
        return type(self)(
            tuple(problem_ids),
            self.correct[rows],
            self.length[rows],
            self.truncated[rows],
            self.muted[rows],
            self.budget[rows] if self.budget.size else self.budget,
            {name: values[rows] for name, values in self.measured.items()},
            {name: flags[rows] for name, flags in self.within.items()},
            self.cost,
        )


@dataclass(frozen=True)
class Measures:
    """What a contract wants to know of rollouts besides their correctness.

    `numbers` are functions of one rollout, `cost` names the one that is shortened; `datasets` say
    of a rollout's `dataset` whether it is the one that a line names.
    """

    cost: str = TOKENS
    numbers: Mapping[str, Number] = field(default_factory=dict[str, Number])
    datasets: Mapping[str, IsFrom] = field(default_factory=dict[str, IsFrom])


TOKENS_ALONE = Measures()


def batch_of(
    rollouts: Sequence[Rollout],
    truncated_as: TruncatedAs = "wrong",
    measures: Measures = TOKENS_ALONE,
) -> tuple[Batch | None, tuple[str, ...]]:
    """The batch, and the problems left out because a rollout of theirs could not be graded.

    The batch is None when every problem is left out. A truncated rollout is wrong whatever the
    grader says of it (`wrong`, `mask`), unless it is to be graded as it stands (`grade`).
    """
    groups: dict[str, list[Rollout]] = {}
    for rollout in rollouts:
        groups.setdefault(rollout.problem_id, []).append(rollout)
    sizes = {len(group) for group in groups.values()}
    if len(sizes) > 1:
        raise ValueError(f"Every problem needs as many rollouts as the others; got {sizes}.")
    trust = truncated_as == "grade"
    left_out = [
        problem_id
        for problem_id, group in groups.items()
        if any(r.verdict is Verdict.UNGRADED and (trust or r.stop == "eos") for r in group)
    ]
    kept = {problem_id: group for problem_id, group in groups.items() if problem_id not in left_out}
    if not kept:
        return None, tuple(left_out)
    truncated = np.array([[r.stop == "length" for r in group] for group in kept.values()])
    right = np.array([[r.verdict is Verdict.CORRECT for r in group] for group in kept.values()])
    asked = [group[0].budget for group in kept.values()]
    measured = {
        name: np.array([[number(r) for r in group] for group in kept.values()], dtype=float)
        for name, number in measures.numbers.items()
    }
    tokens = [[r.length for r in group] for group in kept.values()]
    batch = Batch(
        problem_ids=tuple(kept),
        correct=right if trust else right & ~truncated,
        length=np.array(tokens if measures.cost == TOKENS else measured[measures.cost], float),
        truncated=truncated,
        muted=truncated if truncated_as == "mask" else _none(),
        budget=_unasked() if None in asked else np.array(asked, dtype=float),
        measured=measured,
        within={
            name: np.array([is_from(group[0].dataset) for group in kept.values()])
            for name, is_from in measures.datasets.items()
        },
        cost=measures.cost,
    )
    return batch, tuple(left_out)


def _zeros_and_ones(values: ArrayLike) -> BoolArray:
    """As booleans; anything but 0 and 1, NaN above all, is refused."""
    array = np.array(values)
    if not np.isin(array, (0, 1)).all():
        raise ValueError("Correctness and flags are 0 or 1 for every rollout, nothing between.")
    return array.astype(bool)
