"""The dial in front of another server, which is our own: what comes back is what it says."""

import json
import socket
import threading

import httpx
import openai
import pytest

from crt.errors import ConfigError, EngineError
from crt.levels.proxy import Service, prepare_call
from crt.levels.requests import ApiError
from crt.levels.upstream import (
    UpstreamEngine,
    UpstreamModel,
    _name_reasoning,
    _stops,
    find_upstream,
    level_urls,
    match_model,
)
from tests.support.levels import PROMPT, QUESTION, options_with, running, served, until

ASKED = [{"role": "user", "content": PROMPT}]
LEVELS = ("concise", "full")


def dialled(family, urls, **options):
    return running(Service(family, find_upstream(family, urls), options_with(**options)))


@pytest.fixture(scope="module")
def front(demo, pocket_family):
    """The address of a dial in front of the demo server."""
    with dialled(pocket_family[0], [f"{demo}/v1"]) as (url, _, _):
        yield url


@pytest.fixture(scope="module")
def clients(demo, front):
    urls = (f"{demo}/v1", f"{front}/v1")
    made = [openai.OpenAI(base_url=url, api_key="unused", max_retries=0) for url in urls]
    yield made
    for client in made:
        client.close()


def test_the_same_answer_with_and_without_the_dial(clients):
    behind, front = (
        client.chat.completions.create(model="demo:full", messages=ASKED, temperature=0)
        for client in clients
    )
    assert front.choices == behind.choices and front.usage == behind.usage
    assert front.model == "demo:full"


def test_streams_pass_through(clients):
    how = {"model": "demo", "messages": ASKED, "temperature": 0, "stream": True}
    behind, front = (list(client.chat.completions.create(**how)) for client in clients)
    assert front[0].crt["level"] == "concise"

    def output(chunks):
        return "".join(item.delta.content or "" for chunk in chunks for item in chunk.choices)

    assert output(front) == output(behind) and len(front) > 10


@pytest.mark.parametrize(
    "how",
    [{"verbosity": "high"}, {"reasoning_effort": "high"}, {"extra_body": {"token_target": 999}}],
)
def test_the_dial_is_turned_here(clients, how):
    answer = clients[1].chat.completions.create(model="demo", messages=ASKED, max_tokens=2, **how)
    assert answer.model == "demo:full"


def test_the_measured_prompt_is_put_here(clients):
    plain = [{"role": "user", "content": QUESTION}]
    how = {"model": "demo:full", "temperature": 0}
    wrapped = clients[1].chat.completions.create(
        messages=plain, extra_body={"measured_prompt": True}, **how
    )
    assert wrapped.choices == clients[0].chat.completions.create(messages=ASKED, **how).choices


def test_plain_completions_pass_too(clients):
    how = {"model": "demo", "prompt": "Tom has", "max_tokens": 4, "temperature": 0}
    assert (
        clients[1].completions.create(**how).choices == clients[0].completions.create(**how).choices
    )


def test_the_servers_refusal_is_passed_on(clients):
    with pytest.raises(openai.BadRequestError, match="has room for 512 tokens"):
        clients[1].chat.completions.create(model="demo", messages=ASKED, max_tokens=600)
    with pytest.raises(openai.BadRequestError, match="no field 'top_k'"):
        clients[1].chat.completions.create(model="demo", messages=ASKED, extra_body={"top_k": 5})
    with pytest.raises(openai.NotFoundError, match="no model 'demo:ful'"):
        clients[1].chat.completions.create(model="demo:ful", messages=ASKED)


def test_a_busy_server_behind_is_429(endless_family, http):
    long = {"model": "endless", "messages": [{"role": "user", "content": "go"}], "temperature": 0}
    long |= {"max_tokens": 8000, "stream": True}
    chat = "/v1/chat/completions"
    with (
        served(*endless_family, slots=1, queue=0) as (behind, service, _),
        dialled(endless_family[0], [f"{behind}/v1"]) as (url, front, _),
    ):
        with http.stream("POST", url + chat, json=long) as response:
            lines = response.iter_lines()
            next(lines)
            assert front.engine.load() == {"full": (1, 0)}
            received = httpx.post(url + chat, json=long, trust_env=False)
            assert received.status_code == 429 and received.headers["retry-after"].isdigit()
        # who leaves the dial leaves the server behind it
        until(lambda: service.engine.load() == {"full": (0, 0)})
        until(lambda: front.engine.load() == {"full": (0, 0)})


