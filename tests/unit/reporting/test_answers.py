"""Answers: what is repeated, where the text doubts itself, and what is kept of a long one."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crt.reporting.answers import (
    DOUBT,
    HEAD,
    NEW,
    REPEAT,
    TAIL,
    Piece,
    pieces,
    redundant_share,
    shorten,
    spaced,
    visible,
)


def marked(text: str, kind: int) -> list[str]:
    return [piece.text for piece in pieces(text) if piece.kind == kind]


def test_a_sentence_said_again_is_a_repeat():
    text = "72 - 63 = 9. So it is 9. 72 - 63 = 9."
    assert pieces(text) == [Piece(NEW, "72 - 63 = 9. So it is 9. "), Piece(REPEAT, "72 - 63 = 9.")]


def test_the_first_time_is_no_repeat():
    assert marked("First we add the two. Then we halve the sum.", REPEAT) == []


def test_doubt_before_a_repeat_does_not_hide_it():
    text = "40 × 20 = 800. Wait, 40 × 20 = 800."
    # the second sentence is the first one with a "wait": all but the "wait" is a repeat
    assert marked(text, DOUBT) == ["Wait"]
    assert marked(text, REPEAT) == [", 40 × 20 = 800."]


def test_an_equation_inside_a_new_sentence():
    text = "We know 7 × 5 = 35 by heart. Adding up, $7 \\times 5 = 36$, no: 7 × 5 = 35, so 385."
    assert marked(text, REPEAT) == ["7 × 5 = 35"]


def test_signs_that_mean_the_same_are_the_same():
    assert marked("Now 8·8 = 64 holds. Later 8 × 8 = 64 helps.", REPEAT) == ["8 × 8 = 64"]


def test_short_words_are_no_repeats():
    assert marked("Yes. 1 + 1 = 2. Yes. So. So. Yes.", REPEAT) == []


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
    assert marked(f"It is four. {doubt}, it could be five.", DOUBT) == [doubt]


@pytest.mark.parametrize(
    "text", ["The waiter came.", "She rechecks.", "an actuality", "I await it"]
)
def test_words_that_only_look_like_doubt(text):
    assert marked(text, DOUBT) == []


@given(st.text(alphabet="ab1=+. \n?!Wait,×$\u202e\U0001f600", max_size=200))
def test_the_pieces_are_the_text(text):
    assert "".join(piece.text for piece in pieces(text)) == text


def test_the_share():
    # 10 characters, of which the last 4 are a repeat
    assert redundant_share([Piece(NEW, "abcdef"), Piece(REPEAT, "ghij")]) == pytest.approx(0.4)
    assert redundant_share([]) == 0.0


def test_the_middle_of_a_very_long_answer_goes():
    text = "a" * HEAD + "b" * 1000 + "c" * TAIL
    assert shorten([[0, text]]) == [[0, "a" * HEAD], [3, "1000"], [0, "c" * TAIL]]
    parts = [[0, "a" * HEAD], [1, "b" * 400], [0, "b" * 600], [2, "c" * TAIL]]
    assert shorten(parts) == [[0, "a" * HEAD], [3, "1000"], [2, "c" * TAIL]]
    assert shorten([[0, "short"]]) == [[0, "short"]]


def test_columns_are_spaced_with_both_ends():
    assert spaced(20, 9) == [0, 2, 5, 7, 10, 12, 14, 17, 19]
    assert spaced(3, 9) == [0, 1, 2]


def test_turned_text_is_spelled_out():
    assert visible("abc\u202edef\u2066") == "abc⟨U+202E⟩def⟨U+2066⟩"
    assert visible("tab\tand\nline") == "tab\tand\nline"


def test_every_hidden_character_of_unicode_is_spelled_out():
    hidden = ("Cc", "Cf", "Cs", "Co")
    every = [chr(code) for code in range(0x110000)]
    missed = [
        c
        for c in every
        if unicodedata.category(c) in hidden and c not in "\n\t" and visible(c) == c
    ]
    assert missed == []
