"""Questions that occur twice: inside a set, and between sets (training data in a test)."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations

from crt.types import Problem

Group = tuple[Problem, ...]

NEAR = 0.6  # ours: share of the shorter question's runs that the other must have
RUN = 6  # words, numbers or signs in a run
BOILERPLATE = 50  # a run in more problems than this says nothing

_SPACING = re.compile(
    r"\\(?:[,;:! >]|(?:q?quad|left|right|displaystyle|limits)(?![a-zA-Z]))|[~$]|\\[()\[\]]"
)
_DRAWING = re.compile(r"\[asy\].*?\[/asy\]", re.DOTALL)
_WORD = re.compile(r"[a-z]+|\d+|[^\sa-z\d]")


def fingerprint(question: str) -> str:
    """The question without white space, case, LaTeX spacing and math delimiters."""
    return "".join(_plain(question).split())


def duplicates(problems: Iterable[Problem]) -> list[Group]:
    """Groups of problems that ask the same, in order of their first."""
    groups: dict[str, list[Problem]] = {}
    for problem in problems:
        groups.setdefault(fingerprint(problem.question), []).append(problem)
    return [tuple(group) for group in groups.values() if len(group) > 1]


def overlap(first: Iterable[Problem], second: Iterable[Problem]) -> list[Group]:
    """Pairs of a problem of the first set and one of the second that ask the same."""
    by_fingerprint = {fingerprint(problem.question): problem for problem in second}
    pairs = ((problem, by_fingerprint.get(fingerprint(problem.question))) for problem in first)
    return [(ours, theirs) for ours, theirs in pairs if theirs is not None]


def near_overlap(first: Sequence[Problem], second: Sequence[Problem]) -> list[Group]:
    """Pairs that are nearly the same: most of the shorter one's runs of words are in the other.

    Another closing sentence or another number is found; the same thought in new words is not.
    With one set given twice, each pair comes once.
    """
    theirs = [_runs(problem.question) for problem in second]
    holders: dict[tuple[str, ...], list[int]] = {}
    for index, runs in enumerate(theirs):
        for run in runs:
            holders.setdefault(run, []).append(index)
    pairs: list[Group] = []
    for place, problem in enumerate(first):
        runs, own = _runs(problem.question), fingerprint(problem.question)
        lists = (holders.get(run, []) for run in runs)
        shared = Counter(i for indices in lists if len(indices) <= BOILERPLATE for i in indices)
        near = sorted(i for i, n in shared.items() if n >= NEAR * min(len(runs), len(theirs[i])))
        others = (second[i] for i in near if second is not first or i > place)
        pairs += [(problem, other) for other in others if fingerprint(other.question) != own]
    return pairs


def compare(
    sets: Mapping[str, Sequence[Problem]],
) -> Iterator[tuple[str, list[Group], list[Group]]]:
    """For each set and each two sets: which, the same questions, and the nearly same ones."""
    for name, problems in sets.items():
        yield name, duplicates(problems), near_overlap(problems, problems)
    for (first, ours), (second, theirs) in combinations(sets.items(), 2):
        yield f"{first} and {second}", overlap(ours, theirs), near_overlap(ours, theirs)


def disagree(group: Group) -> bool:
    """Whether the same question has answers written differently: one gold may be wrong."""
    return len({fingerprint(problem.answer) for problem in group}) > 1


def _plain(text: str) -> str:
    text = re.sub(r"\\[dt]frac(?![a-zA-Z])", r"\\frac", text)
    text = re.sub(r"\{(\w)\}", r"\1", text)  # x^{4} is x^4
    return _SPACING.sub("", text).casefold()


def _runs(question: str) -> set[tuple[str, ...]]:
    """The question's runs of words, without its drawings."""
    words = _WORD.findall(_plain(_DRAWING.sub(" ", question)))
    return {tuple(words[i : i + RUN]) for i in range(len(words) - RUN + 1)}
