import pytest

from crt.data.overlap import (
    disagree,
    duplicates,
    fingerprint,
    near_overlap,
    overlap,
)
from crt.types import Problem


def problem(name, question, answer="1"):
    return Problem(name, question, answer)


@pytest.mark.parametrize(
    "other",
    [
        "What is $\\frac{1}{2}$ of x^4?",
        "what  is\n$\\frac{1}{2}$ of x^4?",
        "What is $\\dfrac{1}{2}\\,$ of $x^{4}$?",
        "What is \\(\\tfrac12\\) of x^4?",
        "What is\\quad $\\!\\frac12$ of~x^4?",
    ],
)
def test_spacing_case_and_delimiters_do_not_matter(other):
    assert fingerprint(other) == fingerprint("What is $\\frac12$ of $x^4$?")


@pytest.mark.parametrize("other", ["What is 1+3?", "What is 1-2?", "What is 12?"])
def test_a_changed_number_or_sign_does(other):
    assert fingerprint(other) != fingerprint("What is 1+2?")


def test_duplicates_come_in_groups():
    one, two, three = (
        problem("1", "What is  1+1?"),
        problem("2", "What is 2?"),
        problem("3", "what is 1+1?"),
    )
    assert duplicates([one, two, three]) == [(one, three)]
    assert duplicates([one, two]) == []


def test_overlap_pairs_a_training_problem_with_a_test_problem():
    train = [problem("t1", "What is 1+1?"), problem("t2", "What is 2+2?")]
    test = [problem("e1", "What is $2+2$?"), problem("e2", "What is 3+3?")]
    assert overlap(train, test) == [(train[1], test[0])]


def test_golds_of_one_question_may_disagree():
    half, also_half, third = (problem(a, "Q?", a) for a in ("\\frac12", "\\frac{1}{2}", "1/3"))
    assert not disagree((half, also_half))
    assert disagree((half, third))


SHELVES = "Ann has three shelves with twelve books on each of them and gives five books to Ben."


def test_another_closing_question_is_nearly_the_same():
    first = problem("1", SHELVES + " How many are left?")
    second = problem("2", SHELVES + " How many did she have at first?")
    assert near_overlap([first], [second]) == [(first, second)]
    both = [first, second]
    assert near_overlap(both, both) == [(first, second)]


def test_the_very_same_and_the_quite_different_are_not_nearly_the_same():
    first = problem("1", SHELVES)
    other = problem(
        "2", "A train leaves at noon and goes ninety miles in two hours; how fast is it?"
    )
    assert near_overlap([first], [problem("3", SHELVES.upper()), other]) == []
    assert near_overlap([first, other], [first, other]) == []


def test_a_shared_drawing_does_not_make_problems_alike():
    drawing = "[asy] draw((0,0)--(4,0)--(4,3)--(0,3)--cycle); label((2,0), S); [/asy]"
    first = problem("1", "What is the area of this shape with two equal sides? " + drawing)
    second = problem("2", "How long is the way around the garden shown in the figure? " + drawing)
    assert near_overlap([first], [second]) == []
