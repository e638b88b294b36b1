"""The answer is the last box after the thinking, and nothing else is."""

import pytest

from crt.grading.extract import extract, last_box


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"so \boxed{5}.", "5"),
        (r"<think>\boxed{4}</think> \boxed{5}", "5"),
        (r"\boxed{4}, no: \boxed{5}", "5"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),  # escaped braces do not count
        (r"\boxed{\text{a {b} c}}", r"\text{a {b} c}"),
        (r"\boxed{\boxed{5}}", r"\boxed{5}"),  # the outer one; the inner goes when it is read
        (r"\boxed{3, \boxed{5}}", r"3, \boxed{5}"),
        (r"\fbox{5}", "5"),
        (r"\boxed {5}", "5"),
        (r"\boxed 5", "5"),
        (r"$\boxed 42$.", "42"),
        ("\\boxed{\n5\n}", "5"),
        (r"{ { \boxed{5}", "5"),  # braces that are open before the box are not the box's
        (r"\boxed{ and later \boxed{5}", "5"),  # an earlier box that never closed
        (r"\boxedly \boxed{5}", "5"),
        (r"\boxed{1} and \boxed{2}", "1, 2"),  # one enumeration, one answer
        (r"$\boxed{1}$, $\boxed{2}$, or \(\boxed{3}\).", "1, 2, 3"),
        (r"\boxed{1} \quad \text{and} \quad \boxed{2}", "1, 2"),
        (r"\boxed{1} is wrong, so \boxed{2}", "2"),
        ("\\boxed{5}\n\n\\boxed{5}", "5"),
        (r"\boxed{1} or rather \boxed{2}", "2"),
        (r"\boxed{\left\{ x \right.}", r"\left\{ x \right."),
        (r"thus \boxed 2.5.", "2.5"),
    ],
)
def test_the_last_box(text: str, answer: str) -> None:
    assert extract(text).answer == answer


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("The answer is 5.", "no box"),
        (r"<think> \boxed{5}", "thinking is not closed"),
        (r"<think> \boxed{5} </think> I am done", "no box"),
        (r"<think>a</think> \boxed{5} <think> wait", "thinking is not closed"),
        (r"\boxed{5} or \boxed{6", "the last box is not closed"),  # cut off: 5 was withdrawn
        (r"\boxed{}", "the box is empty"),
        (r"\boxed{5} then \boxed{ }", "the box is empty"),
        (r"\boxed", "the box is empty"),
        ("", "no box"),
    ],
)
def test_no_answer_and_why(text: str, reason: str) -> None:
    assert extract(text) == (None, reason)


def test_a_prompt_that_opened_the_thinking_must_see_it_closed() -> None:
    # Templates of thinking models end in "<think>\n", so the response has only the closing tag.
    cut_off = r"First I try \boxed{5}"
    assert extract(cut_off, thinking_opened=True).answer is None
    assert extract(cut_off, thinking_opened=False).answer == "5"  # a model that does not think
    assert extract(r"hm </think> \boxed{5}", thinking_opened=True).answer == "5"
    assert extract(r"hm </think> \boxed{5}", thinking_opened=False).answer == "5"


@pytest.mark.parametrize(
    ("solution", "gold"),
    [
        (r"so $\boxed{7}$.", "7"),
        (r"the point is \boxed{28} or \boxed{28_9}", "28_9"),
        (r"\boxed{1}, \boxed{2}", "2"),
        (r"\boxed{1", None),
        ("It is 5.", None),
    ],
)
def test_a_gold_is_the_last_box_alone(solution: str, gold: str | None) -> None:
    assert last_box(solution, enumeration=False).answer == gold
