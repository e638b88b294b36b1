"""The worlds of sums: problems, splits, questions outside, and worked answers that are right."""

import random
import re
from itertools import pairwise

import pytest

from crt.grading.grader import grade
from crt.pocket import make_problems
from crt.pocket.sums import CHECKS, CHUNKS, Sum, exercise, outside, problem
from crt.types import Verdict
from tools.pocket import checks, chunks
from tools.pocket.sums import encode, text_of
from tools.pocket.vocabulary import train, wrap
from tools.pocket.worlds import World

WORLDS = (CHUNKS, CHECKS)
COURSES = (chunks.COURSE, checks.COURSE)
EQUATION = re.compile(r"(\d+(?: \+ \d+)+) = (\d+)")


@pytest.mark.parametrize("world", WORLDS, ids=lambda world: world.name)
def test_splits_share_no_problem_and_levels_are_as_told(world):
    ids = {
        split: {p.id for p in make_problems(world.name, split, 300, 1)}
        for split in ("train", "test")
    }
    assert len(ids["train"]) == len(ids["test"]) == 300
    assert not ids["train"] & ids["test"]
    rng = random.Random(0)
    for number, level in enumerate(world.levels, 1):
        for _ in range(50):
            terms = exercise(world, rng, number).terms
            assert level.count[0] <= len(terms) <= level.count[1]
            assert all(level.size[0] <= term <= level.size[1] for term in terms)


def test_a_problem_is_the_same_on_every_machine():
    made = problem(CHUNKS, Sum(1, (7, 8, 3)), random.Random(0))
    assert (made.answer, made.source) == ("18", "pocket:chunks/level-1")
    assert "7 + 8 + 3" in made.question
    assert made.id == "pocket-chunks-81e85bec6dab5936"
    assert make_problems(CHUNKS.name, "test", 20, 3) == make_problems(CHUNKS.name, "test", 20, 3)


def test_another_split_is_refused():
    with pytest.raises(ValueError, match="dev"):
        make_problems(CHUNKS.name, "dev", 1, 0)


@pytest.mark.parametrize("world", WORLDS, ids=lambda world: world.name)
def test_its_own_problems_are_inside(world):
    assert [
        p for p in make_problems(world.name, "test", 200, 9) if outside(world, p.question)
    ] == []


@pytest.mark.parametrize(
    "question",
    ["What is 7 + 8?", "What is 7 - 3 + 2?", "What is 7 + 8 + 10?", "Why?", "What is 7 8 3?", ""],
)
def test_what_is_outside_gets_an_example(question):
    assert "For example: What is " in str(outside(CHUNKS, question))


@pytest.mark.parametrize("course", COURSES, ids=lambda course: course.trained.name)
def test_every_answer_is_right_and_every_wrong_equation_is_marked(course):
    rng = random.Random(0)
    for style in course.styles:
        for level in (1, 2, 3, 4):
            for _ in range(40):
                item = exercise(course.trained, rng, level)
                pieces = course.answer(item, style, rng)
                answer = str(item.answer)
                verdict = grade(text_of(pieces), answer, thinking_opened=True).verdict
                assert verdict is Verdict.CORRECT
                for (left, _), (right, kind) in pairwise(pieces):
                    if kind != "text":
                        numbers = re.findall(r"\d+", left)
                        assert (sum(map(int, numbers)) == int(right)) == (kind == "result")


def test_chunks_write_the_total_after_so_many_numbers():
    item = Sum(2, (7, 8, 3, 6, 5))
    texts = {
        style: text_of(chunks.answer(item, style, random.Random(0))) for style in chunks.STYLES
    }
    assert texts["one"].startswith("One at a time: 7 + 8 = 15. 15 + 3 = 18. 18 + 6 = 24. 24 + 5")
    assert texts["two"].startswith("Two at a time: 7 + 8 + 3 = 18. 18 + 6 + 5 = 29.\n")
    assert texts["three"].startswith("Three at a time: 7 + 8 + 3 + 6 = 24. 24 + 5 = 29.\n")
    assert texts["all"].startswith("All at once: 7 + 8 + 3 + 6 + 5 = 29.\n")


