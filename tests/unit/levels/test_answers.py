"""vLLM's answers, read from the tokens it returns, are what the local engine says."""

import pytest

from crt.levels.answers import AnswerReader, Vocabulary, WordRestorer
from crt.pocket import path
from crt.pocket.language import Reading
from crt.sampling.models import load_tokenizer

THOUGHT, SAID = "40 × 7 = 280. So it is 280.", "The answer is \\boxed{280}."


@pytest.fixture(scope="module")
def vocabulary():
    tokenizer = load_tokenizer(path())
    return Vocabulary(tokenizer._tokenizer, frozenset({tokenizer.eos_token_id}))


def ids(vocabulary, text):
    return vocabulary.tokenizer.encode(text, add_special_tokens=False).ids


def response(vocabulary):
    """Thinking that the prompt opened, the answer, and the token that ends it."""
    return [*ids(vocabulary, f"{THOUGHT}\n</think>\n{SAID}"), *vocabulary.eos_token_ids]


def whole(vocabulary, tokens, prompt="<assistant><think>\n", **usage):
    """An answer as vLLM 0.28 sends it, with `return_token_ids`."""
    message = {"role": "assistant", "content": "all in one", "refusal": None, "reasoning": None}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
    usage = {"prompt_tokens": 9, "completion_tokens": len(tokens), **usage}
    return {
        "id": "chatcmpl-1",
        "choices": [{**choice, "token_ids": tokens}],
        "usage": {**usage, "completion_tokens_details": None},
        "prompt_token_ids": ids(vocabulary, prompt),
    }


def test_thinking_apart_and_counted(vocabulary):
    tokens = response(vocabulary)
    received = AnswerReader(vocabulary, ()).read(whole(vocabulary, tokens))
    message = received["choices"][0]["message"]
    assert message["content"] == SAID and message["reasoning_content"] == THOUGHT
    thought = tokens.index(ids(vocabulary, "</think>")[0]) + 1  # with the mark that closes it
    assert received["usage"]["completion_tokens_details"] == {"reasoning_tokens": thought}
    assert "prompt_token_ids" not in received and "token_ids" not in received["choices"][0]


def test_a_prompt_that_opens_no_thinking_leaves_an_answer(vocabulary):
    tokens = [*ids(vocabulary, SAID), *vocabulary.eos_token_ids]
    received = AnswerReader(vocabulary, ()).read(whole(vocabulary, tokens, prompt="<assistant>"))
    assert received["choices"][0]["message"]["content"] == SAID
    assert received["usage"]["completion_tokens_details"] == {"reasoning_tokens": 0}
    closed = whole(vocabulary, tokens, prompt="<assistant><think>\n</think>\n")
    assert AnswerReader(vocabulary, ()).read(closed)["choices"][0]["message"]["content"] == SAID


def test_a_stop_ends_the_answer_and_not_the_thinking(vocabulary):
    received = AnswerReader(vocabulary, ("280",)).read(whole(vocabulary, response(vocabulary)))
    message = received["choices"][0]["message"]
    assert message["reasoning_content"] == THOUGHT  # in which it stands twice
    assert message["content"] == "The answer is \\boxed{"


def streamed(vocabulary, tokens, size):
    """The same in chunks of so many tokens, as vLLM sends them."""
    role = {"role": "assistant", "content": ""}
    opening = {"choices": [{"index": 0, "delta": role, "finish_reason": None}]}
    yield {**opening, "prompt_token_ids": ids(vocabulary, "<assistant><think>\n")}
    for at in range(0, len(tokens), size):
        finish = "stop" if at + size >= len(tokens) else None
        choice = {"index": 0, "delta": {"content": "?"}, "finish_reason": finish}
        yield {"choices": [{**choice, "token_ids": tokens[at : at + size]}]}
    yield {"choices": [], "usage": {"completion_tokens": len(tokens)}}


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_chunks_of_any_size_say_the_same(vocabulary, size):
    tokens, splitter = response(vocabulary), AnswerReader(vocabulary, ())
    chunks = [
        received for item in streamed(vocabulary, tokens, size) if (received := splitter.read(item))
    ]
    deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
    assert deltas[0] == {"role": "assistant", "content": ""}
    assert "".join(item.get("reasoning_content", "") for item in deltas) == THOUGHT
    assert "".join(item.get("content", "") for item in deltas) == SAID
    assert chunks[-2]["choices"][0]["finish_reason"] == "stop"
    counted = chunks[-1]["usage"]["completion_tokens_details"]["reasoning_tokens"]
    assert counted == tokens.index(ids(vocabulary, "</think>")[0]) + 1


def test_a_server_that_returns_no_tokens_is_passed_on(vocabulary):
    received = whole(vocabulary, response(vocabulary))
    received["choices"][0] |= {"token_ids": None}
    message = AnswerReader(vocabulary, ()).read(received)["choices"][0]["message"]
    assert message["content"] == "all in one"


def test_after_a_stop_nothing_more_is_told(vocabulary):
    splitter = AnswerReader(vocabulary, ("answer",))
    chunks = [
        received
        for item in streamed(vocabulary, response(vocabulary), 1)
        if (received := splitter.read(item))
    ]
    ends = [c["finish_reason"] for chunk in chunks for c in chunk["choices"] if c["finish_reason"]]
    assert ends == ["stop"]
    output = "".join(c["delta"].get("content", "") for chunk in chunks for c in chunk["choices"])
    assert output == "The "
    assert chunks[-1]["usage"]["completion_tokens"] == len(response(vocabulary))


READING = Reading("Mia has 9 cards.", {"Mia": "Wendy", "cards": "kittens"})


def chunk(end=None, index=0, **delta):
    return {"choices": [{"index": index, "delta": delta, "finish_reason": end}]}


@pytest.mark.parametrize("field", ["content", "reasoning_content", "reasoning"])
@pytest.mark.parametrize("pieces", [["Mi", "a has 9 car", "ds"], ["Mia", " has", " 9", " cards"]])
def test_words_are_put_back_however_they_come(field, pieces):
    restorer = WordRestorer(READING.restore)
    chunks = [chunk(**{field: piece}) for piece in pieces] + [chunk("stop")]
    read = [restorer.read(each)["choices"][0]["delta"].get(field, "") for each in chunks]
    assert "".join(read) == "Wendy has 9 kittens"
    assert read[-2] != "" or read[-1] == "kittens"  # what no space ends, the end does


def test_a_thought_ends_where_the_answer_begins_and_choices_are_apart():
    restorer = WordRestorer(READING.restore)
    assert restorer.read(chunk(reasoning_content="So Mia"))["choices"][0]["delta"] == {
        "reasoning_content": "So "
    }
    assert restorer.read(chunk(index=1, content="12 cards"))["choices"][0]["delta"] == {
        "content": "12 "
    }
    assert restorer.read(chunk(content="12 "))["choices"][0]["delta"] == {
        "reasoning_content": "Wendy",
        "content": "12 ",
    }
    assert restorer.read(chunk("stop", index=1))["choices"][0]["delta"] == {"content": "kittens"}


def test_words_are_put_back_in_a_whole_answer_and_nothing_else_changes():
    message = {"role": "assistant", "content": "12 cards", "reasoning_content": None}
    answer = {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": {}}
    read = WordRestorer(READING.restore).read(answer)
    assert read["choices"][0]["message"] == {**message, "content": "12 kittens"}
    assert read["usage"] == {}
    usage = {"choices": [], "usage": {"completion_tokens": 3}}
    assert WordRestorer(READING.restore).read(usage) == usage
