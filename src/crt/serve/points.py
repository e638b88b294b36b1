"""What a run's evaluation says of each checkpoint: its figures and its certificate."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from crt.errors import DataError
from crt.evaluate.series import BASE, SERIES
from crt.evaluate.store import MANIFEST, load
from crt.evaluate.versus import LEVEL, certificate, paired
from crt.files import read_json
from crt.serve.family import Certified, Figure, Measurement
from crt.serve.front import Measured

AVERAGE = "all"  # levels are judged over all data sets of the evaluation


class Interval(BaseModel):
    """A figure as an evaluation writes it; an end that is not known is null."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)
    value: float | None
    low: float | None
    high: float | None
    problems: int

    def figure(self) -> Figure | None:
        """None if it has no value."""
        if self.value is None:
            return None
        low = self.value if self.low is None else self.low
        high = self.value if self.high is None else self.high
        return Figure(value=self.value, low=low, high=high, problems=self.problems)


class Figures(BaseModel):
    """What is read of the averages."""

    model_config = ConfigDict(frozen=True)
    acc: Interval | None = None
    len: Interval | None = None
    r_zip: Interval | None = None


class Against(BaseModel):
    """What is read of the comparison with the base."""

    model_config = ConfigDict(frozen=True)
    saved: Interval | None = None


class Versus(BaseModel):
    """The comparison, over averages."""

    model_config = ConfigDict(frozen=True)
    averages: dict[str, Against]


class Point(BaseModel):
    """One model of a series: the base or a checkpoint."""

    model_config = ConfigDict(frozen=True)
    name: str
    step: int
    folder: str
    averages: dict[str, Figures]
    versus: Versus | None

    def figure(self, name: str) -> Figure:
        """A figure without which there is no level."""
        found = self.figure_or_none(name)
        if found is None:
            raise DataError(f"{self.name} has no {name} in the evaluation: it cannot be a level.")
        return found

    def figure_or_none(self, name: str) -> Figure | None:
        """A figure that may not be known."""
        averages = self.averages.get(AVERAGE)
        interval = getattr(averages, name) if averages else None
        return interval.figure() if interval else None

    @property
    def saved(self) -> Figure | None:
        """% of the base's tokens; None for the base."""
        found = self.versus.averages.get(AVERAGE) if self.versus else None
        return found.saved.figure() if found and found.saved else None

    def measured(self, held: Certified) -> Measured:
        """What the choice of levels looks at."""
        accuracy, length = self.figure("acc").value / 100, self.figure("len").value
        return Measured(self.name, accuracy, length, held.difference, held.lower_bound)


def certificates(folder: Path, points: Sequence[Point], tolerance: float) -> dict[str, Certified]:
    """Name → certificate of every checkpoint, true of all of them at once.

    The levels are chosen by the same figures, and the luckiest of many looks better than it is:
    each bound has a confidence (1 − α/M) that leaves 1 − α for all M, whatever is chosen.
    """
    base, *others = points
    start = load(folder / base.folder).tallies
    each = 1 - (1 - LEVEL) / max(1, len(others))
    found: dict[str, Certified] = {}
    for point in others:
        there = load(folder / point.folder).tallies
        pairs = [paired(there[name], start[name]) for name in start if name in there]
        held = certificate(pairs, tolerance, each) if pairs else None
        if held is None:
            raise DataError(f"{point.name} was measured on too few problems for a certificate.")
        found[point.name] = Certified(
            difference=held.difference,
            lower_bound=held.lower_bound,
            tolerance=float(tolerance),
            level=LEVEL,
            among=len(others),
            problems=held.problems,
            needed=held.needed,
            held=held.passed,
        )
    return found


def series(folder: Path) -> list[Point]:
    """The points of a series, the base first."""
    if not (folder / SERIES).is_file():
        raise DataError(
            f"{folder} is not a series: it has no {SERIES}. Make one: crt eval RUN "
            "--all-checkpoints --data NAME."
        )
    told: Any = read_json(folder / SERIES)
    try:
        found = [Point.model_validate(point) for point in told["points"]]
    except (ValidationError, KeyError, TypeError):
        raise DataError(f"{folder / SERIES} is not a series of this version.") from None
    if not found or found[0].name != BASE or any(Path(p.folder).name != p.folder for p in found):
        raise DataError(f"{folder / SERIES} does not begin with the base, or leaves its folder.")
    return found


def weights_measured(evaluation: Path) -> str | None:
    """The hash of the weights that an evaluation was made with."""
    told = read_json(evaluation / MANIFEST)
    model = told.get("model") if isinstance(told, dict) else None
    return model.get("hash") if isinstance(model, dict) else None


def measurement(folder: Path, base: Point) -> Measurement:
    """How the series was measured."""
    path = folder / base.folder / MANIFEST
    told = read_json(path)
    try:
        how = told["sampling"]
        return Measurement(
            data=[{k: each[k] for k in ("name", "hash", "problems")} for each in told["data"]],
            rollouts=how["rollouts"],
            temperature=float(how["temperature"]),
            top_p=float(how["top_p"]),
            max_tokens=how["max_tokens"],
            evaluation=folder.name,
            date=str(told.get("finished", told["started"]))[:10],
        )
    except (ValidationError, KeyError, TypeError, ValueError):
        raise DataError(f"{path} is not a manifest of this version.") from None
