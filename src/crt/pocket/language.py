"""Which questions the pocket model can be asked at all."""

import random
import re
from functools import cache

from crt.pocket.problems import exercise, problem

NUMBERS = range(2, 100)
FEWEST, MOST = 2, 5  # numbers in a problem
EXAMPLE = "Tom has 7 boxes of 46 pens. He gives 21 away. How many pens does Tom have now?"


@cache
def words() -> frozenset[str]:
    """Every word of the problems, in lower case, gathered from the problems themselves."""
    rng = random.Random(0)
    questions = " ".join(problem(exercise(rng), rng).question for _ in range(1000))
    return frozenset(re.findall(r"[a-z]+", questions.lower()))


def outside(question: str) -> str | None:
    """Why a question is outside the model's language, or None if it is inside."""
    strange = [w for w in re.findall(r"[^\W\d_]+", question) if w.lower() not in words()]
    if strange:
        named = ", ".join(f"“{word}”" for word in dict.fromkeys(strange[:5]))
        return f"it does not know {named}"
    signs = re.sub(r"[\w\s.,?]", "", question)
    if signs:
        return f"it does not know the sign “{signs[0]}”"
    numbers = [int(n) for n in re.findall(r"\d+", question)]
    if not FEWEST <= len(numbers) <= MOST:
        return f"it needs {FEWEST} to {MOST} numbers, and there are {len(numbers)}"
    if large := [n for n in numbers if n not in NUMBERS]:
        return f"it reckons with numbers from {NUMBERS[0]} to {NUMBERS[-1]}, not with {large[0]}"
    if "how many" not in question.lower():
        return "it is not asked “how many”"
    return None


def apology(reason: str) -> str:
    """A polite sentence with an example of what can be asked."""
    return (
        f"Sorry, this is outside the pocket model's language: {reason}. It is a miniature that "
        f"solves word problems such as: {EXAMPLE}"
    )
