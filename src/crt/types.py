"""The few things everything else is made of."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal


class Verdict(StrEnum):
    """What the grader says of a response. `UNGRADED` means that it could not tell: never wrong."""

    CORRECT = "correct"
    WRONG = "wrong"
    NO_ANSWER = "no_answer"
    UNGRADED = "ungraded"


@dataclass(frozen=True, slots=True)
class Problem:
    """A question with a checkable answer.

    Several answers that all must be given stand comma-separated in `answer`, in any order; an
    ordered tuple has its parentheses. `options` are a multiple-choice question's, in order, and
    `answer` is then the letter. `tolerance` is the absolute error a numeric answer may have.
    """

    id: str
    question: str
    answer: str
    source: str = ""
    options: tuple[str, ...] = ()
    tolerance: float | None = None


@dataclass(frozen=True, slots=True)
class Rollout:
    """One graded response; `length` is generated tokens: EOS counts, prompt and padding do not.

    `budget` is the number of tokens its prompt asked for, if it did.
    """

    problem_id: str
    text: str
    length: int
    stop: Literal["eos", "length"]
    verdict: Verdict
    extracted: str | None = None
    budget: int | None = None
