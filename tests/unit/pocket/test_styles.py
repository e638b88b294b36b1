"""Worked answers: every equation in every style is right, and so is the box."""

import random
import re

import pytest

from crt.grading.grader import grade
from crt.pocket.problems import LEVELS, Exercise, exercise
from crt.types import Verdict
from tools.pocket.styles import FIRST_WORD, STYLES, answer

EQUATION = re.compile(r"(\d+(?: [-+×] \d+)+) = (\d+)")
RUNNING = re.compile(r"= (\d+), so (\d+)\.")


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("level", LEVELS)
def test_every_equation_and_the_box_are_right(style, level):
    rng = random.Random(level)
    for _ in range(200):
        item = exercise(rng, level)
        text = answer(item, style, rng)
        for left, right in EQUATION.findall(text):
            assert eval(left.replace("×", "*")) == int(right), text
        assert grade(text, str(item.answer), thinking_opened=True).verdict is Verdict.CORRECT


def test_running_totals_add_up():
    item = Exercise(4, 0, ((46, 37),), (-21,))
    # 40·30 = 1200, + 6·30 = 1380, + 40·7 = 1660, + 6·7 = 1702
    told = answer(item, "broken", random.Random(0))
    assert [int(total) for _, total in RUNNING.findall(told)] == [1380, 1660, 1702]
    assert told.endswith("1702 - 21 = 1681.\n</think>\n\\boxed{1681}")


def test_each_style_begins_with_its_word_and_closes_its_thought():
    rng = random.Random(0)
    for style in STYLES:
        for _ in range(50):
            text = answer(exercise(rng), style, rng)
            assert re.match(r"\w+", text).group() == FIRST_WORD[style]
            assert text.count("</think>") == 1
    assert len(set(FIRST_WORD.values())) == len(STYLES)


def test_in_the_head_no_product_is_broken_down():
    item = Exercise(3, 0, ((46, 7), (12, 3)), (-21,))
    told = answer(item, "head", random.Random(0))
    assert told.startswith("In my head: 46 × 7 + 12 × 3 = 358. 358 - 21 = 337.")


def test_redundant_answers_say_more_and_know_nothing_more():
    rng = random.Random(0)
    for _ in range(100):
        item = exercise(rng)
        needed = set(EQUATION.findall(answer(item, "broken", rng)))
        told = EQUATION.findall(answer(item, "redundant", rng))
        assert needed <= set(told)
        assert len(answer(item, "redundant", rng)) > len(answer(item, "broken", rng))


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
