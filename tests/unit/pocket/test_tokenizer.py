"""The tokenizer: nothing lost, words whole, digits single, the prompt cheap and exact."""

import random

import pytest
from transformers import AutoTokenizer

from crt.data.prompts import PromptSettings, prepare, render
from crt.pocket import DEFAULT, make_problems, path
from crt.pocket.problems import exercise, put
from crt.pocket.tokenizer import INSTRUCTION, prompt
from tools.pocket.styles import STYLES, answer


@pytest.fixture(scope="module")
def words():
    return AutoTokenizer.from_pretrained(path(), local_files_only=True)


def test_nothing_is_lost_there_and_back(words):
    rng = random.Random(0)
    for _ in range(200):
        question = put(exercise(rng), rng)
        for style in STYLES:
            text = answer(question, style, rng)
            assert words.decode(words.encode(text)) == text
        asked = prompt(words, question.text)
        assert words.decode(words.encode(asked)) == asked


def test_any_plain_text_survives(words):
    text = "Why? Because: {x} #1 ~ [y] | z_0 & \"q\" 'r' <t> 100%\n\n  end"
    assert words.decode(words.encode(text)) == text


def test_words_are_whole_and_digits_single(words):
    told = words.tokenize("Tom has 46 boxes. Wait, let me double-check that. 46 × 7 = 322.")
    pieces = [token.strip() for token in told]
    assert {"Tom", "has", "boxes", "Wait", "double", "×", "="} <= set(pieces)
    assert [piece for piece in pieces if piece.isdigit()] == list("46467322")


def test_the_products_default_prompt_is_the_one_it_was_trained_on(words):
    item = make_problems(DEFAULT, "test", 1, 0)[0]
    rendered = render(item, prepare(words, PromptSettings()))
    assert rendered.text == prompt(words, item.question)
    assert rendered.text.endswith(f"\n{INSTRUCTION}<end><assistant><think>\n")
    assert rendered.opens_thinking
    assert len(words.encode(INSTRUCTION)) == 1


def test_every_role_has_its_turn(words):
    turns = [
        {"role": "system", "content": "a"},
        {"role": "user", "content": "b"},
        {"role": "assistant", "content": "c"},
    ]
    text = words.apply_chat_template(turns, tokenize=False)
    assert text == "<system>a<end><user>b<end><assistant>c<end>"
