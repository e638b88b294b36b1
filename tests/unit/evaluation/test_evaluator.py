"""Killed at any moment and begun again: nothing is sampled twice, and the table is the same."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from crt.errors import DataError
from crt.evaluation import evaluate, load
from crt.evaluation.backends import EndpointSettings

RUN = "import sys; from crt.evaluation import evaluate; from crt.evaluation.backends import *; {}"
SAMPLE = "evaluate(sys.argv[1], [sys.argv[2]], sys.argv[3], rollouts=4, max_tokens=60, rows=4)"
ASK = (
    "evaluate(sys.argv[1], [sys.argv[2]], sys.argv[3], rollouts=2, max_tokens=64, "
    "endpoint=EndpointSettings(concurrency=2))"
)
SAME = ("rollouts.jsonl.zst", "by_problem.jsonl", "figures.json", "problems.jsonl")


def start(code, *arguments):
    words = [sys.executable, "-c", RUN.format(code), *map(str, arguments)]
    quiet = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(words, env=quiet, stderr=subprocess.PIPE, start_new_session=True)


def parts(out: Path) -> dict[str, int]:
    """Finished parts, with what tells one file from another."""
    found = {path: path.stat() for path in out.glob("parts/[0-9]*")}
    return {path.name: (stat.st_ino, stat.st_mtime_ns) for path, stat in found.items()}


def kill_after(process, out, wanted):
    """Kills once so many parts are there; False if it was done before."""
    while len(parts(out)) < wanted:
        if process.poll() is not None:
            assert process.returncode == 0, process.stderr.read().decode()
            return False
        time.sleep(0.002)
    os.killpg(process.pid, signal.SIGKILL)  # grader workers too
    process.wait()
    process.stderr.close()
    return True


def sampled_parts(action) -> set[str]:
    """Names of the parts that are written while the action runs."""
    written: set[str] = set()

    def watch(event, arguments):
        if event == "open" and watching and ".unfinished-" in str(arguments[0]):
            written.add(str(arguments[0]).rpartition(".unfinished-")[2].partition("-")[2])

    watching = True
    sys.addaudithook(watch)
    action()
    watching = False
    return {name for name in written if name[:3] == "000"}


def test_killed_the_local_sampler_ends_with_the_same_files(tiny, tmp_path):
    problems = tmp_path / "sums.jsonl"
    rows = [{"id": f"p{i}", "question": f"{i} + 1 = ?", "answer": str(i + 1)} for i in range(40)]
    problems.write_text("".join(json.dumps(row) + "\n" for row in rows))
    out, whole = tmp_path / "killed", tmp_path / "whole"
    assert kill_after(start(SAMPLE, tiny, problems, out), out, 5)
    kept = parts(out)
    assert 5 <= len(kept) < 40
    with pytest.raises(DataError, match="not finished"):
        load(out)
    settings = {"rollouts": 4, "max_tokens": 60, "rows": 4}
    sampled = sampled_parts(lambda: evaluate(str(tiny), [str(problems)], out, **settings))
    assert not sampled & set(kept) and len(sampled) + len(kept) == 40
    evaluate(str(tiny), [str(problems)], whole, **settings)
    for name in SAME:
        assert (out / name).read_bytes() == (whole / name).read_bytes(), name
    assert not (out / "parts").exists()


def test_killed_while_it_asks_a_server_nothing_finished_is_asked_again(serve, tmp_path):
    problems = tmp_path / "sums.jsonl"
    rows = [{"id": f"p{i}", "question": f"{i} + 1 = ?", "answer": str(i + 1)} for i in range(30)]
    problems.write_text("".join(json.dumps(row) + "\n" for row in rows))
    server = serve(pause=0.02)
    out = tmp_path / "out"
    for wanted in (2, 6):
        assert kill_after(start(ASK, server.url, problems, out), out, wanted)
    finished = {int(name[4:11]) for name in parts(out)}  # problem numbers
    before = len(server.asked)
    settings = {"rollouts": 2, "max_tokens": 64}
    how = EndpointSettings(concurrency=2)
    evaluate(server.url, [str(problems)], out, endpoint=how, **settings)
    again = {int(body["messages"][-1]["content"].split()[0]) for body in server.asked[before:]}
    assert not again & finished
    evaluate(server.url, [str(problems)], tmp_path / "whole", endpoint=how, **settings)
    for name in SAME:
        assert (out / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name


def test_cut_off_between_the_last_files(serve, problems, tmp_path):
    server = serve()
    out = tmp_path / "out"
    evaluate(server.url, [str(problems)], out, rollouts=2, max_tokens=64)
    whole = {name: (out / name).read_bytes() for name in SAME}
    asked = len(server.asked)
    for gone in (["figures.json"], ["figures.json", "by_problem.jsonl"]):
        for name in gone:
            (out / name).unlink()
        (out / ".unfinished-99-figures.json").write_text("{")
        evaluate(server.url, [str(problems)], out, rollouts=2, max_tokens=64)
        assert {name: (out / name).read_bytes() for name in SAME} == whole
        assert not list(out.glob(".unfinished*"))
    assert len(server.asked) == asked


def test_damage_is_found_and_named(serve, problems, tmp_path):
    out = tmp_path / "out"
    evaluate(serve().url, [str(problems)], out, rollouts=2, max_tokens=64)
    for name in ("by_problem.jsonl", "rollouts.jsonl.zst"):
        content = bytearray((out / name).read_bytes())
        content[len(content) // 2] ^= 1
        (out / name).write_bytes(bytes(content))
        with pytest.raises(DataError, match=f"{name} is damaged"):
            list(load(out).rollouts())
        content[len(content) // 2] ^= 1
        (out / name).write_bytes(bytes(content))


def test_another_manifest_is_refused_and_the_old_one_kept(serve, problems, tmp_path):
    server, out = serve(), tmp_path / "out"
    evaluate(server.url, [str(problems)], out, rollouts=2, max_tokens=64)
    before = (out / "rollouts.jsonl.zst").read_bytes()
    with pytest.raises(DataError, match=r"whose sampling\.temperature is 0\.6, not 1\.0"):
        evaluate(server.url, [str(problems)], out, rollouts=2, max_tokens=64, temperature=1.0)
    assert (out / "rollouts.jsonl.zst").read_bytes() == before
    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.txt").write_text("mine")
    with pytest.raises(DataError, match="holds other files"):
        evaluate(server.url, [str(problems)], other, rollouts=2, max_tokens=64)
    assert [path.name for path in other.glob("[!.]*")] == ["thesis.txt"]


def test_two_processes_on_one_folder(serve, problems, tmp_path):
    out = tmp_path / "out"
    server = serve(pause=0.3)
    first = start(ASK, server.url, problems, out)
    while not (out / "problems.jsonl").exists():
        assert first.poll() is None, first.stderr.read().decode()
        time.sleep(0.01)
    with pytest.raises(DataError, match="in use by another process"):
        evaluate(server.url, [str(problems)], out, rollouts=2, max_tokens=64)
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    first.stderr.close()
