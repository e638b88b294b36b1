"""Problems: made from a seed, right, graded, and never in two splits."""

import random
import re

import pytest

from crt.pocket import DEFAULT, SPLITS, level_of, make_problems
from crt.pocket.problems import (
    GREATEST,
    KINDS,
    LEVEL_SHARES,
    LEVELS,
    Exercise,
    calculate,
    exercise,
    numbers,
    problem,
    put,
    split_of,
    value,
    written,
)
from crt.pocket.stories import NAMES, THINGS
from tools.pocket.styles import equations


def test_the_same_seed_gives_the_same_problems_everywhere():
    assert make_problems(DEFAULT, "test", 50, 3) == make_problems(DEFAULT, "test", 50, 3)
    assert make_problems(DEFAULT, "test", 50, 3) != make_problems(DEFAULT, "test", 50, 4)
    # A fixed value: ids must not depend on machine, process or version of Python.
    item = Exercise("packs changed", ("-", ("×", 7, 46), 21))
    assert item.key == "7 × 46 - 21"
    assert problem(item, random.Random(0)).id == "pocket-d1ad7c883a341a3e"


def test_splits_share_no_problem_whatever_its_wording():
    ids = {split: {p.id for p in make_problems(DEFAULT, split, 2000, seed=1)} for split in SPLITS}
    assert all(len(ids[split]) == 2000 for split in SPLITS)
    assert not ids["train"] & ids["validation"]
    assert not ids["train"] & ids["test"]
    assert not ids["validation"] & ids["test"]


def test_rewording_does_not_change_the_split():
    item = exercise(random.Random(0))
    told = {problem(item, random.Random(seed)).question for seed in range(20)}
    same = {problem(item, random.Random(seed)).id for seed in range(20)}
    assert len(told) > 10
    assert len(same) == 1


def test_eight_one_one():
    rng = random.Random(0)
    found = [split_of(exercise(rng).key) for _ in range(5000)]
    # standard error of the largest share: 0.6 points
    assert found.count("train") / 5000 == pytest.approx(0.8, abs=0.025)
    assert found.count("test") / 5000 == pytest.approx(0.1, abs=0.025)


def test_every_number_of_the_exercise_is_told_once():
    rng = random.Random(0)
    for _ in range(2000):
        item = exercise(rng)
        told = [int(n) for n in re.findall(r"\d+", put(item, rng).text)]
        needed = list(numbers(item.expression))
        if item.kind == "related":  # the first number is reckoned with twice
            needed.remove(needed[0])
        assert sorted(told) == sorted(needed)
        assert max(told) <= GREATEST


def test_an_expression_its_value_and_its_equations():
    expression = ("-", ("+", ("×", 46, 7), ("×", 12, 3)), 21)
    # 46 · 7 = 322, 12 · 3 = 36, 322 + 36 = 358, 358 − 21 = 337
    assert value(expression) == 337
    assert written(expression) == "46 × 7 + 12 × 3 - 21"
    assert equations(expression) == [(46, "×", 7), (12, "×", 3), (322, "+", 36), (358, "-", 21)]
    assert written(("÷", ("-", 29, 5), 4)) == "(29 - 5) ÷ 4"
    assert value(("÷", ("-", 29, 5), 4)) == 6
    assert written(("+", 5, ("-", 5, 2))) == "5 + (5 - 2)"
    with pytest.raises(ValueError, match="no whole number"):
        calculate(7, "÷", 2)


def test_nothing_falls_below_zero_and_every_division_comes_out_even():
    rng = random.Random(0)
    for _ in range(5000):
        steps = equations(exercise(rng).expression)
        assert all(calculate(*step) >= 0 for step in steps)


def test_small_and_large_numbers_and_nothing_left_all_occur():
    rng = random.Random(0)
    items = [exercise(rng) for _ in range(5000)]
    sizes = [len(str(n)) for item in items for n in numbers(item.expression)]
    assert all(sizes.count(digits) > 0.1 * len(sizes) for digits in (1, 2, 3))
    assert any(item.answer == 0 for item in items)


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_has_its_number_of_steps(kind):
    rng = random.Random(kind)
    for _ in range(50):
        item = Exercise(kind, KINDS[kind].draw(rng))
        steps = equations(item.expression)
        assert len(steps) == {1: 1, 2: 1, 3: 2}.get(item.level, len(steps))
        assert item.level == 4 or (item.level == 2) == (len(steps) == 1 and steps[0][1] in "×÷")


def test_a_hundred_names_and_many_things():
    assert len(set(NAMES)) == len(NAMES) >= 100
    assert len(set(THINGS)) == len(THINGS) >= 50
    assert all(thing.endswith("s") for thing in THINGS)


def test_levels_come_in_their_shares_and_are_told():
    found = [level_of(p) for p in make_problems(DEFAULT, "train", 2000, 0)]
    for level, share in zip(LEVELS, LEVEL_SHARES, strict=True):
        assert found.count(level) / 2000 == pytest.approx(share, abs=0.06)


def test_another_split_is_refused():
    with pytest.raises(ValueError, match="dev"):
        make_problems(DEFAULT, "dev", 1, 0)
