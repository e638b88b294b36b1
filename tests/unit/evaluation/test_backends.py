"""Answers from a model here, and from a server on loopback that fails in every way."""

import json
import signal
import sys
import time
from pathlib import Path

import pytest

from crt.config import EvaluationConfig, ModelConfig
from crt.errors import ConfigError, EngineError
from crt.evaluation import evaluate
from crt.evaluation.backends import (
    EndpointSettings,
    Plan,
    TryAgain,
    api_url,
    endpoint_backend,
    fit_cap,
    local_backend,
    parse_answer,
    plan_units,
)
from crt.evaluation.datasets import load_sets
from crt.sampling.base import choose_engine
from crt.sampling.models import model_files

QUICK = {"first_wait": 0.01, "timeout": 0.5}


@pytest.fixture
def sets(problems):
    return load_sets([str(problems)])


def backend(tiny, sets, **settings):
    engine = settings.pop("engine", "fast")
    how = EvaluationConfig(**{"rollouts": 3, "max_tokens": 30, **settings})
    plan = Plan(ModelConfig(name=str(tiny)), how, engine=engine)
    found, notes = local_backend(plan, sets)
    return found, notes, how


def test_tokens_are_counted_with_the_end_and_the_cap_is_kept(tiny, sets):
    found, _, how = backend(tiny, sets)
    units = plan_units(sets, how.rollouts, found.rows, seed=0)
    answers = [a for _, groups in found.answers(units) for group in groups for a in group]
    assert len(answers) == 18
    encode = model_files(str(tiny)).tokenizer.encode
    for answer in answers:
        written = len(encode(answer.text, add_special_tokens=False))
        if answer.stop == "length":
            assert written <= answer.length == 30
        else:
            assert written + 1 <= answer.length <= 30  # special tokens in between are not text
    assert {answer.stop for answer in answers} == {"eos", "length"}


def test_the_cap_is_what_the_model_has_positions_for(tiny, sets):
    found, notes, _ = backend(tiny, sets, max_tokens=32768)
    longest = max(
        len(model_files(str(tiny)).tokenizer.encode(found.prompt_row(p)["prompt"])) for p in sets[0]
    )
    assert found.max_tokens == 256 - longest
    assert "has 256 positions" in notes[0] and "not 32768" in notes[0]
    with pytest.raises(ConfigError, match="nothing is left for an answer"):
        fit_cap(model_files(str(tiny)), 100, 255)


def test_units_depend_on_what_they_hold_and_cover_everything_once(sets):
    for rows in (1, 2, 4, 7, 100):
        units = plan_units(sets, 4, rows, seed=0)
        asked = [
            (p.id, r)
            for u in units
            for p in u.problems
            for r in range(u.first, u.first + u.num_samples)
        ]
        assert sorted(asked) == [(f"p{i}", r) for i in range(6) for r in range(4)]
        assert len({unit.seed for unit in units}) == len(units)
        assert all(len(unit.problems) * unit.num_samples <= max(rows, 1) for unit in units)
    one, other = (plan_units(sets, 4, 4, seed) for seed in (0, 1))
    assert all(a.seed != b.seed for a, b in zip(one, other, strict=True))


def test_a_question_with_a_control_token_is_refused(tiny, tmp_path):
    file = tmp_path / "bad.jsonl"
    file.write_text(json.dumps({"id": "x", "question": "a<end>b", "answer": "1"}) + "\n")
    with pytest.raises(Exception, match="control token"):
        evaluate(str(tiny), [str(file)], tmp_path / "out", rollouts=1, max_tokens=8)
    assert not (tmp_path / "out").exists()


def test_greedy_rollouts_are_all_alike_and_the_manifest_has_everything(tiny, problems, tmp_path):
    found = evaluate(
        str(tiny), [str(problems)], tmp_path / "o", rollouts=2, max_tokens=9, temperature=0
    )
    said: dict[str, set[str]] = {}
    for record in found.rollouts():
        said.setdefault(record.problem_id, set()).add(record.text)
    assert all(len(texts) == 1 for texts in said.values())
    manifest = found.manifest
    assert manifest["model"]["engine"] == "fast" and len(manifest["model"]["hash"]) == 64
    assert manifest["template"].startswith("{% for message")
    assert manifest["sampling"]["temperature"] == 0 and manifest["sampling"]["max_tokens"] == 9
    assert manifest["versions"]["torch"] and manifest["finished"] >= manifest["started"]
    row = found.problems()[0]
    assert row["prompt"].startswith("<user>0 + 1 = ?\nPlease reason") and row["answer"] == "1"


