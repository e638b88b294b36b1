"""Worked answers: every equation in every style is right, and so is the box."""

import random
import re

import pytest

from crt.grading.grader import grade
from crt.pocket.problems import LEVELS, Exercise, exercise, put
from crt.types import Verdict
from tools.pocket.styles import FIRST_WORD, STYLES, answer, broken_down

EQUATION = re.compile(r"(\(?\d+(?: [-+×÷] \(?\d+\)?)+) = (\d+)")


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("level", LEVELS)
def test_every_equation_and_the_box_are_right(style, level):
    rng = random.Random(level)
    for _ in range(200):
        item = exercise(rng, level)
        text = answer(put(item, rng), style, rng)
        for left, right in EQUATION.findall(text):
            assert eval(left.replace("×", "*").replace("÷", "/")) == int(right), text
        assert grade(text, str(item.answer), thinking_opened=True).verdict is Verdict.CORRECT


@pytest.mark.parametrize(
    ("step", "told"),
    [
        # 8 + 7 = 15, carry 1: 5 + 2 + 1 = 8
        ((58, "+", 27), "58 + 27: 8 + 7 = 15, 5 + 2 + 1 = 8, so 85."),
        # 0 − 8 needs 10, and so does 0 − 2 − 1; 3 − 0 − 1 = 2
        ((300, "-", 28), "300 - 28: 10 - 8 = 2, 10 - 2 - 1 = 7, 3 - 0 - 1 = 2, so 272."),
        # 40·30 = 1200, + 6·30 = 1380, + 40·7 = 1660, + 6·7 = 1702
        (
            (46, "×", 37),
            "46 × 37: 40 × 30 = 1200, 6 × 30 = 180, so 1380, 40 × 7 = 280, so 1660, "
            "6 × 7 = 42, so 1702.",
        ),
        ((84, "÷", 6), "84 ÷ 6: 6 × 10 = 60, 84 - 60 = 24, 6 × 4 = 24, so 14."),
        ((7, "+", 5), "7 + 5 = 12."),
        ((24, "÷", 6), "24 ÷ 6 = 4."),
    ],
)
def test_one_operation_broken_down(step, told):
    assert broken_down(step) == told


def test_each_style_begins_with_its_word_and_closes_its_thought():
    rng = random.Random(0)
    for style in STYLES:
        for _ in range(50):
            text = answer(put(exercise(rng), rng), style, rng)
            assert re.match(r"\w+", text).group() == FIRST_WORD[style]
            assert text.count("</think>") == 1
    assert len(set(FIRST_WORD.values())) == len(STYLES)


def test_from_all_in_one_go_to_one_equation_a_step():
    question = put(Exercise("packs changed", ("-", ("×", 7, 46), 21)), random.Random(0))
    told = {style: answer(question, style, random.Random(0)) for style in STYLES}
    assert told["head"].startswith("Quickly: 7 × 46 - 21 = 301.\n")
    assert told["steps"].startswith("Steps: 7 × 46 = 322. 322 - 21 = 301.\n")
    assert told["guess"] == "Guess.\n</think>\n\\boxed{301}"
    lengths = [len(told[style]) for style in STYLES]
    assert lengths == sorted(lengths)


def test_redundant_answers_say_more_and_know_nothing_more():
    rng = random.Random(0)
    for _ in range(100):
        question = put(exercise(rng), rng)
        needed = set(EQUATION.findall(answer(question, "broken", rng)))
        told = EQUATION.findall(answer(question, "redundant", rng))
        assert needed <= set(told)
        assert len(answer(question, "redundant", rng)) > len(answer(question, "broken", rng))


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("Steps. 1\n</think>\n\\boxed{7}", Verdict.CORRECT),
        ("\\boxed{7}\n</think>\n\\boxed{8}", Verdict.WRONG),
        ("\\boxed{7}", Verdict.NO_ANSWER),  # never closed its thought
        ("</think>\n\\boxed{8} no, \\boxed{7}", Verdict.CORRECT),  # the last box counts
    ],
)
def test_the_last_box_after_the_thought_counts(text, verdict):
    assert grade(text, "7", thinking_opened=True).verdict is verdict
