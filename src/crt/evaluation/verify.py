"""Verify: a claim of accuracy, checked problem by problem until it may be accepted or rejected."""

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from crt.algorithm.sequential import Look, sequential_test
from crt.data.datasets import Loaded, digest, parse
from crt.errors import ConfigError, DataError
from crt.evaluation.backends import Plan, plan_units
from crt.evaluation.datasets import short_name
from crt.evaluation.evaluator import Note, make_backend, manifest_of, sample_units
from crt.evaluation.metrics import count_rollouts
from crt.evaluation.store import Evaluation, incomparable, load, open_store, read_rollouts
from crt.grading.grader import make_grader

BATCH = 32  # problems that are sampled before the next look
_CLAIM = re.compile(
    r"\s*acc(?:uracy)?\s*(?:>=|≥)\s*(?:base|(\d+(?:\.\d+)?)\s*%)"
    r"(?:\s*[-−–]\s*(\d+(?:\.\d+)?)\s*(?:pts?|points?|%)?)?\s*",
    re.IGNORECASE,
)

Key = tuple[str, str]  # data set and problem
Accuracies = Callable[[Sequence[Key]], Mapping[Key, float]]  # of those that could be graded


@dataclass(frozen=True)
class Claim:
    """accuracy ≥ base − margin; `base` is a number that is taken as exact, or a model beside it."""

    margin: float
    base: float | None = None

    def __post_init__(self) -> None:
        if not (0 <= self.margin < 1 and (self.base is None or 0 <= self.base <= 1)):
            raise ConfigError(f"the claim {self} cannot be: accuracies and margins are 0 to 100 %")

    def __str__(self) -> str:
        base = "base" if self.base is None else f"{100 * self.base:.4g} %"
        return f"accuracy >= {base}" + (f" - {100 * self.margin:g}pt" if self.margin else "")


def parse_claim(text: str) -> Claim:
    """The claim in a sentence such as `accuracy >= base - 1pt`."""
    match = _CLAIM.fullmatch(text)
    if match is None:
        raise ConfigError(
            f"--claim {text!r:.80} is neither a card's file nor a claim: write "
            '"accuracy >= base - 1pt" or "accuracy >= 80 %"'
        )
    base, margin = match.groups()
    return percent_claim(margin or "0", base)


def percent_claim(margin: str, base: str | None) -> Claim:
    """The claim of two figures as they are printed, in %."""
    return Claim(round(float(margin) / 100, 9), round(float(base) / 100, 9) if base else None)


def verify(
    claim: Claim,
    model: Accuracies,
    base: Accuracies | None,
    keys: Sequence[Key],
    *,
    confidence: float = 0.95,
    tell: Callable[[Look], None] = lambda _: None,
) -> Look:
    """Looks after every problem, in the order of the keys, until there is a verdict.

    The keys must be in random order. A batch is complete before it is looked at: problems that are
    answered early are no fair sample.
    """
    if claim.base is None and base is None:
        raise ConfigError(f"the claim is {claim}: it needs a base, --base MODEL, or a number")
    if claim.base is not None and base is not None:
        raise ConfigError(
            f'the claim is {claim}, a number: leave out --base, or claim "accuracy >= base"'
        )
    differences: list[float] = []
    result = None
    for start in range(0, len(keys), BATCH):
        batch = keys[start : start + BATCH]
        ours = model(batch)
        theirs = base(batch) if base else dict.fromkeys(batch, claim.base or 0.0)
        differences += [ours[key] - theirs[key] for key in batch if key in ours and key in theirs]
        if differences:
            result = sequential_test(differences, -claim.margin, confidence)
            tell(result)
            if result.state != "undecided":
                break
    if result is None:
        raise DataError("no problem could be graded for both: there is nothing to test")
    return result


def describe(claim: Claim, look: Look, confidence: float) -> str:
    """The verdict in two sentences."""
    against = "the base" if claim.base is None else f"{100 * claim.base:.1f} %"
    low, high = 100 * look.lower_bound, 100 * look.upper_bound
    bounds = {
        "accepted": f"not below {low:+.1f}",
        "rejected": f"not above {high:+.1f}",
        "undecided": f"not below {low:+.1f}, and as surely not above {high:+.1f}",
    }
    return (
        f"{look.state} after {look.problems} problems: {claim}. Accuracy is "
        f"{100 * look.mean:+.1f} points against {against}, with {100 * confidence:g} % confidence "
        f"{bounds[look.state]}."
    )


