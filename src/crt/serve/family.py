"""family.json: the levels of a family with what was measured of each; untrusted when read."""

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from crt.algorithm.guard import EDGE
from crt.algorithm.statistics import highest_bound
from crt.data.prompts import PromptSettings
from crt.errors import DataError
from crt.files import read_json
from crt.run import CONFIG
from crt.serve.front import FULL, MOST_LEVELS, WORDS

FAMILY = "family.json"
FORMAT = 2
LARGEST = 4 * 2**20  # bytes of a family.json

Finite = Annotated[float, Field(allow_inf_nan=False)]
Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1, le=10**9)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
Short = Annotated[str, Field(max_length=500)]
Long = Annotated[str, Field(max_length=20_000)]
Hash = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class Part(BaseModel):
    """Frozen, exact types, and a key that is not known is refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Figure(Part):
    """A figure with its 95 % interval and the number of problems it rests on."""

    value: Finite
    low: Finite
    high: Finite
    problems: Count


class Certified(Part):
    """Non-inferiority in accuracy against the base; differences in [−1, 1].

    Checkpoints are chosen and certified on the same problems, so the bound is that of `among`
    checkpoints at once (Bonferroni): with confidence `level` it is true of whichever is chosen.
    """

    difference: Finite
    lower_bound: Finite
    tolerance: Share
    level: Share
    among: Count
    problems: Count
    needed: Count | None = None  # problems that an equally good checkpoint needs, about
    held: bool  # whether it passed

    @model_validator(mode="after")
    def _true(self) -> "Certified":
        passed = self.lower_bound >= -self.tolerance - EDGE
        each = 1 - (1 - self.level) / self.among
        possible = highest_bound(self.difference, self.problems, each)
        if passed != self.held or self.lower_bound > possible + EDGE:
            raise ValueError("the certificate contradicts its own figures")
        return self


class Level(Part):
    """One setting of the dial."""

    name: Name
    step: Annotated[int, Field(ge=0)]
    model: Short
    """`pocket`, a hub id, or with `folder` a path that is relative to this file."""
    folder: bool
    revision: Short | None = None
    hash: Hash
    adapter: bool = False
    front: bool = True
    """Whether no other level that was fit to offer is both shorter and as accurate."""
    acc: Figure  # in %
    len: Figure  # tokens
    r_zip: Figure | None
    saved: Figure | None  # % of the base's tokens; None for the base
    certificate: Certified | None  # None for the base, which is the reference

    @property
    def certified(self) -> bool:
        """It is the reference, or shown to be as good."""
        return self.certificate is None or self.certificate.held


class Measurement(Part):
    """How the figures were measured."""

    data: Annotated[list[dict[str, Any]], Field(max_length=100)]
    rollouts: Count
    temperature: Amount
    top_p: Share
    max_tokens: Count
    evaluation: Short
    date: Short


class Example(Part):
    """A problem of the evaluation, for the playground."""

    question: Long
    answer: Short


class Family(Part):
    """Levels from the shortest to the base, and how they were found."""

    format: Literal[2]
    name: Name
    method: Short
    tolerance: Share  # ε of the certificates
    candidates: Annotated[int, Field(ge=0)]  # checkpoints that were measured
    measured: Measurement
    prompt: dict[str, Any]
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
        if any(held.among < self.candidates for held in self._certificates):
            raise ValueError("a certificate is for fewer checkpoints than were looked at")
        _prompt_settings(self.prompt)
        return self

    @property
    def _certificates(self) -> list[Certified]:
        return [level.certificate for level in self.levels if level.certificate]

    @property
    def prompt_settings(self) -> PromptSettings:
        """How questions were put when the levels were measured."""
        return _prompt_settings(self.prompt)

    def prompt_for(self, level: Level) -> PromptSettings:
        """The same for one level; the base is told no budget, which it never learned to keep to."""
        settings = self.prompt_settings
        if level.name != FULL:
            return settings
        return replace(settings, budget="none", budget_tokens=None)

    @property
    def default(self) -> Level:
        """What is served when nothing is asked for: the shortest that is certified."""
        return next(level for level in self.levels if level.certified)

    def level(self, name: str) -> Level | None:
        """The level of this name; the usual words also mean places when levels are numbered."""
        found = next((level for level in self.levels if level.name == name), None)
        if found is None and name in WORDS and len(self.levels) > len(WORDS) + 1:
            place = WORDS.index(name) * (len(self.levels) - 1) // len(WORDS)
            return self.levels[place]
        return found


def read_family(path: Path) -> Family:
    """A family that can be trusted to be one, or a sentence that says what is wrong."""
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
    """The level's model as the engines name it: a folder's path, `pocket` or a hub id."""
    if not level.folder:
        if level.model != "pocket" and not re.fullmatch(r"[\w-][\w.-]*/[\w.-]+", level.model):
            raise DataError(f"{file}: {level.model!r} is not `pocket` and no hub id.")
        return level.model
    if os.path.isabs(level.model):
        raise DataError(f"{file}: {level.model!r} is not relative to the file.")
    return os.path.normpath(file.parent / level.model)


def check_weights(level: Level, found: str, where: str, file: Path) -> None:
    """Figures are those of the weights they were measured with, and of no others."""
    if found != level.hash:
        raise DataError(
            f"{where} has other weights than those that {file} was made from: make the family "
            "again, crt family RUN."
        )


def _prompt_settings(plain: dict[str, Any]) -> PromptSettings:
    from pydantic import TypeAdapter

    try:
        return TypeAdapter(PromptSettings).validate_python(plain)
    except ValidationError as error:
        raise ValueError(f"prompt: {error.errors()[0]['msg']}") from None
