"""What is said again, and where the text doubts itself."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crt.reporting.repetition import Piece, pieces, redundant_share


def marked(text: str, kind: str) -> list[str]:
    return [piece.text for piece in pieces(text) if piece.kind == kind]


def test_a_sentence_said_again_is_a_repeat():
    text = "72 - 63 = 9. So it is 9. 72 - 63 = 9."
    assert pieces(text) == [Piece("", "72 - 63 = 9. So it is 9. "), Piece("repeat", "72 - 63 = 9.")]


def test_the_first_time_is_no_repeat():
    assert marked("First we add the two. Then we halve the sum.", "repeat") == []


def test_doubt_before_a_repeat_does_not_hide_it():
    text = "40 × 20 = 800. Wait, 40 × 20 = 800."
    # the second sentence is the first one with a "wait": all but the "wait" is a repeat
    assert marked(text, "doubt") == ["Wait"]
    assert marked(text, "repeat") == [", 40 × 20 = 800."]


def test_an_equation_inside_a_new_sentence():
    text = "We know 7 × 5 = 35 by heart. Adding up, $7 \\times 5 = 36$, no: 7 × 5 = 35, so 385."
    assert marked(text, "repeat") == ["7 × 5 = 35"]


def test_signs_that_mean_the_same_are_the_same():
    assert marked("Now 8·8 = 64 holds. Later 8 × 8 = 64 helps.", "repeat") == ["8 × 8 = 64"]


def test_short_words_are_no_repeats():
    assert marked("Yes. 1 + 1 = 2. Yes. So. So. Yes.", "repeat") == []


@pytest.mark.parametrize(
    "doubt",
    [
        "Wait",
        "Hmm",
        "hold on",
        "Alternatively",
        "let me double-check that",
        "Let me verify this again",
        "double check",
        "just to be sure",
        "Let me make sure",
        "Is that right",
    ],
)
def test_doubts(doubt):
    assert marked(f"It is four. {doubt}, it could be five.", "doubt") == [doubt]


@pytest.mark.parametrize(
    "text", ["The waiter came.", "She rechecks.", "an actuality", "I await it"]
)
def test_words_that_only_look_like_doubt(text):
    assert marked(text, "doubt") == []


@given(st.text(alphabet="ab1=+. \n?!Wait,×$\u202e\U0001f600", max_size=200))
def test_the_pieces_are_the_text(text):
    assert "".join(piece.text for piece in pieces(text)) == text


def test_the_share():
    # 10 characters, of which the last 4 are a repeat
    assert redundant_share([Piece("", "abcdef"), Piece("repeat", "ghij")]) == pytest.approx(0.4)
    assert redundant_share([]) == 0.0