# Where accuracies come from


def shuffled(keys: Sequence[Key], seed: int) -> list[Key]:
    """In random order, every data set with the same chance to be next; until one has no more.

    So the mean over problems estimates the average over data sets.
    """
    rng = np.random.default_rng(seed)
    left: dict[str, list[Key]] = {}
    for place in rng.permutation(len(keys)):
        left.setdefault(keys[place][0], []).append(keys[place])
    order: list[Key] = []
    names = sorted(left)
    while names and (queue := left[names[int(rng.integers(len(names)))]]):
        order.append(queue.pop())
    return order


def recorded(evaluation: Evaluation) -> dict[Key, float]:
    """Accuracy of each problem in an evaluation that is there."""
    return {
        (name, problem_id): float(counts.correct[row] / counts.graded[row])
        for name, counts in evaluation.counts.items()
        for row, problem_id in enumerate(counts.ids)
        if counts.graded[row]
    }


def load_recorded(
    model: str, base: str | None, asked: Mapping[str, Any] = MappingProxyType({})
) -> tuple[Accuracies, Accuracies | None, list[Key]]:
    """Of one evaluation or two that may be compared, and the problems they have in common.

    `asked` is what the claim or the user says of data and sampling: no other may be verified.
    """
    ours = load(Path(model))
    was = ours.manifest["sampling"] | {"data": [each["name"] for each in ours.manifest["data"]]}
    for name, value in asked.items():
        if None not in (value, was.get(name)) and _exactly(value) != _exactly(was[name]):
            raise DataError(
                f"{model} was made with {name} {_plain(was[name])}, not with {_plain(value)} as is "
                "claimed or asked: verify the model itself, or an evaluation that is made so"
            )
    values = recorded(ours)
    if base is None:
        return lambda keys: values, None, sorted(values)
    theirs = load(Path(base))
    differences, _ = incomparable(ours, theirs)
    if differences:
        raise DataError(f"{model} and {base} differ in {'; in '.join(differences)}")
    others = recorded(theirs)
    return lambda keys: values, lambda keys: others, sorted(values.keys() & others.keys())


def _exactly(value: Any) -> Any:
    """Names of data sets with the split that they mean; other values as they are."""
    return [parse(name) for name in value] if isinstance(value, list) else value


def _plain(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


@contextlib.contextmanager
def sampled(
    plan: Plan, sets: Sequence[Loaded], folder: Path, note: Note = lambda _: None
) -> Iterator[Accuracies]:
    """Accuracies of a model that is asked; its responses are kept, and not sampled again."""
    problems = {(loaded.name, problem.id): problem for loaded in sets for problem in loaded}
    backend = make_backend(plan, sets, note)
    label = short_name(backend.model["name"])
    manifest = manifest_of(plan, label, sets, backend)
    with open_store(folder, manifest) as store, make_grader(plan.grading) as grader:
        grader.check(problems.values())

        def accuracies(keys: Sequence[Key]) -> dict[Key, float]:
            parts = [
                replace(loaded, problems=tuple(problems[k] for k in keys if k[0] == loaded.name))
                for loaded in sets
                if any(name == loaded.name for name, _ in keys)
            ]
            batch = digest(*(part for key in keys for part in key))[:12]
            units = [
                replace(unit, name=f"{batch}-{unit.name}")
                for unit in plan_units(parts, plan.settings.rollouts, backend.rows, plan.seed)
            ]
            sample_units(units, backend, grader, store, lambda *_: None)
            rollouts = [r for unit in units for r in read_rollouts(store.part(unit.name))]
            return {
                (row["data"], row["problem_id"]): row["correct"] / row["graded"]
                for row in count_rollouts(rollouts, plan.truncated)
                if row["graded"]
            }

        yield accuracies


def as_json(claim: Claim, look: Look, confidence: float) -> dict[str, object]:
    return {"claim": str(claim), "confidence": confidence, **asdict(look)}