def test_what_the_verbose_style_says_besides_is_of_no_use():
    rng = random.Random(0)
    for _ in range(40):
        item = exercise(CHUNKS, rng, 4)
        plain, verbose = (text_of(chunks.answer(item, style, rng)) for style in ("one", "verbose"))
        assert EQUATION.findall(verbose) == EQUATION.findall(plain)
        assert len(verbose) > 1.7 * len(plain)


def test_a_check_adds_in_another_order_and_the_majority_counts(monkeypatch):
    part = (27, 4, 5, 1)
    monkeypatch.setattr(checks, "FIRST_SLIPS", 0.0)
    monkeypatch.setattr(checks, "SECOND_SLIPS", 0.0)
    text = text_of(checks.checked(part, random.Random(0), wordy=False))
    assert text == "27 + 4 + 5 + 1 = 37. Again: 5 + 27 + 4 + 1 = 37. 37 and 37: the same."
    monkeypatch.setattr(checks, "FIRST_SLIPS", 1.0)
    text = text_of(checks.checked(part, random.Random(0), wordy=False))
    assert text.endswith(" and 37: not the same. Once more: 1 + 27 + 4 + 5 = 37. So 37.")


def test_parts_go_on_from_the_total_before():
    # 1 + 7 + 7 + 1 + 8 = 24
    assert checks.parts(Sum(4, (1, 7, 7, 1, 8, 5, 4, 2))) == [(1, 7, 7, 1, 8), (24, 5, 4, 2)]


def test_a_slip_is_seen_but_never_learned():
    tokenizer = wrap(train(checks.WORLD.corpus(50, 0), 300))
    pieces = [("7 + 8 =", "text"), (" 16", "slip"), (", 16 + 3 =", "text"), (" 19", "result")]
    tokens, learned = encode(tokenizer, pieces)
    left_out = [tokenizer.decode([t]) for t, want in zip(tokens, learned, strict=True) if not want]
    assert left_out == [" 1", "6"]
    tokens, learned = encode(tokenizer, pieces, learned=("result",))
    kept = [tokenizer.decode([t]) for t, want in zip(tokens, learned, strict=True) if want]
    assert kept == [" 1", "9"]


@pytest.mark.parametrize("world", [chunks.WORLD, checks.WORLD], ids=lambda world: world.name)
def test_the_first_word_tells_the_style(world: World):
    course = {c.trained.name: c for c in COURSES}[world.name]
    words = [style.first_word for style in world.styles.values()]
    assert len(set(words)) == len(words)
    rng = random.Random(0)
    for name, style in world.styles.items():
        text = text_of(course.answer(course.exercise(rng), name, rng))
        assert re.match(r"\w+", text).group() == style.first_word


@pytest.mark.parametrize("world", [chunks.WORLD, checks.WORLD], ids=lambda world: world.name)
def test_a_batch_has_something_to_learn_in_every_row(world: World):
    tokenizer = wrap(train(world.corpus(300, 0), 512))
    for progress in (0.0, 0.5, 1.0):
        batch = world.batch(tokenizer, progress, random.Random(0))
        assert all(any(learned) and len(tokens) < 512 for tokens, learned in batch)
        assert [len(tokens) for tokens, _ in batch] == sorted(len(t) for t, _ in batch)


def test_no_number_comes_twice_in_a_sum_of_checks():
    rng = random.Random(0)
    drawn = [exercise(CHECKS, rng).terms for _ in range(200)]
    assert all(len(set(terms)) == len(terms) for terms in drawn)
    assert outside(CHECKS, "What is 1 + 2 + 3 + 4?") is None
    assert "different numbers" in (outside(CHECKS, "What is 1 + 2 + 3 + 1?") or "")
