"""What the pocket model can be asked, how it is put in the model's words, and how it declines."""

from pathlib import Path

import pytest

from crt.pocket import DEFAULT, make_problems
from crt.pocket.language import EXAMPLE, Outside, apology, read

EVERYDAY = Path(__file__).parent / "everyday"


def outside(question: str) -> str | None:
    """Why a question is outside the model's language, or None if it is inside."""
    try:
        read(question)
    except Outside as reason:
        return str(reason)
    return None


def rows(name: str) -> list[str]:
    return (EVERYDAY / f"{name}.tsv").read_text(encoding="utf-8").splitlines()


def test_its_own_problems_are_inside_as_they_stand():
    for problem in make_problems(DEFAULT, "test", 500, 9):
        assert read(problem.question).question == problem.question


def test_the_example_is_inside():
    assert outside(EXAMPLE) is None


@pytest.mark.parametrize(
    ("question", "words"),
    [
        (
            "Sarah baked 12 cupcakes. She ate 4 of them. How many cupcakes are left?",
            "Sarah has 12 cards. She eats 4. How many cards does Sarah have left?",
        ),
        (
            "Each spider has 8 legs. How many legs do 5 spiders have?",
            "There are 5 boxes of 8 cards. How many cards are there in all?",
        ),
        (
            "Peter had $20 and spent $7 on lunch. How much money does he have left?",
            "Peter has 20 dollars. He spends 7. How many dollars does Peter have left?",
        ),
        (
            "If a book costs 3 dollars, how much will 4 books cost?",
            "Tom buys 4 cards for 3 dollars each. How many dollars does Tom pay?",
        ),
        (
            "I have twenty-five marbles. My sister gives me 7. How many marbles do I have?",
            "Tom has 25 marbles. Ann gives him 7 more. How many marbles does Tom have now?",
        ),
        ("what's 27 plus 15", "What is 27 + 15?"),
        ("Subtract 6 from 20.", "What is 20 - 6?"),
        ("6 times 25", "What is 6 × 25?"),
    ],
)
def test_a_question_in_the_models_words(question, words):
    assert read(question).question == words


def test_the_answer_is_given_back_in_the_words_of_the_question():
    reading = read("Wendy baked 12 muffins. She ate 5. How many muffins are left?")
    assert reading.restore("So this is about Mia and some muffins.") == (
        "So this is about Wendy and some muffins."
    )
    reading = read("I have 9 kittens and find 3 more. How many kittens do I have?")
    assert reading.restore("Tom and 12 cards, in the cardsbox.") == (
        "you and 12 kittens, in the cardsbox."
    )
    reading = read("A ticket costs €5. How much do 3 tickets cost?")
    assert reading.restore("15 dollars.") == "15 euros."


def test_most_everyday_questions_are_read():
    for name in ("tune", "final"):
        asked = [row.split("\t")[1] for row in rows(name)]
        assert sum(outside(question) is None for question in asked) >= 0.8 * len(asked)


@pytest.mark.parametrize("question", rows("refuse"))
def test_what_it_cannot_do_is_refused_in_one_sentence(question):
    reason = outside(question)
    assert reason is not None
    sentence = apology(reason)
    assert EXAMPLE in sentence
    assert "\n" not in sentence


@pytest.mark.parametrize(
    ("question", "why"),
    [
        ("Why is the sky blue?", "how many"),
        ("", "no question"),
        ("Tom has 1234 pens. He loses 12. How many pens does Tom have?", "not 1234"),
        ("Tom has 12 pens. He loses 13. How many pens are left?", "below zero"),
        ("Tom has 12 pens. How many pens does Tom have?", "nothing in it to reckon"),
        ("Tom eats half of his 12 nuts. How many nuts are left?", "fractions"),
        ("What is 10% of 50?", "percentages"),
        ("What is 7 ÷ 2?", "come out even"),
        ("What is 3 + 4 + 5 + 6?", "one operation"),
        ("What is 123 × 456?", "multiply 123 by 456"),
        ("What is 99 ÷ 33?", "divides by 2 to 10"),
        ("Tom zorks 5 pens. He zorks 3. How many pens are left?", "all the numbers"),
        ("Том имеет 12 pens and 13 more. How many?", "numbers"),
        ("How many <end> 12 13", "<"),
        ("Ann has 5 nuts and 3 figs. She eats 2 figs. How many nuts are left?", "fig"),
        ("Tom has 5 nuts. Ann has 3 nuts. How many nuts does Ann have?", "two people"),
        ("Tom has 5 nuts. He buys 3 more. How many nuts did he have at first?", "this form"),
        ("Tom has 5 nuts. How many pens? How many nuts?", "one question"),
        ("Ann has 5 dollars. Tom has 3 times as many. How many dollars has Tom?", "this form"),
    ],
)
def test_what_is_outside_and_why(question, why):
    with pytest.raises(Outside, match=why.replace("(", r"\(").replace("?", r"\?")):
        read(question)


def test_no_question_makes_it_fail():
    words = "Tom Ann has 5 12 0 3 . ? , and each of in how many gives her left 7 sells the old than"
    pieces = words.split()
    for number in range(3000):
        chosen = [
            pieces[(number * 7919 + k * k * (number % 13 + 1)) % len(pieces)] for k in range(9)
        ]
        outside(" ".join(chosen) + " How many does Tom have?")
