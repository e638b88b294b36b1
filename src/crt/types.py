"""The few things everything else is made of."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

Goal = Literal["length", "accuracy", "mixed"]


class Verdict(StrEnum):
    """What the grader says of a response. `UNGRADED` means that it could not tell: never wrong."""

    CORRECT = "correct"
    WRONG = "wrong"
    NO_ANSWER = "no_answer"
    UNGRADED = "ungraded"


@dataclass(frozen=True, slots=True)
class Problem:
    """A question with a checkable answer."""

    id: str
    question: str
    answer: str
    source: str = ""


@dataclass(frozen=True, slots=True)
class Rollout:
    """One graded response. `length` counts generated tokens: EOS is in, prompt and padding are not."""

    problem_id: str
    text: str
    length: int
    stop: Literal["eos", "length"]
    verdict: Verdict
