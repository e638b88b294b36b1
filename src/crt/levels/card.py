"""What a card claims: the model card of `crt export`, family.json, an evaluation's figures.json."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crt.errors import ConfigError, DataError
from crt.evaluation.metrics import accuracy, average
from crt.evaluation.paired import TOLERANCE
from crt.evaluation.store import FIGURES, load
from crt.evaluation.verify import Claim, percent_claim
from crt.levels.family import FAMILY, Family, Level, read_family

CARD = "README.md"
LARGEST = 1 << 20  # bytes of a card
SAMPLING = ("rollouts", "temperature", "top_p", "max_tokens")
MOST_ROLLOUTS = 1024  # per problem that a card may ask for
_ROW = re.compile(r"^\| Accuracy \| [^|]+ \| (\d+(?:\.\d+)?) % \(", re.MULTILINE)
_TOLERANCE = re.compile(r"the tolerance is (\d+(?:\.\d+)?)\.\s")
_SAMPLING = re.compile(
    r"^(\d+) responses to each problem at temperature ([\d.]+), top-p\s([\d.]+), "
    r"at most (\d+) tokens, on ([^\n]+)\. Measured on",
    re.MULTILINE,
)
_PROMPT = re.compile(r"where `\{question\}` is yours:\n\n```\n(.*?)\n```", re.DOTALL)


@dataclass(frozen=True)
class Card:
    """A claim, and the settings under which it was measured, by the names of the options."""

    claim: Claim
    settings: dict[str, Any] = field(default_factory=dict[str, Any])


def is_card(text: str) -> bool:
    """Whether `--claim` names a file; a claim in words is none."""
    return Path(text).name in (CARD, FAMILY, FIGURES) or Path(text).suffix in (".md", ".json")


def read_card(path: Path, level: str | None = None) -> Card:
    """The claim of a card; it is untrusted input."""
    if path.name == FIGURES:
        return _feasible(_of_evaluation(path.parent), path)
    if path.suffix == ".json":
        family = read_family(path)
        named = family.require_level(level, "--level") if level else family.default
        return _feasible(_of_level(family, named), path)
    try:
        with path.open("rb") as file:
            text = file.read(LARGEST).decode("utf-8", "replace")
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}.") from None
    base, tolerance, sampling = (part.search(text) for part in (_ROW, _TOLERANCE, _SAMPLING))
    if not (base and tolerance and sampling):
        raise ConfigError(
            f"{path} claims nothing that can be checked: it is no card of crt export, or that of a "
            'base. State the claim: --claim "accuracy >= base - 1pt"'
        )
    rollouts, temperature, top_p, max_tokens, data = sampling.groups()
    texts = ((int, rollouts), (float, temperature), (float, top_p), (int, max_tokens))
    numbers = (_number(kind, text, path) for kind, text in texts)
    settings: dict[str, Any] = dict(zip(SAMPLING, numbers, strict=True))
    settings["data"] = ",".join(re.findall(r"`([^`]+)`", data))
    prompt = _PROMPT.search(text)
    settings |= {"instruction": prompt[1]} if prompt else {}
    return _feasible(Card(percent_claim(tolerance[1], base[1]), settings), path)


def _number(kind: type[int] | type[float], text: str, path: Path) -> int | float:
    try:
        return kind(text)
    except ValueError:  # two points, or thousands of digits
        raise ConfigError(f"{path}: {text!r:.40} is no number") from None


def _feasible(card: Card, path: Path) -> Card:
    """Whoever wrote the card does not decide for how long others' machines work."""
    rollouts = card.settings.get("rollouts", 1)
    if not isinstance(rollouts, int) or rollouts > MOST_ROLLOUTS:
        raise ConfigError(
            f"{path} claims {rollouts!r:.40} responses to each problem, more than {MOST_ROLLOUTS}: "
            "state the claim in words, with --rollouts"
        )
    return card


def _of_level(family: Family, level: Level) -> Card:
    base, measured = family.levels[-1], family.measured
    if level.certificate is None:
        raise ConfigError(f"the level {level.name} is the base: there is nothing to claim")
    settings: dict[str, Any] = {name: getattr(measured, name) for name in SAMPLING}
    settings |= {"data": _data(measured.data), "instruction": family.prompt.instruction}
    return Card(Claim(level.certificate.tolerance, base.acc.value / 100), settings)


def _data(rows: Sequence[Mapping[str, Any]]) -> str:
    return ",".join(str(row["name"]) for row in rows)


def _of_evaluation(folder: Path) -> Card:
    """That the model is as good as the evaluation says, within the usual tolerance."""
    evaluation = load(folder)
    sampling = evaluation.manifest["sampling"]
    settings = {name: sampling[name] for name in SAMPLING if sampling.get(name) is not None}
    acc = average(accuracy, [*evaluation.counts.values()])  # its own file may have been edited
    if acc is None:
        raise DataError(f"{folder} has no accuracy to claim")
    settings["data"] = _data(evaluation.manifest["data"])
    return Card(Claim(TOLERANCE, acc.value / 100), settings)
