"""Requests of any kind to a real server: an answer or a 4xx in OpenAI's form, never a 5xx."""

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from test_files import made
from trying import COUNTS, LONG, SEED, TIMES, changed_json, odd_values

from crt.levels.family import Family
from crt.levels.requests import ChatRequest, TextRequest
from crt.pocket import path as pocket
from crt.sampling.models import weights_hash

CHAT, TEXT, GRADE = "/v1/chat/completions", "/v1/completions", "/playground/grade"
RIGHT = {
    "model": "demo", "messages": [{"role": "user", "content": "2 + 2"}], "max_tokens": 2,
    "temperature": 0.5, "top_p": 0.9, "n": 1, "stop": ["x"], "seed": 1, "stream": False,
    "verbosity": "low", "stream_options": {"include_usage": True}, "measured_prompt": False,
}  # fmt: skip
GRADED = {"text": "\\boxed{4}", "answer": "4"}
REFUSED = {400, 404, 405, 411, 413, 415, 421, 422, 429}


@pytest.fixture(scope="module")
def server() -> Iterator[Any]:
    """The pocket model, its address, and a session that knows no proxy."""
    full = made.level("full", 129.0, hash=weights_hash(pocket()))
    family = Family.model_validate(made.plain_family([full]))
    file = pocket() / "family.json"
    with (
        requests.Session() as session,
        made.served(family, file, slots=4, queue=64) as (url, service, _),
    ):
        session.trust_env = False
        yield url, session, made.make_app(service)


def described(app: Any) -> dict[str, Any]:
    """The server's own description, with what it reads from bodies by itself."""
    schema = app.openapi()
    schema.setdefault("components", {}).setdefault("schemas", {})
    for path, kind in ((CHAT, ChatRequest), (TEXT, TextRequest)):
        body = kind.model_json_schema(ref_template="#/components/schemas/{model}")
        schema["components"]["schemas"] |= body.pop("$defs", {})
        content = {"application/json": {"schema": body}}
        schema["paths"][path]["post"]["requestBody"] = {"required": True, "content": content}
    return schema


def sound(answer: requests.Response) -> None:
    """What a client can rely on, whatever it sent."""
    COUNTS["HTTP request"] += 1
    assert answer.status_code in {200, *REFUSED}, (answer.status_code, answer.text[:300])
    if answer.status_code != 200 and answer.request.method != "HEAD":
        error = answer.json()["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert "Traceback" not in answer.text


def tried_here(times: int) -> Any:
    return settings(
        max_examples=times * (TIMES if LONG else 1),
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
def test_every_route(server, mode):
    """As the description allows, and as it does not."""
    url, session, app = server
    schema = schemathesis.openapi.from_dict(described(app))
    for found in schema.get_all_operations():
        operation = found.ok()
        strategy = operation.as_strategy(generation_mode=mode)

        @seed(SEED)
        @tried_here(5)
        @given(strategy)
        def one(case: schemathesis.Case) -> None:
            if isinstance(case.body, dict) and isinstance(case.body.get("max_tokens"), int):
                case.body["max_tokens"] = min(case.body["max_tokens"], 3)
            sound(case.call(base_url=url, session=session, timeout=120))

        if mode is GenerationMode.POSITIVE or operation.body:
            one()


def test_bodies_that_are_nearly_right(server):
    url, session, _ = server

    @seed(SEED)
    @tried_here(60)
    @given(st.sampled_from([CHAT, TEXT, GRADE]), changed_json(RIGHT), changed_json(GRADED))
    def one(path: str, body: Any, graded: Any) -> None:
        if path == GRADE:
            body = graded
        elif path == TEXT:
            body["prompt"] = body.pop("messages", None)
        if isinstance(body.get("max_tokens"), int) or "max_tokens" not in body:
            body["max_tokens"] = min(3, body.get("max_tokens", 3))
        try:
            content = json.dumps(body).encode("utf-8", "surrogatepass")
        except ValueError:  # an integer too long to be written
            return
        headers = {"Content-Type": "application/json"}
        sound(session.post(url + path, data=content, headers=headers, timeout=120))

    one()


def test_an_empty_message_is_answered(server):
    url, session, _ = server
    turns = [{"role": "user", "content": ""}]
    answer = session.post(url + CHAT, json={**RIGHT, "messages": turns}, timeout=120)
    sound(answer)
    assert answer.status_code == 200


def test_anything_at_all(server):
    url, session, _ = server
    names = st.sampled_from(["Authorization", "Content-Type", "Accept", "X-Forwarded-For", "Range"])
    letters = st.text("abc/%.?&=\\\"';<>{}0123\u00e9", max_size=20)

    @seed(SEED)
    @tried_here(40)
    @given(
        st.sampled_from(["GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD"]),
        st.one_of(st.sampled_from([CHAT, TEXT, GRADE, "/v1/models", "/health", "/"]), letters),
        st.binary(max_size=100),
        st.dictionaries(names, st.text("abcXYZ 0123/;=*", max_size=20).map(str.strip), max_size=2),
        odd_values,
    )
    def one(method: str, path: str, body: bytes, headers: dict[str, str], query: Any) -> None:
        at = f"{url}/{path.lstrip('/')}"
        with session.request(
            method, at, data=body, headers=headers, params={"q": str(query)}, timeout=120
        ) as answer:
            sound(answer)

    one()


def test_it_answers_as_before(server):
    """After all that, and from several threads at once."""
    url, session, _ = server
    body = {**RIGHT, "temperature": 0, "max_tokens": 5}
    said: list[Any] = []

    def ask() -> None:
        said.append(session.post(url + CHAT, json=body, timeout=120).json()["choices"])

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert said == [said[0]] * 4
