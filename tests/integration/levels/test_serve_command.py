"""crt serve: mistakes are one sentence before anything is loaded."""

import json
import os
import signal
import socket
import subprocess
import sys

import httpx
import pytest

from crt.cli import main
from tests.support.levels import level, plain_family, until


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "family.json"
    path.write_text(json.dumps(plain_family([level("concise", 57.0), level("full", 129.0)])))
    return str(path)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--host", "0.0.0.0"], "can be reached by others"),
        (["--api-key", "short"], "at least 16 characters"),
        (["--port", "99999"], "--port 99999"),
        (["--default", "concice"], "Did you mean `concise`?"),
        (["--engine", "vllm"], "vLLM is not installed"),
        (["--upstream", "nowhere"], "is not LEVEL=…"),
        (["--upstream", "http://127.0.0.1:9/v1", "--upstream-key-from", "NO_SUCH"], "NO_SUCH"),
        (["--slots", "0"], "--slots 0 cannot work"),
        ([], "other weights"),  # the hash in the file is made up
    ],
)
def test_mistakes(file, arguments, says, capsys, monkeypatch):
    monkeypatch.delenv("CRT_API_KEY", raising=False)
    port = [] if "--port" in arguments else ["--port", "0"]
    assert main(["serve", file, *port, *arguments]) == 2
    received = capsys.readouterr().err
    assert says in received and "Traceback" not in received


def test_a_run_without_family_says_how_to_make_it(tmp_path, capsys):
    assert main(["serve", str(tmp_path)]) == 2
    assert "neither a family.json nor a run" in capsys.readouterr().err


def started(family, file, *options):
    """`crt serve` in a process of its own."""
    file.write_text(json.dumps(family.model_dump(mode="json")))
    command = [sys.executable, "-m", "crt", "serve", str(file), "--port", "0", *options]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def address(process):
    """What it says first, and where it listens."""
    lines = [process.stdout.readline() for _ in range(2)]
    return lines[0], lines[1].split()[1].rstrip("/")


@pytest.mark.parametrize(
    ("engine", "number"), [("local", signal.SIGTERM), ("upstream", signal.SIGINT)]
)
def test_the_whole_command(pocket_family, demo, engine, number):
    """Starts, answers, and ends with exit code 0 when it is told to."""
    options = {"local": ["--slots", "2"], "upstream": ["--upstream", f"{demo}/v1"]}
    with started(*pocket_family, *options[engine]) as process:
        output, url = address(process)
        assert output.startswith("demo: concise (57 tokens), full (129 tokens); concise by")
        received = httpx.get(f"{url}/health", trust_env=False).json()
        assert received == {"status": "ok", "levels": {"concise": "ok", "full": "ok"}}
        process.send_signal(number)
        assert process.wait(timeout=60) == 0


def test_an_end_while_it_loads(pocket_family):
    """It waits for a server that never answers, and is told to end."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/v1"
        with started(*pocket_family, "--upstream", url) as process:
            silent.accept()  # now it loads
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=60) == 143


def test_streams_are_finished_and_a_second_interrupt_cuts_them_off(endless_family):
    """After the first Ctrl-C nobody is let in and the stream goes on; the second ends it."""
    long = {"model": "endless", "messages": [{"role": "user", "content": "go"}], "stream": True}
    long |= {"temperature": 0, "max_tokens": 8000}
    with started(*endless_family, "--slots", "1") as process:
        _, url = address(process)
        chat = f"{url}/v1/chat/completions"
        with httpx.stream("POST", chat, json=long, trust_env=False, timeout=60) as response:
            lines = response.iter_lines()
            next(lines)
            process.send_signal(signal.SIGINT)
            until(lambda: not listens(url))
            assert next(line for line in lines if line).startswith("data: ")
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=60) == 130


def listens(url):
    try:
        return httpx.get(f"{url}/health", trust_env=False).status_code == 200
    except httpx.HTTPError:
        return False
