"""Load, bad bodies, clients that leave, shutting down: nothing hangs and nothing leaks."""

import asyncio
import json
import random
import socket
import threading
import time

import httpx
import pytest

from crt.errors import ConfigError, DataError
from crt.levels.family import Family
from crt.levels.local import load_local_engine
from crt.levels.proxy import bind, serve_options
from tests.support.levels import level, plain_family, served, until

CHAT = "/v1/chat/completions"
JSON = {"Content-Type": "application/json"}
LONG = {
    "model": "endless",
    "messages": [{"role": "user", "content": "go"}],
    "temperature": 0,
    "max_tokens": 8000,
}
SHORT = {**LONG, "max_tokens": 5}


@pytest.fixture(scope="module")
def small(endless_family):
    """A server with two places and a queue of one."""
    with served(*endless_family, slots=2, queue=1, body_kb=4) as (url, service, _):
        yield url, service


def counts(service):
    return service.engine.load()["full"]


def test_the_long_answer_is_long(small, http):
    """What the other tests rest on: it does not end by itself."""
    url, _ = small
    received = http.post(url + CHAT, json={**LONG, "max_tokens": 500}).json()
    assert received["choices"][0]["finish_reason"] == "length"


def test_a_full_queue_is_429_with_a_time_to_come_back(small, http):
    url, service = small
    with (
        http.stream("POST", url + CHAT, json={**LONG, "stream": True}),
        http.stream("POST", url + CHAT, json={**LONG, "stream": True}),
        http.stream("POST", url + CHAT, json={**LONG, "stream": True}),
    ):
        until(lambda: counts(service) == (2, 1))
        received = httpx.post(url + CHAT, json=SHORT, trust_env=False)
        assert received.status_code == 429 and received.json()["error"]["code"] == "queue_full"
        assert 1 <= int(received.headers["retry-after"]) <= 60
        assert httpx.get(f"{url}/health", trust_env=False).status_code == 200
        assert 'crt_waiting{level="full"} 1.0' in httpx.get(f"{url}/metrics", trust_env=False).text
    until(lambda: counts(service) == (0, 0))


def test_all_choices_or_none(small, http):
    url, service = small
    received = http.post(url + CHAT, json={**SHORT, "n": 4})  # two places and one to wait
    assert received.status_code == 429 and counts(service) == (0, 0)
    assert len(http.post(url + CHAT, json={**SHORT, "n": 3}).json()["choices"]) == 3


def test_a_client_that_leaves_a_stream_frees_its_place(small):
    url, service = small
    with (
        httpx.Client(trust_env=False) as client,
        client.stream("POST", url + CHAT, json={**LONG, "stream": True}) as response,
    ):
        lines = response.iter_lines()
        assert next(lines).startswith("data: ")
        until(lambda: counts(service) == (1, 0))
    until(lambda: counts(service) == (0, 0))
    assert 'status="499"' in httpx.get(f"{url}/metrics", trust_env=False).text


def test_a_client_that_leaves_without_a_stream_frees_its_place(small):
    url, service = small
    host, port = url.removeprefix("http://").split(":")
    body = json.dumps(LONG)
    with socket.create_connection((host, int(port))) as plain:
        head = f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        plain.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode())
        until(lambda: counts(service) == (1, 0))
    until(lambda: counts(service) == (0, 0))


def test_one_that_waits_and_leaves_was_never_there(small, http):
    url, service = small
    with (
        http.stream("POST", url + CHAT, json={**LONG, "stream": True}),
        http.stream("POST", url + CHAT, json={**LONG, "stream": True}),
    ):
        until(lambda: counts(service) == (2, 0))
        with httpx.Client(trust_env=False) as other:
            with other.stream("POST", url + CHAT, json={**LONG, "stream": True}):
                until(lambda: counts(service) == (2, 1))
            until(lambda: counts(service) == (2, 0))
    until(lambda: counts(service) == (0, 0))


