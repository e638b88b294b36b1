"""Which verifier grades a response, and what it is given; the quick ones are run here.

A verifier is a built-in name, the name of an entry point `crt.verifiers`, or a function as
`package.module:function` or `path/file.py:function`. Data may name only what runs no code and asks
nobody: everything else must be named by the user.
"""

import hashlib
import importlib.util
import re
import unicodedata
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import NamedTuple

from crt.errors import ConfigError, did_you_mean
from crt.grading import equality
from crt.grading.equality import Oracle, Rules
from crt.grading.extract import AFTER, BLANK, NUMBER, extract
from crt.grading.mathematics import (
    Comparison,
    GoldUnread,
    asks_percent,
    gold_letter,
    verify_choice,
    verify_math,
)
from crt.types import Problem, Verdict

GROUP = "crt.verifiers"  # of entry points
PLACES = {"math": "boxed", "choice": "boxed", "exact": "boxed", "number": "last_number"}
QUICK = tuple(PLACES)  # decided here, but for mathematics that takes symbolic work
FREE = (*QUICK, "math_verify", "regex")  # data may name these
BUILT_IN = (*FREE, "code", "judge")


class Item(NamedTuple):
    """A response and the problem it answers; `thinking_opened`: the prompt ended in `<think>`."""

    text: str
    problem: Problem
    thinking_opened: bool = False


@dataclass(frozen=True, slots=True)
class Grade:
    verdict: Verdict
    extracted: str | None
    reason: str


class Task(NamedTuple):
    """What a verdict depends on: the cache's key, and a worker's request."""

    verifier: str
    text: str
    """The extracted answer, or the whole reply where the verifier looks for itself."""
    problem: Problem
    percent: bool = False
    pattern: str = ""
    """A regular expression that finds the answer in the text: only a worker may run it."""


def prepare(item: Item, verifier: str = "math", place: str | None = None) -> Grade | Task:
    """What has to be judged, or the grade where nothing has."""
    problem = item.problem
    verifier = problem.verifier or verifier
    if not problem.answer.strip() and verifier in FREE:
        return Grade(Verdict.UNGRADED, None, "the gold answer is empty")
    chosen = PLACES.get(verifier, "") if place is None else place
    pattern = chosen if is_pattern(chosen) else ""
    text, reason = extract(item.text, item.thinking_opened, "" if pattern else chosen)
    if text is None:
        return Grade(Verdict.NO_ANSWER, None, reason)
    percent = False
    if verifier in QUICK:  # equal answers to different questions share a verdict
        percent = verifier == "math" and bool(problem.question) and asks_percent(problem.question)
        problem = replace(problem, id="", question="", source="", verifier="")
    return Task(verifier, text, problem, percent, pattern)


def is_pattern(place: str) -> bool:
    """A place that is neither a name nor `after:…` is a regular expression."""
    return place not in ("", "boxed", "last_number") and not place.startswith(AFTER)


def verify(task: Task, oracle: Oracle = equality.undecided) -> Comparison:
    """Whether the answer is one of those that are accepted; None if that takes a worker."""
    if task.verifier not in QUICK or task.pattern:
        return Comparison(None, "takes a worker")
    verdicts: list[Comparison] = []
    for gold in (task.problem.answer, *task.problem.accepted):
        verdicts.append(_QUICK[task.verifier](task, gold, oracle))
        if verdicts[-1].equal:
            break
    undecided = next((verdict for verdict in verdicts if verdict.equal is None), verdicts[-1])
    return verdicts[-1] if verdicts[-1].equal else undecided


def _verify_math(task: Task, gold: str, oracle: Oracle) -> Comparison:
    problem = task.problem
    return verify_math(task.text, gold, problem.options, problem.tolerance, task.percent, oracle)


def _verify_choice(task: Task, gold: str, oracle: Oracle) -> Comparison:
    letter = gold_letter(gold.strip(BLANK), has_options=True)
    if letter is None:
        raise GoldUnread(f"{gold!r:.40} is not the letter of an option")
    rules = Rules(task.problem.tolerance, oracle=oracle)
    chosen = verify_choice(task.text.strip(BLANK), letter, task.problem.options, rules)
    return Comparison(chosen, "choice")


