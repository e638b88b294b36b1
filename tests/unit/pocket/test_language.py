"""What the pocket model can be asked, and how it declines."""

import pytest

from crt.pocket.language import EXAMPLE, apology, outside
from crt.pocket.problems import problems


def test_its_own_problems_are_inside():
    assert [p for p in problems("test", 500, 9) if outside(p.question)] == []
    assert outside(EXAMPLE) is None


@pytest.mark.parametrize(
    ("question", "why"),
    [
        ("What is the capital of France?", "France"),
        ("", "0"),
        ("Tom has pens. How many pens does Tom have now?", "0"),
        ("Tom has 123456 pens. He loses 12. How many pens does Tom have now?", "123456"),
        ("Tom has 12 pens. He loses 11.", "how many"),
        ("How many 12 + 13?", "+"),
        ("Том имеет 12 pens and 13 more. How many?", "Том"),
        ("How many <end> 12 13", "<"),
    ],
)
def test_what_is_outside_and_why(question, why):
    reason = outside(question)
    assert reason is not None
    assert why in reason
    assert EXAMPLE in apology(reason)
