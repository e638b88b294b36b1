"""family.json: the levels of a family and what was measured of each. It is untrusted input."""

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from crt.algorithm.guard import EDGE
from crt.algorithm.statistics import highest_bound
from crt.config import read_dataclass
from crt.data.prompts import PromptSettings
from crt.errors import ConfigError, DataError, did_you_mean
from crt.io import read_json
from crt.run import CONFIG
from crt.sampling.models import ModelFiles, is_world, model_files

FAMILY = "family.json"
FORMAT = 3
FULL = "full"
LEVEL_NAMES = ("concise", "balanced", "detailed")  # by length; the base is `full`
MOST_LEVELS = 16
LARGEST = 4 * 2**20  # bytes of a family.json

Finite = Annotated[float, Field(allow_inf_nan=False)]
Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1, le=10**9)]
NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
Name = Annotated[str, Field(pattern=f"^{NAME}$")]
Short = Annotated[str, Field(max_length=500)]
Long = Annotated[str, Field(max_length=20_000)]
Hash = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


def _read_prompt(plain: Any) -> Any:
    return read_dataclass(PromptSettings, plain) if isinstance(plain, dict) else plain


class Record(BaseModel):
    """Frozen, exact types, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Estimate(Record):
    """A value with its 95 % interval and the number of problems it rests on."""

    value: Finite
    low: Finite
    high: Finite
    problems: Count


class LevelCertificate(Record):
    """Non-inferiority in accuracy against the base; differences in [−1, 1].

    Checkpoints are chosen and certified on the same problems. So the bound is corrected for all
    `candidates` (Bonferroni): with this confidence it holds for whichever is chosen.
    """

    difference: Finite
    lower_bound: Finite
    tolerance: Share
    confidence: Share
    candidates: Count
    problems: Count
    needed: Count | None = None  # problems that an equally good checkpoint needs, about
    passed: bool

    @model_validator(mode="after")
    def _consistent(self) -> "LevelCertificate":
        passed = self.lower_bound >= -self.tolerance - EDGE
        confidence = 1 - (1 - self.confidence) / self.candidates
        possible = highest_bound(self.difference, self.problems, confidence)
        if passed != self.passed or self.lower_bound > possible + EDGE:
            raise ValueError("the certificate contradicts its own figures")
        return self


class Level(Record):
    name: Name
    step: Annotated[int, Field(ge=0)]
    share: Amount | None = None
    """Of the way from the base to the step's checkpoint; None for the base and a checkpoint."""
    model: Short
    """A pocket model, a hub id, or with `folder` a path that is relative to this file."""
    folder: bool
    revision: Short | None = None
    hash: Hash
    adapter: bool = False
    pareto: bool = True
    """Whether no other usable level is both shorter and as accurate."""
    acc: Estimate  # in %
    len: Estimate  # tokens
    r_zip: Estimate | None
    saved: Estimate | None  # % of the base's tokens; None for the base
    certificate: LevelCertificate | None  # None for the base, which is the reference

    @property
    def certified(self) -> bool:
        """It is the reference, or shown to be as good."""
        return self.certificate is None or self.certificate.passed


class Measurement(Record):
    data: Annotated[list[dict[str, Any]], Field(max_length=100)]
    rollouts: Count
    temperature: Amount
    top_p: Share
    max_tokens: Count
    evaluation: Short
    date: Short
    chosen_on: Short | None = None
    """Other problems, by which the levels were chosen; None if it was by the same."""


class Example(Record):
    """A problem of the evaluation, for the playground."""

    question: Long
    answer: Short


