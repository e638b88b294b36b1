"""Questions that are there twice: inside a set, and between sets (training data in a test)."""

import re
from collections.abc import Iterable, Sequence

from crt.types import Problem

Group = tuple[Problem, ...]

_SPACING = re.compile(
    r"\\(?:[,;:! >]|quad\b|qquad\b|left\b|right\b|displaystyle\b|limits\b)|[\s~$]|\\[()\[\]]"
)


def fingerprint(question: str) -> str:
    """The question without white space, case, LaTeX spacing and math delimiters."""
    text = re.sub(r"\\[dt]frac\b", r"\\frac", question)
    return _SPACING.sub("", text).casefold()


def duplicates(problems: Iterable[Problem]) -> list[Group]:
    """Groups of problems that ask the same, in order of their first."""
    groups: dict[str, list[Problem]] = {}
    for problem in problems:
        groups.setdefault(fingerprint(problem.question), []).append(problem)
    return [tuple(group) for group in groups.values() if len(group) > 1]


def overlap(first: Iterable[Problem], second: Sequence[Problem]) -> list[Group]:
    """Pairs of a problem of the first set and one of the second that ask the same."""
    known = {fingerprint(problem.question): problem for problem in second}
    pairs = ((problem, known.get(fingerprint(problem.question))) for problem in first)
    return [(ours, theirs) for ours, theirs in pairs if theirs is not None]


def disagree(group: Group) -> bool:
    """Whether the same question has different answers, so that one gold must be wrong."""
    return len({fingerprint(problem.answer) for problem in group}) > 1
