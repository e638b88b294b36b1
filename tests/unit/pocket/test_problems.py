"""Problems: made from a seed, right, graded, and never in two splits."""

import random
import re

import pytest

from crt.pocket.problems import (
    LEVELS,
    Exercise,
    exercise,
    level_of,
    problem,
    problems,
    split_of,
)

SPLITS = ("train", "validation", "test")


def test_the_same_seed_gives_the_same_problems_everywhere():
    assert problems("test", 50, 3) == problems("test", 50, 3)
    assert problems("test", 50, 3) != problems("test", 50, 4)
    # A fixed value: ids must not depend on machine, process or version of Python.
    assert Exercise(2, 0, ((46, 7),), (-21,)).key == "0+46*7-21"
    assert problem(Exercise(2, 0, ((46, 7),), (-21,)), random.Random(0)).id == (
        "pocket-c2ed553f6627f687"
    )


def test_splits_share_no_problem_whatever_its_wording():
    ids = {split: {p.id for p in problems(split, 2000, seed=1)} for split in SPLITS}
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
    found = [split_of(exercise(rng)) for _ in range(5000)]
    # standard error of the largest share: 0.6 points
    assert found.count("train") / 5000 == pytest.approx(0.8, abs=0.025)
    assert found.count("test") / 5000 == pytest.approx(0.1, abs=0.025)


def test_every_number_of_the_exercise_is_told_once():
    rng = random.Random(0)
    for _ in range(500):
        item = exercise(rng)
        numbers = [abs(change) for change in item.changes]
        numbers += [n for pack in item.packs for n in pack] + ([item.start] if item.start else [])
        told = re.findall(r"\d+", problem(item, rng).question)
        assert sorted(map(int, told)) == sorted(numbers)


def test_the_answer_is_what_the_story_says():
    item = Exercise(3, 0, ((46, 7), (12, 3)), (-21,))
    # 46 · 7 = 322, 12 · 3 = 36, 358 − 21 = 337
    assert item.answer == 337
    assert problem(item, random.Random(0)).answer == "337"


def test_there_is_always_something_left():
    rng = random.Random(0)
    for _ in range(3000):
        item = exercise(rng)
        have = item.start + item.packed
        for change in item.changes:
            have += change
            assert have > 0


def test_levels_come_in_their_shares_and_are_told():
    found = [level_of(p) for p in problems("train", 2000, 0)]
    for level, share in zip(LEVELS, (0.3, 0.3, 0.2, 0.2), strict=True):
        assert found.count(level) / 2000 == pytest.approx(share, abs=0.045)


def test_another_split_is_refused():
    with pytest.raises(ValueError, match="dev"):
        problems("dev", 1, 0)  # pyright: ignore[reportArgumentType]
