"""The few things everything else is made of."""

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Literal

Stop = Literal["eos", "length"]


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
    `answer` is then the letter. `tolerance` is the absolute error a numeric answer may have. Any of
    the `accepted` answers is as right as `answer`. `verifier` is how this problem is graded, if
    not as the others are.
    """

    id: str
    question: str
    answer: str
    source: str = ""
    options: tuple[str, ...] = ()
    tolerance: float | None = None
    accepted: tuple[str, ...] = ()
    verifier: str = ""

    def fields(self) -> dict[str, Any]:
        """All fields; the two last ones only if they are set, so that older hashes stay."""
        plain = asdict(self)
        return {k: v for k, v in plain.items() if v or k not in ("accepted", "verifier")}


@dataclass(frozen=True, slots=True)
class Rollout:
    """One graded response, in training, validation and evaluation. None is unknown, never 0."""

    problem_id: str
    text: str
    length: int | None  # generated tokens: EOS counts, prompt and padding do not
    stop: Stop | None
    verdict: Verdict
    extracted: str | None = None
    budget: int | None = None  # tokens that the prompt asked for, if it did
    reason: str = ""  # why the grader said so
    dataset: str = ""  # where its problem is from
    index: int = 0  # which of its problem's rollouts
    thinking: int | None = None  # of `length`, up to the end of the thinking; 0: it has none
