"""crt serve: mistakes are one sentence before anything is loaded."""

import json
import os
import signal
import subprocess
import sys

import httpx
import pytest

from crt.cli import main

from .conftest import level, plain_family


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "family.json"
    path.write_text(json.dumps(plain_family([level("concise", 57.0), level("full", 129.0)])))
    return str(path)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--host", "0.0.0.0"], "can be reached by others"),
        (["--api-key", "short"], "shorter than 16 characters"),
        (["--port", "99999"], "--port 99999"),
        (["--default", "concice"], "Did you mean `concise`?"),
        (["--engine", "vllm"], "vLLM is not installed"),
        (["--upstream", "nowhere"], "is not LEVEL=…"),
        (["--upstream", "http://127.0.0.1:9/v1", "--upstream-key-from", "NO_SUCH"], "NO_SUCH"),
        (["--slots", "0"], "cannot work"),
        ([], "other weights"),  # the hash in the file is made up
    ],
)
def test_mistakes(file, arguments, says, capsys, monkeypatch):
    monkeypatch.delenv("CRT_API_KEY", raising=False)
    port = [] if "--port" in arguments else ["--port", "0"]
    assert main(["serve", file, *port, *arguments]) == 2
    told = capsys.readouterr().err
    assert says in told and "Traceback" not in told


def test_a_run_without_family_says_how_to_make_it(tmp_path, capsys):
    assert main(["serve", str(tmp_path)]) == 2
    assert "neither a family.json nor a run" in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_whole_command(pocket_family, number):
    """Starts, answers, and ends with exit code 0 when it is told to."""
    family, file = pocket_family
    file.write_text(json.dumps(family.model_dump(mode="json")))
    command = [sys.executable, "-m", "crt", "serve", str(file), "--port", "0", "--slots", "2"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(2)]
        assert lines[0].startswith("demo: concise (57 tokens), full (129 tokens); concise when")
        url = lines[1].split()[1].rstrip("/")
        told = httpx.get(f"{url}/health", trust_env=False).json()
        assert told == {"status": "ok", "levels": {"concise": "ok", "full": "ok"}}
        process.send_signal(number)
        assert process.wait(timeout=60) == 0