def test_health_is_that_of_the_servers_behind(demo, pocket_family, http):
    behind = Rude(_http(b"200 OK", b"{}"))
    urls = [f"full={demo}/v1", f"concise={behind.url}"]
    with dialled(pocket_family[0], urls) as (url, _, _):
        received = http.get(f"{url}/health")
        assert received.status_code == 200
        assert received.json() == {"status": "ok", "levels": {"concise": "ok", "full": "ok"}}
        behind.close()
        received = http.get(f"{url}/health")
    assert received.status_code == 503
    assert received.json() == {
        "status": "failed",
        "levels": {"concise": "unreachable", "full": "ok"},
    }


def upstream_body(family, body):
    """What a server behind the proxy is sent."""
    models = {level: UpstreamModel("http://127.0.0.1:9/v1", level) for level in LEVELS}
    engine = UpstreamEngine(models, 1)
    service = Service(family, engine, options_with())
    call = prepare_call(service, "chat", {"model": "demo", **body})
    return engine.upstream_body(call, with_token_ids=False)


def test_sampled_as_it_was_measured_unless_the_client_says_otherwise(pocket_family):
    """Temperature 0.6 and top-p 0.95 are the family's; a server's own would be others."""
    body = upstream_body(pocket_family[0], {"messages": ASKED, "top_p": 0.5})
    assert (body["temperature"], body["top_p"], body["model"]) == (0.6, 0.5, "concise")
    assert "stream_options" not in body
    request_body = {"messages": ASKED, "stream": True, "temperature": 0}
    body = upstream_body(pocket_family[0], request_body)
    assert body["temperature"] == 0 and body["stream_options"] == {"include_usage": True}


def test_the_usage_that_only_the_dial_wants_is_counted_and_not_told(demo, pocket_family, http):
    with dialled(pocket_family[0], [f"{demo}/v1"]) as (url, _, _):
        body = {"model": "demo:full", "messages": ASKED, "temperature": 0, "stream": True}
        received = http.post(f"{url}/v1/chat/completions", json=body).text
        counted = http.get(f"{url}/metrics").text
    assert "usage" not in received and received.endswith("data: [DONE]\n\n")
    assert 'crt_tokens_total{kind="completion",level="full"} 144.0' in counted


def test_thinking_has_the_name_it_has_here():
    received = {"choices": [{"message": {"content": "4", "reasoning": "2 + 2"}}]}
    assert _name_reasoning(received)["choices"][0]["message"]["reasoning_content"] == "2 + 2"
    assert _name_reasoning({"choices": [{"delta": {"content": "4"}}]}) == {
        "choices": [{"delta": {"content": "4"}}]
    }


def test_too_many_at_the_dial_itself(demo, pocket_family, http):
    with dialled(pocket_family[0], [f"{demo}/v1"]) as (url, service, _):
        service.engine.max_requests = 0
        body = {"model": "demo", "messages": ASKED}
        assert http.post(f"{url}/v1/chat/completions", json=body).status_code == 429


class Rude:
    """A server that answers every request with the same bytes, or never."""

    def __init__(self, reply, models=("demo:concise", "demo:full")):
        self.reply = reply
        self.models = json.dumps({"data": [{"id": name} for name in models]}).encode()
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.held = []
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self):
        while True:
            try:
                client, _ = self.socket.accept()
            except OSError:
                return
            if b"GET" in client.recv(65536):
                client.sendall(_http(b"200 OK", self.models))
            elif self.reply is None:
                self.held.append(client)
                continue
            else:
                client.sendall(self.reply)
            client.close()

    def close(self):
        """Wakes `accept`, so that the port is free at once."""
        self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.socket.getsockname()[1]}/v1"


def _http(status, body, kind=b"application/json"):
    head = b"HTTP/1.1 " + status + b"\r\nContent-Type: " + kind + b"\r\nConnection: close\r\n"
    return head + b"Content-Length: " + str(len(body)).encode() + b"\r\n\r\n" + body


