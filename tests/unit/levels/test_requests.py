"""What is not understood is refused with the field's name, never ignored."""

from functools import partial

import pytest

from crt.data.prompts import PromptSettings
from crt.levels.requests import (
    ApiError,
    ChatRequest,
    TextRequest,
    apply_measured_prompt,
    parse_body,
    parse_request,
)
from crt.pocket import DEFAULT, read_question

HELLO = {"model": "demo", "messages": [{"role": "user", "content": "hello"}]}


@pytest.mark.parametrize(
    ("extra", "says"),
    [
        ({"temprature": 1}, "Did you mean `temperature`?"),
        ({"temperature": 3}, "less than or equal to 2"),
        ({"temperature": "1"}, "valid number"),
        ({"top_p": 0}, "greater than 0"),
        ({"n": 0}, "'n'"),
        ({"n": 1000}, "'n'"),
        ({"max_tokens": 0}, "'max_tokens'"),
        ({"stop": [""]}, "'stop"),
        ({"messages": []}, "'messages'"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "'messages.0.role'"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
            "messages.0.content",
        ),
        ({"logprobs": True}, "logprobs is not supported"),
        ({"tools": [{"type": "function"}]}, "tools is not supported"),
        ({"response_format": {"type": "json_object"}}, "response_format is not supported"),
        ({"frequency_penalty": 0.5}, "frequency_penalty is not supported"),
        ({"chat_template_kwargs": {"tools": 1}}, "chat_template_kwargs.tools"),
    ],
)
def test_refused(extra, says):
    with pytest.raises(ApiError, match=says.replace("?", r"\?")) as caught:
        parse_request(ChatRequest, {**HELLO, **extra})
    assert caught.value.status_code == 400 and caught.value.error["param"]


def test_what_clients_send_and_means_nothing_here():
    extra = {"user": "me", "logprobs": False, "presence_penalty": 0, "tools": None, "seed": None}
    assert parse_request(ChatRequest, {**HELLO, **extra}).seed is None


def test_text_in_parts():
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    request = parse_request(
        ChatRequest, {**HELLO, "messages": [{"role": "user", "content": parts}]}
    )
    assert request.messages[0].text == "ab"


def test_the_newer_name_of_the_cap_wins():
    request = parse_request(ChatRequest, {**HELLO, "max_tokens": 5, "max_completion_tokens": 7})
    assert request.limit == 7


@pytest.mark.parametrize(
    ("prompt", "prompts"),
    [("a", ["a"]), (["a", "b"], ["a", "b"]), ([1, 2], [[1, 2]]), ([[1], [2]], [[1], [2]])],
)
def test_prompts_as_text_and_as_tokens(prompt, prompts):
    assert parse_request(TextRequest, {"model": "demo", "prompt": prompt}).prompts == prompts


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b'"x"', b"[" * 100_000, b'{"a": NaN}', b"\xff\xfe", b"{}}"]
)
def test_bodies_that_are_no_object(body):
    with pytest.raises(ApiError) as caught:
        parse_body(body)
    assert caught.value.status_code == 400 and caught.value.error["code"] == "invalid_json"


SETTINGS = PromptSettings(instruction="Solve: {question}\nBox the answer.")
WRAPPED = "Solve: 1 + 1?\nBox the answer."
as_it_stands = partial(read_question, None)


def user_messages(*texts):
    return {"messages": [{"role": "user", "content": text} for text in texts]}


@pytest.mark.parametrize("text", ["1 + 1?", WRAPPED])
def test_a_single_question_is_put_in_the_measured_prompt_once(text):
    wrapped = apply_measured_prompt(user_messages(text), SETTINGS, as_it_stands, explicit=False)
    assert wrapped is not None
    body, reading = wrapped
    assert body == user_messages(WRAPPED)
    assert reading.question == "1 + 1?" and not reading.meant


def test_a_question_to_the_pocket_model_is_put_in_its_words():
    read = partial(read_question, DEFAULT)
    body = user_messages("Wendy has 9 kittens. She finds 3 more. How many kittens does she have?")
    wrapped = apply_measured_prompt(body, SETTINGS, read, explicit=False)
    assert wrapped is not None
    asked, reading = wrapped
    assert asked["messages"][0]["content"] == f"Solve: {reading.question}\nBox the answer."
    assert "kittens" not in reading.question
    assert reading.restore(reading.question).startswith("Wendy has 9 kittens. ")
    with pytest.raises(ApiError, match="outside the pocket model's language") as refused:
        apply_measured_prompt(user_messages("Why is the sky blue?"), SETTINGS, read, explicit=False)
    assert refused.value.status_code == 400 and refused.value.error["code"] == "outside_language"


@pytest.mark.parametrize(
    "body",
    [
        user_messages("a", "b"),
        {"messages": [{"role": "system", "content": "be brief"}]},
        {"messages": "hi"},
        {},
    ],
)
def test_anything_else_stays_as_it_is_unless_the_client_insists(body):
    assert apply_measured_prompt(body, SETTINGS, as_it_stands, explicit=False) is None
    with pytest.raises(ApiError, match="send one user message"):
        apply_measured_prompt(body, SETTINGS, as_it_stands, explicit=True)
