"""A real server on loopback: it fails in every way, and the evaluation is still whole."""

import pytest

from crt.errors import ConfigError, EngineError
from crt.evaluation import evaluate
from crt.evaluation.endpoint import EndpointSettings, answer_of
from crt.evaluation.http import TryAgain, address

QUICK = {"first_wait": 0.01, "timeout": 0.5}


def run(url, problems, out, rollouts=4, **settings):
    how = EndpointSettings(**{**QUICK, **settings})
    return evaluate(url, [str(problems)], out, rollouts=rollouts, max_tokens=64, endpoint=how)


def test_every_problem_is_asked_as_often_as_wanted_each_with_its_own_seed(
    serve, problems, tmp_path
):
    server = serve()
    found = run(server.url, problems, tmp_path / "out")
    assert found.figures["sets"]["sums"]["acc"]["value"] == 100.0
    assert found.figures["sets"]["sums"]["len"]["value"] == 12.0
    assert len(server.asked) == 24  # 6 problems × 4
    assert len({body["seed"] for body in server.asked}) == 24
    [body] = [b for b in server.asked if b["seed"] == server.asked[0]["seed"]]
    assert (body["temperature"], body["top_p"], body["max_tokens"]) == (0.6, 0.95, 64)
    assert body["model"] == "sums"  # asked from the server
    assert "boxed" in body["messages"][-1]["content"]


def test_the_seeds_do_not_depend_on_the_order(serve, problems, tmp_path):
    first, second = serve(), serve(pause=0.01)
    run(first.url, problems, tmp_path / "one", concurrency=1)
    run(second.url, problems, tmp_path / "two", concurrency=8)
    key = lambda body: (body["messages"][-1]["content"], body["seed"])  # noqa: E731
    assert sorted(map(key, first.asked)) == sorted(map(key, second.asked))
    assert (tmp_path / "one/rollouts.jsonl.zst").read_bytes() == (
        tmp_path / "two/rollouts.jsonl.zst"
    ).read_bytes()


FAULTS = [429, 500, 503, "garbage", "half", "unfinished", "silence"]


@pytest.mark.parametrize("fault", FAULTS)
def test_what_may_pass_is_tried_again(serve, problems, tmp_path, fault):
    server = serve(faults=[fault, fault])
    found = run(server.url, problems, tmp_path / "out", rollouts=1, concurrency=1)
    assert found.figures["sets"]["sums"]["acc"]["value"] == 100.0
    assert len(server.asked) == 6


def test_a_server_that_stays_broken_ends_it_and_what_is_done_is_kept(serve, problems, tmp_path):
    server = serve()
    server.faults = [None] * 4 + [500] * 100
    with pytest.raises(EngineError, match=r"no answer in 3 tries, at last: HTTP 500.*goes on"):
        run(server.url, problems, tmp_path / "out", rollouts=2, concurrency=1, retries=2)
    kept = sorted(path.name for path in (tmp_path / "out/parts").iterdir())
    assert len(kept) == 2  # two problems of two rollouts were answered
    server.faults = []
    run(server.url, problems, tmp_path / "out", rollouts=2, concurrency=1)
    assert len(server.asked) == 12  # nothing was asked twice


def test_a_refusal_ends_it_at_once(serve, problems, tmp_path):
    server = serve(faults=[404] * 50)
    with pytest.raises(EngineError, match=r"refuses: HTTP 404.*no 404"):
        run(server.url, problems, tmp_path / "out", concurrency=1)
    assert len(server.headers) == 1


def test_concurrency_stays_bounded(serve, problems, tmp_path):
    server = serve(pause=0.02)
    run(server.url, problems, tmp_path / "out", rollouts=8, concurrency=5)
    assert 1 < server.most <= 5


def test_nobody_there(problems, tmp_path):
    with pytest.raises(EngineError, match="does not say which models"):
        run("http://127.0.0.1:1/v1", problems, tmp_path / "out", retries=0)
    with pytest.raises(EngineError, match="no answer in 1 tries"):
        run("http://127.0.0.1:1/v1", problems, tmp_path / "out", retries=0, model="m")


def test_the_key_is_sent_and_kept_nowhere(serve, problems, tmp_path, monkeypatch):
    server = serve()
    monkeypatch.setenv("SOME_KEY", "abc-123")
    run(server.url, problems, tmp_path / "out", rollouts=1, key_from="SOME_KEY")
    assert server.headers[0]["Authorization"] == "Bearer abc-123"
    for path in (tmp_path / "out").rglob("*"):
        assert not path.is_file() or b"abc-123" not in path.read_bytes()
    with pytest.raises(ConfigError, match="--key-from ANOTHER"):
        run(server.url, problems, tmp_path / "two", key_from="ANOTHER")


def answered(message, finish="stop", usage=None):
    return {"choices": [{"message": message, "finish_reason": finish}], "usage": usage}


def test_thinking_that_the_server_took_out_is_put_back():
    whole = answer_of(answered({"content": "\\boxed{1}", "reasoning_content": "hm"}), False)
    assert whole.text == "<think>\nhm\n</think>\n\\boxed{1}"
    cut = answer_of(answered({"content": None, "reasoning": "hm"}, "length"), False)
    assert (cut.text, cut.stop, cut.length) == ("<think>\nhm", "length", None)


@pytest.mark.parametrize(
    "told",
    [None, [], {}, {"choices": []}, answered(None), answered({"content": 3}), answered({}, None)],
)
def test_an_answer_without_its_parts_is_half_an_answer(told):
    with pytest.raises(TryAgain):
        answer_of(told, False)


@pytest.mark.parametrize(
    "usage", [None, {}, {"completion_tokens": "9"}, {"completion_tokens": True}]
)
def test_a_count_that_is_not_there_is_unknown(usage):
    assert answer_of(answered({"content": "a"}, usage=usage), False).length is None


def test_addresses():
    assert address("http://host:8000").url == "http://host:8000/v1"
    assert address("https://host/v1/chat/completions").url == "https://host:443/v1"
    for bad in ("http://", "ftp://host", "http://host:99999", "http://me:secret@host/v1"):
        with pytest.raises(ConfigError) as error:
            address(bad)
        assert "secret" not in str(error.value)


def test_settings_that_cannot_work():
    with pytest.raises(ConfigError, match="concurrency 0"):
        EndpointSettings(concurrency=0)