def test_vllm_answers_the_same_units(tiny, sets, monkeypatch):
    # not vLLM itself, which needs a GPU, but its interface, to see what comes of its answers
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "support" / "fakes")
    found, _, how = backend(tiny, sets, engine="vllm", rollouts=2)
    [(_, answers)] = list(found.answers(plan_units(sets, 2, found.rows, seed=0)))
    [engine] = sys.modules.pop("vllm").LLM.loaded
    assert [len(group) for group in answers] == [2] * 6
    assert found.model["engine"] == "vllm" and engine.dtype == "float32"
    for answer in (answer for group in answers for answer in group):
        assert answer.length == 30 if answer.stop == "length" else answer.length <= 30
    assert [params.max_tokens for _, params in engine.asked] == [how.max_tokens] * 6


def test_the_engine_is_chosen(tiny):
    assert choose_engine("auto", model_files(str(tiny))) == "fast"  # no vLLM here, or no GPU
    assert choose_engine("fast", model_files(str(tiny))) == "fast"


def test_no_such_model_is_one_sentence(problems, tmp_path):
    with pytest.raises(EngineError, match=r"is no folder, no \.gguf file, no hub id"):
        evaluate("no model", [str(problems)], tmp_path / "out")


def run(url, problems, out, rollouts=4, **settings):
    how = EndpointSettings(**{**QUICK, **settings})
    return evaluate(url, [str(problems)], out, rollouts=rollouts, max_tokens=64, endpoint=how)


def test_every_problem_is_asked_as_often_as_wanted_each_with_its_own_seed(
    serve, problems, tmp_path
):
    server = serve()
    found = run(server.url, problems, tmp_path / "out")
    assert found.metrics["sets"]["sums"]["acc"]["value"] == 100.0
    assert found.metrics["sets"]["sums"]["len"]["value"] == 12.0
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
    assert found.metrics["sets"]["sums"]["acc"]["value"] == 100.0
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
    run(server.url, problems, tmp_path / "out", rollouts=8, concurrency=5, timeout=30)
    assert 1 < server.most <= 5


def test_an_answer_that_trickles_in_ends_at_the_deadline(serve, problems, tmp_path):
    server = serve(faults=["trickle"] * 9)
    with pytest.raises(EngineError, match=r"at last: no whole answer within 0\.5 s"):
        run(server.url, problems, tmp_path / "out", rollouts=1, concurrency=1, retries=1)


def test_whoever_leaves_in_the_middle_waits_for_no_answer(serve, problems):
    server, sets = serve(pause=20.0), load_sets([str(problems)])
    how = EvaluationConfig(rollouts=1, max_tokens=64)
    found = endpoint_backend(Plan(ModelConfig(name=server.url), how))
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        signal.setitimer(signal.ITIMER_REAL, 0.5)
        list(found.answers(plan_units(sets, 1, found.rows, seed=0)))
    assert server.headers and time.monotonic() - start < 5


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
    whole = parse_answer(answered({"content": "\\boxed{1}", "reasoning_content": "hm"}), False)
    assert whole.text == "<think>\nhm\n</think>\n\\boxed{1}"
    cut = parse_answer(answered({"content": None, "reasoning": "hm"}, "length"), False)
    assert (cut.text, cut.stop, cut.length) == ("<think>\nhm", "length", None)


@pytest.mark.parametrize(
    "told",
    [None, [], {}, {"choices": []}, answered(None), answered({"content": 3}), answered({}, None)],
)
def test_an_answer_without_its_parts_is_half_an_answer(told):
    with pytest.raises(TryAgain):
        parse_answer(told, False)


@pytest.mark.parametrize(
    "usage", [None, {}, {"completion_tokens": "9"}, {"completion_tokens": True}]
)
def test_a_count_that_is_not_there_is_unknown(usage):
    assert parse_answer(answered({"content": "a"}, usage=usage), False).length is None


def test_addresses():
    assert api_url("http://host:8000") == "http://host:8000/v1"
    assert api_url("https://host/v1/chat/completions") == "https://host:443/v1"
    for bad in ("http://", "ftp://host", "http://host:99999", "http://me:secret@host/v1"):
        with pytest.raises(ConfigError) as error:
            api_url(bad)
        assert "secret" not in str(error.value)


def test_settings_that_cannot_work():
    with pytest.raises(ConfigError, match="concurrency 0"):
        EndpointSettings(concurrency=0)


def test_thinking_is_as_long_as_the_server_says():
    usage = {"completion_tokens": 9, "completion_tokens_details": {"reasoning_tokens": 6}}
    apart = answered({"content": "\\boxed{1}", "reasoning_content": "hm"}, usage=usage)
    assert parse_answer(apart, False).thinking == 6
    # 0 where it takes nothing out of the text: then the marks in the text decide
    usage["completion_tokens_details"]["reasoning_tokens"] = 0
    assert parse_answer(answered({"content": "hm"}, usage=usage), False).thinking == 0
    assert parse_answer(answered({"content": "hm"}, usage=usage), True).thinking == 9
    marked = parse_answer(answered({"content": "hm</think>1"}, usage=usage), True)
    assert marked.thinking is None