def _verify_number(task: Task, gold: str, _: Oracle) -> Comparison:
    """Numbers alone, thousands separators aside; a unit, a dollar or a per cent sign is ignored."""
    wanted, given = _number(gold), _number(task.text)
    if wanted is None:
        raise GoldUnread(f"{gold!r:.40} is not a number")
    if given is None:
        return Comparison(False, "no number")
    tolerance = Fraction(str(task.problem.tolerance or 0))
    return Comparison(abs(given - wanted) <= tolerance, "numbers")


def _number(text: str) -> Fraction | None:
    numbers = [match.group() for match in NUMBER.finditer(text)]
    if len(numbers) != 1 or len(numbers[0]) > 400 or re.search(r"[eE][+-]?\d{4}", numbers[0]):
        return None
    return Fraction(numbers[0].replace(",", "").replace("−", "-"))


def _verify_exact(task: Task, gold: str, _: Oracle) -> Comparison:
    return Comparison(plain_text(task.text) == plain_text(gold), "text")


def plain_text(text: str) -> str:
    r"""For comparing words: without case, `\text{}`, outer quotes, and spacing."""
    text = re.sub(r"\\(?:text|textbf|mathrm)\s*\{([^{}]*)\}", r"\1", text)
    text = unicodedata.normalize("NFKC", text).casefold()
    return " ".join(text.split()).strip(" \"'“”‘’`*$.,;:!")


_QUICK: dict[str, Callable[[Task, str, Oracle], Comparison]] = {
    "math": _verify_math,
    "choice": _verify_choice,
    "number": _verify_number,
    "exact": _verify_exact,
}


# ---- Names


def check_verifier(name: str, allowed: Collection[str] | None = None, where: str = "") -> None:
    """Raises ConfigError for what is no verifier, or what data may not name by itself."""
    where = where or "grading.verifier"
    if allowed is not None and name not in (*FREE, *allowed):
        raise ConfigError(
            f"{where} asks for the verifier {name!r}. Data may not choose by itself what runs code "
            f'or asks a server: allow it with grading.allow = ["{name}"] or --allow {name}'
        )
    if ":" in name:
        source_of(name, where)
    elif name not in (*BUILT_IN, *registered()):
        hint = did_you_mean(name, (*BUILT_IN, *registered()))
        raise ConfigError(
            f"{where}: {name!r} is no verifier. {hint} Your own function is "
            "`package.module:function` or `path/file.py:function`."
        )


def check_place(place: str | None) -> None:
    if place is None or not is_pattern(place):
        if place == AFTER:
            raise ConfigError(f"grading.answer = {place!r} names nothing: such as after:Answer:")
        return
    names = ("boxed", "last_number", "after:Answer:")
    try:
        groups = re.compile(place).groups
    except re.error as error:
        reason = f"is not a regular expression: {error}."
        raise ConfigError(f"grading.answer = {place!r} {reason}") from None
    if not groups:
        raise ConfigError(
            f"grading.answer = {place!r} is no place. {did_you_mean(place, names)} A regular "
            "expression needs a group around the answer."
        )


@cache
def registered() -> dict[str, str]:
    """Verifiers of installed packages: name → `package.module:function`."""
    return {point.name: point.value for point in entry_points(group=GROUP)}


def function_of(name: str) -> str:
    """Where the function is that a name stands for; "" for a built-in verifier."""
    return "" if name in BUILT_IN else registered().get(name, name)


def source_of(name: str, where: str = "grading.verifier") -> Path:
    """The file of a function, found without running any of it."""
    module, _, function = function_of(name).rpartition(":")
    if not function.isidentifier():
        raise ConfigError(f"{where} = {name!r} names no function: write {module or 'file.py'}:name")
    if module.endswith(".py"):
        path = Path(module)
    else:
        first, *rest = module.split(".")
        spec = importlib.util.find_spec(first) if first.isidentifier() else None
        folders = list(spec.submodule_search_locations or []) if spec else []
        inside = Path(folders[0], *rest) if folders else None
        origin = Path(spec.origin) if spec and spec.origin else None
        path = inside.with_suffix(".py") if inside and rest else origin or Path(module)
        if inside and not path.is_file():
            path = inside / "__init__.py"
    if not path.is_file():
        what = "the file" if module.endswith(".py") else "the module"
        raise ConfigError(f"{where} = {name!r}: {what} {module} cannot be found")
    return path


def identity(name: str) -> str:
    """A verifier's name, with the checksum of its file if it is a function."""
    if not function_of(name):
        return name
    checksum = hashlib.sha256(source_of(name).read_bytes()).hexdigest()[:12]
    return f"{name.rpartition('/')[2]}@{checksum}"