EVENTS = b"text/event-stream"


@pytest.mark.parametrize(
    ("reply", "stream", "status", "says"),
    [
        (_http(b"500 Oh", b"Traceback /secret/path"), False, 502, "answered 500"),
        (_http(b"401 No", b"{}"), False, 502, "does not accept the proxy's key"),
        (_http(b"503 Busy", b"{}"), False, 429, "queue is full"),
        (_http(b"400 Bad", b'{"message": "too long"}'), False, 400, "too long"),
        (_http(b"400 Bad", b"<html>"), False, 400, "refuses this"),
        (_http(b"200 OK", b"<html>"), False, 502, "not answer in JSON"),
        (_http(b"200 OK", b'{"choices": [null]}'), False, 502, "in OpenAI's form"),
        (b"nonsense", False, 502, "cannot be reached"),
        (b"", False, 502, "cannot be reached"),
        (_http(b"500 Oh", b""), True, 502, "answered 500"),
        (_http(b"200 OK", b'data: {"error": {"message": "lost"}}\n\n', EVENTS), True, 502, "lost"),
        (_http(b"200 OK", b'data: {"choices": [{}]}\n\n', EVENTS), True, 200, "broke off its"),
        (_http(b"200 OK", b"data: {}\n\n", EVENTS), True, 502, "broke off its answer"),
        (_http(b"200 OK", b'data: {"usage": 7}\n\n', EVENTS), True, 502, "in OpenAI's form"),
        (None, False, 504, "within 0.5 seconds"),
    ],
)
def test_servers_that_misbehave(pocket_family, http, reply, stream, status, says):
    rude = Rude(reply)
    limit = 0.5 if reply is None else 60.0  # only the silent one may take too long
    with dialled(pocket_family[0], [rude.url], time_limit=limit) as (url, _, _):
        body = {"model": "demo", "messages": ASKED, "stream": stream}
        received = http.post(f"{url}/v1/chat/completions", json=body)
    rude.close()
    assert (
        received.status_code == status and says in received.text and "secret" not in received.text
    )


@pytest.mark.parametrize(
    ("given", "result"), [(None, ()), ("", ()), ("a", ("a",)), (["a", "b"], ("a", "b"))]
)
def test_stops(given, result):
    assert _stops(given) == result


@pytest.mark.parametrize("bad", [7, ["a", 7], [""], {"a": "b"}])
def test_stops_that_are_none(bad):
    with pytest.raises(ApiError, match="not a text or a list of texts"):
        _stops(bad)


def test_one_that_is_not_there(pocket_family):
    with socket.create_server(("127.0.0.1", 0)) as bound:
        port = bound.getsockname()[1]
    with pytest.raises(EngineError, match="cannot be reached"):
        find_upstream(pocket_family[0], [f"http://127.0.0.1:{port}/v1"])


def test_addresses_by_level():
    both = ["http://a/v1/", "concise=http://b/v1"]
    assert level_urls(both, LEVELS) == {"concise": "http://b/v1", "full": "http://a/v1"}
    with pytest.raises(ConfigError, match="no address for the level full"):
        level_urls(["concise=http://b/v1"], LEVELS)
    with pytest.raises(ConfigError, match="one of concise, full"):
        level_urls(["brief=http://b/v1"], LEVELS)
    with pytest.raises(ConfigError, match="is not an address"):
        level_urls(["concise=b", "http://a"], LEVELS)


def test_one_model_is_not_two_levels(pocket_family):
    """A server of one model would answer for every level, with the promises of each."""
    rude = Rude(None, models=["only"])
    with pytest.raises(ConfigError, match="concise and full would both be only at"):
        find_upstream(pocket_family[0], [rude.url])
    both = ["concise=only", "full=only"]
    engine = find_upstream(pocket_family[0], [rude.url], both)
    assert engine.models["full"].name == "only"  # the user said so
    rude.close()


def test_names_on_the_server():
    assert match_model("demo", "full", ["x", "demo:full", "full"]) == "demo:full"
    assert match_model("demo", "full", ["demo-full"]) == "demo-full"
    assert match_model("demo", "full", ["only"]) == "only"  # a server of one model is that model
    assert match_model("demo", "full", ["a", "b"]) is None
