"""crt eval from the command line."""

import argparse
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from crt.commands import eval as command
from crt.errors import ConfigError, EngineError
from crt.pocket import path as pocket_path


def arguments(*words):
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return parser.parse_args([str(word) for word in words])


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        message = {"content": "<think>\x1b[31m</think> \\boxed{2}"}
        told = {
            "choices": [{"message": message, "finish_reason": "stop"}],
            "usage": {"completion_tokens": 7},
        }
        content = json.dumps(told).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


@pytest.fixture
def url():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/v1"
    server.shutdown()
    server.server_close()


@pytest.fixture
def problems(tmp_path):
    rows = [
        {"id": "p", "question": "1+1?", "answer": "2"},
        {"id": "q", "question": "2+2?", "answer": "4"},
    ]
    file = tmp_path / "two.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def test_a_server_is_evaluated_and_the_table_printed(url, problems, tmp_path, capsys):
    words = ("--data", problems, "--out", tmp_path / "out", "--rollouts", 2, "--served-name", "m")
    assert command.run(arguments(url, *words)) == 0
    told = capsys.readouterr()
    # always 2: one of two problems is solved; 7 tokens each
    assert "│ two │" in told.out and "50.00" in told.out and "7.0" in told.out
    assert "everything is in" in told.err
    manifest = json.loads((tmp_path / "out/manifest.json").read_text())
    assert manifest["sampling"] == {
        "rollouts": 2,
        "temperature": 0.6,
        "top_p": 0.95,
        "max_tokens": 32768,
        "seed": 0,
        "rows": 2,
    }
    assert manifest["model"]["name"] == "m" and manifest["name"] == "m"


def test_json_and_the_default_folder(url, problems, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ("--data", problems, "--rollouts", 2, "--served-name", "m", "--json")
    command.run(arguments(url, *words))
    told = json.loads(capsys.readouterr().out)
    assert told["sets"]["two"]["acc"]["value"] == 50.0
    assert told["sets"]["two"]["acc"]["problems"] == 2
    assert (tmp_path / "evaluations/m-two/figures.json").is_file()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("http://127.0.0.1:1", "--data", "gsm8k,gsm8k"), "named twice"),
        (("http://127.0.0.1:1",), "no data set is named"),
        (("http://127.0.0.1:1", "--data", "a", "--temperature", "-1"), "temperature = -1.0"),
        (("http://127.0.0.1:1", "--data", "a", "--rollouts", "0"), "rollouts = 0"),
        (("http://127.0.0.1:1", "--data", "a", "--concurrency", "0"), "concurrency 0"),
        (("pocket", "--all-checkpoints"), "is not a run"),
    ],
)
def test_bad_input_is_one_sentence(words, told):
    with pytest.raises(ConfigError, match=told):
        command.run(arguments(*words))


def test_a_run_that_recommends_nothing_needs_a_checkpoint_or_all(tmp_path):
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(EngineError, match="recommends no checkpoint yet: name one of"):
        command.run(arguments(tmp_path, "--data", "gsm8k"))


def test_a_checkpoint_takes_its_runs_settings(tmp_path):
    run = tmp_path / "run"
    (run / "checkpoints/step-0010").mkdir(parents=True)
    config = {
        "name": "r",
        "model": {"name": "pocket"},
        "data": {"train": ["pocket"]},
        "method": {"type": "grpo"},
        "schedule": {"steps": 20},
        "prompt": {"system": "Be brief."},
        "grading": {"truncated": "grade"},
        "evaluation": {"data": ["pocket:20"], "rollouts": 4, "max_tokens": 200},
    }
    (run / "config.json").write_text(json.dumps(config))
    plan = command.plan_of(arguments(run / "checkpoints/step-0010", "--rollouts", 2))
    assert plan.settings.data == ("pocket:20",)
    assert (plan.settings.rollouts, plan.settings.max_tokens) == (2, 200)
    assert plan.prompt.system == "Be brief." and plan.truncated == "grade"


@pytest.mark.skipif(
    not (pocket_path() / "config.json").is_file(), reason="the pocket model is not built yet"
)
def test_the_pocket_model_end_to_end(tmp_path, capsys):
    out = tmp_path / "out"
    words = ("--data", "pocket:8", "--out", out, "--rollouts", 2, "--max-tokens", 256, "--json")
    assert command.run(arguments("pocket", *words)) == 0
    found = json.loads(capsys.readouterr().out)["sets"]["pocket:8"]
    assert found["problems"] == 8 and found["rollouts"] == 16
    assert found["acc"]["value"] > 25.0  # it can do its own problems
    assert 10 < found["len"]["value"] < 256
    assert found["ungraded"]["value"] == 0.0