@pytest.mark.parametrize(
    ("content", "headers", "status"),
    [
        (b"x" * 5000, JSON, 413),
        (b"{" * 4000, JSON, 400),
        (b'{"model": ', JSON, 400),
        (b"[]", JSON, 400),
        (b"\xff" * 10, JSON, 400),
        (b"{}", JSON, 400),
        (b"{}", {"Content-Type": "text/plain"}, 415),
        (b"{}", {}, 415),
        (json.dumps({**LONG, "messages": "hi"}).encode(), JSON, 400),
        (json.dumps({**LONG, "model": 7}).encode(), JSON, 400),
        (json.dumps({**LONG, "model": "../../etc/passwd"}).encode(), JSON, 404),
        (json.dumps({**LONG, "max_tokens": 10**12}).encode(), JSON, 400),
    ],
)
def test_bad_bodies(small, http, content, headers, status):
    url, service = small
    received = http.post(url + CHAT, content=content, headers=headers)
    assert received.status_code == status
    error = received.json()["error"]
    assert set(error) == {"message", "type", "param", "code"} and error["message"].endswith(".")
    assert "/" not in error["message"].replace("application/json", "").replace(
        "../../etc/passwd", ""
    )
    assert "Traceback" not in received.text and counts(service) == (0, 0)


def test_a_body_without_length_is_cut_off_too(small, http):
    url, _ = small
    pieces = (b"x" * 1000 for _ in range(10))
    assert http.post(url + CHAT, content=pieces, headers=JSON).status_code == 413


def test_other_paths_and_methods(small, http):
    url, _ = small
    assert http.get(f"{url}/etc/passwd").status_code == 404
    assert http.get(f"{url}/playground/../../app.py").status_code == 404
    assert http.get(url + CHAT).json()["error"]["message"] == "Method Not Allowed."
    assert http.get(f"{url}/docs").status_code == 404


def test_only_local_names_reach_a_loopback_server(small, http):
    url, _ = small
    received = http.get(f"{url}/v1/models", headers={"Host": "evil.example"})
    assert received.status_code == 421
    for name in ("localhost", "127.0.0.1:8000", "[::1]:8000"):
        assert http.get(f"{url}/health", headers={"Host": name}).status_code == 200


def test_headers_of_the_page(small, http):
    url, _ = small
    received = http.get(f"{url}/")
    assert "default-src 'none'" in received.headers["content-security-policy"]
    assert "unsafe" not in received.headers["content-security-policy"]
    assert (
        received.headers["x-content-type-options"] == "nosniff" and "server" not in received.headers
    )


def test_the_time_limit(endless_family, http):
    with served(*endless_family, slots=2, time_limit=0.05) as (url, service, _):
        received = http.post(url + CHAT, json=LONG)
        assert received.status_code == 504 and received.json()["error"]["code"] == "time_limit"
        streamed = http.post(url + CHAT, json={**LONG, "stream": True}).text
        last = json.loads(streamed.strip().split("\n\n")[-1].removeprefix("data: "))
        assert last["error"]["code"] == "time_limit" and "[DONE]" not in streamed
        until(lambda: counts(service) == (0, 0))


def test_the_key(endless_family, http):
    key = "a-key-that-is-long-enough"
    with served(*endless_family, slots=1, api_key=key) as (url, _, _):
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Bearer {key}x"}):
            received = http.get(f"{url}/v1/models", headers=headers)
            assert received.status_code == 401 and received.headers["www-authenticate"] == "Bearer"
        assert http.get(f"{url}/metrics").status_code == 401
        assert http.post(f"{url}/playground/grade", json={}).status_code == 401
        assert http.get(f"{url}/health").status_code == http.get(f"{url}/").status_code == 200
        mine = {"Authorization": f"Bearer {key}"}
        assert http.get(f"{url}/v1/models", headers=mine).status_code == 200