class Family(Record):
    """Levels from the shortest to the base."""

    format: Literal[3]
    name: Name
    method: Short
    tolerance: Share  # ε of the certificates
    candidates: Annotated[int, Field(ge=0)]  # checkpoints that were measured
    measured: Measurement
    prompt: Annotated[PromptSettings, BeforeValidator(_read_prompt)]
    levels: Annotated[list[Level], Field(min_length=1, max_length=MOST_LEVELS)]
    examples: Annotated[list[Example], Field(max_length=50)]
    versions: dict[str, str]

    @model_validator(mode="after")
    def _ordered(self) -> "Family":
        names = [level.name for level in self.levels]
        if len(set(names)) != len(names):
            raise ValueError("two levels have the same name")
        if names[-1] != FULL or self.levels[-1].certificate is not None:
            raise ValueError(f"the last level must be the base, `{FULL}`, without certificate")
        if any(level.certificate is None for level in self.levels[:-1]):
            raise ValueError("a level other than the base has no certificate")
        lengths = [level.len.value for level in self.levels]
        if lengths != sorted(lengths) or lengths[0] <= 0:
            raise ValueError("levels must go from the shortest to the longest")
        certificates = [level.certificate for level in self.levels if level.certificate]
        if any(c.candidates < self.candidates for c in certificates):
            raise ValueError("a certificate is for fewer checkpoints than were measured")
        return self

    def prompt_for(self, level: Level) -> PromptSettings:
        """The measured prompt; the base has no budget, which it never learned to keep to."""
        if level.name != FULL:
            return self.prompt
        return replace(self.prompt, budget="none", budget_tokens=None)

    @property
    def default(self) -> Level:
        """The level of a request that chooses none: the shortest that is certified."""
        return next(level for level in self.levels if level.certified)

    def level(self, name: str) -> Level | None:
        """The level of this name; the usual words also mean places when levels are numbered."""
        match = next((level for level in self.levels if level.name == name), None)
        if match is None and name in LEVEL_NAMES and len(self.levels) > len(LEVEL_NAMES) + 1:
            place = LEVEL_NAMES.index(name) * (len(self.levels) - 1) // len(LEVEL_NAMES)
            return self.levels[place]
        return match

    def require_level(self, name: str, option: str) -> Level:
        """The level that an option names, or a sentence with the nearest name."""
        level = self.level(name)
        if level is None:
            names = [level.name for level in self.levels]
            raise ConfigError(f"{option} {name!r} is not a level. {did_you_mean(name, names)}")
        return level


def read_family(path: Path) -> Family:
    """A valid family, or a sentence that says what is wrong."""
    try:
        if path.stat().st_size > LARGEST:
            raise DataError(f"{path} is larger than {LARGEST // 2**20} MB: not a family.")
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}.") from None
    try:
        return Family.model_validate(read_json(path))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        raise DataError(
            f"{path} is not a family: {where}: {first['msg']}. Make it again: crt family RUN."
        ) from None


def family_file(place: Path) -> Path:
    """The file itself, or that of a run's folder."""
    file = place / FAMILY if place.is_dir() else place
    if file.is_file():
        return file
    if (place / CONFIG).is_file():
        raise DataError(f"{place} has no {FAMILY} yet: make it with `crt family {place}`.")
    raise DataError(f"{place} is neither a {FAMILY} nor a run with one.")


def model_of(level: Level, file: Path) -> str:
    """The level's model as the engines name it: a folder's path, a pocket model or a hub id."""
    if not level.folder:
        if not is_world(level.model) and not re.fullmatch(r"[\w-][\w.-]*/[\w.-]+", level.model):
            raise DataError(f"{file}: {level.model!r} is no pocket model and no hub id.")
        return level.model
    if os.path.isabs(level.model):
        raise DataError(f"{file}: {level.model!r} is not relative to the file.")
    folder = os.path.normpath(file.parent / level.model)
    if not os.path.isdir(folder):
        raise DataError(
            f"{folder}, the model of the level {level.name}, is not there: bring it back, or make "
            "the family again, crt family RUN."
        )
    return folder


def level_files(level: Level, file: Path) -> ModelFiles:
    """A level's model; the figures hold for the weights they were measured with, and no others."""
    name = model_of(level, file)
    files = model_files(name, revision=level.revision)
    if files.hash != level.hash:
        raise DataError(
            f"{name} has other weights than those that {file} was made from: make the family "
            "again, crt family RUN."
        )
    return files