def test_shutting_down_finishes_what_is_streaming(endless_family):
    output: list[str] = []
    with served(*endless_family, slots=1) as (url, service, server):
        body = {**LONG, "max_tokens": 600, "stream": True}

        def listen():
            with httpx.stream(
                "POST", url + CHAT, json=body, trust_env=False, timeout=60
            ) as received:
                output.extend(line for line in received.iter_lines() if line)

        thread = threading.Thread(target=listen)
        thread.start()
        until(lambda: counts(service) == (1, 0))
        server.should_exit = True
        thread.join(timeout=60)
    assert output[-1] == "data: [DONE]"
    assert json.loads(output[-2].removeprefix("data: "))["choices"][0]["finish_reason"] == "length"
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{url}/health", trust_env=False)


def test_a_model_that_fails_answers_with_an_error_and_goes_on(endless_family, http, caplog):
    with served(*endless_family, slots=2) as (url, service, _):
        batch = service.engine.levels["full"].batches.batch
        right, batch.model = batch.model, None  # a fault that no request can cause
        received = http.post(url + CHAT, json=SHORT)
        assert received.status_code == 500 and received.json()["error"]["type"] == "server_error"
        assert "NoneType" not in received.text and "NoneType" in caplog.text
        batch.model = right
        assert http.post(url + CHAT, json=SHORT).status_code == 200
        assert http.get(f"{url}/health").status_code == 200


def test_reached_by_others_only_with_a_key():
    with pytest.raises(ConfigError, match="can be reached by others"):
        serve_options(host="0.0.0.0")
    with pytest.raises(ConfigError, match="at least 16 characters") as caught:
        serve_options(host="0.0.0.0", api_key="short")
    assert "short" not in str(caught.value)
    assert serve_options(host="0.0.0.0", api_key="x" * 16).loopback is False


def test_a_taken_port_is_one_sentence():
    with bind(serve_options(port=0)) as bound:
        bound.listen()
        with pytest.raises(ConfigError, match="Give another --port"):
            bind(serve_options(port=bound.getsockname()[1]))


def test_weights_that_changed_are_not_served(endless_family):
    _, file = endless_family
    other = level("full", 129.0, model="model", folder=True, hash="1" * 64)
    changed = Family.model_validate(plain_family([other]))
    with pytest.raises(DataError, match="other weights"):
        load_local_engine(changed, file, slots=1, queue=1)


def test_many_at_once_each_get_their_own_answer(small, http):
    """Prompts of different length, more of them than places, all as if each were alone."""
    url, service = small
    texts = ["go", "go on", "stop", "one two three"]
    bodies = [
        {**LONG, "max_tokens": 20, "messages": [{"role": "user", "content": text}]}
        for text in texts
    ]

    def output(body):
        while True:
            received = httpx.post(url + CHAT, json=body, trust_env=False, timeout=60)
            if received.status_code != 429:
                return received.json()["choices"][0]["message"]
            time.sleep(0.01)

    alone = [output(body) for body in bodies]
    together: dict[int, object] = {}
    threads = [
        threading.Thread(target=lambda i=i: together.update({i: output(bodies[i])}))
        for i in range(len(bodies))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [together[i] for i in range(len(bodies))] == alone
    assert counts(service) == (0, 0)


def test_clients_that_come_and_go_at_any_moment(small, http):
    """Sixty clients, most of whom lose patience; then everything is free and as it was."""
    url, service = small
    before = http.post(url + CHAT, json={**LONG, "max_tokens": 30}).json()["choices"]
    choice = random.Random(0)
    plans = [(choice.choice((0.001, 0.05, 0.2, 30)), choice.random() < 0.5) for _ in range(60)]

    async def one(client, patience, stream):
        body = {**LONG, "max_tokens": 40 if patience > 1 else 4000, "stream": stream}
        try:
            received = await client.post(url + CHAT, json=body, timeout=patience)
            return received.status_code
        except httpx.HTTPError:
            return None

    async def all_of_them():
        async with httpx.AsyncClient(trust_env=False) as client:
            return await asyncio.gather(*(one(client, *plan) for plan in plans))

    ended = asyncio.run(all_of_them())
    assert set(ended) <= {200, 429, None} and 429 in ended and None in ended
    until(lambda: counts(service) == (0, 0))
    assert http.post(url + CHAT, json={**LONG, "max_tokens": 30}).json()["choices"] == before
