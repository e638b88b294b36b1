"""crt score from the command line, and without torch."""

import argparse
import json
import subprocess
import sys

import pytest

from crt.commands import score as command
from crt.errors import DataError


def arguments(*words):
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return parser.parse_args([str(word) for word in words])


@pytest.fixture
def files(tmp_path):
    problems = [{"id": "p", "question": "1+1?", "answer": "2"}]
    (tmp_path / "one.jsonl").write_text(json.dumps(problems[0]) + "\n")
    rows = [
        {"id": "p", "response": "\\boxed{2}", "tokens": 4, "stop": "eos"},
        {"id": "p", "response": "\\boxed{3}", "tokens": 6, "stop": "eos"},
    ]
    (tmp_path / "said.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def test_the_table_is_printed(files, capsys):
    assert command.run(arguments(files / "said.jsonl", "--data", files / "one.jsonl")) == 0
    out = capsys.readouterr().out
    assert "50.00" in out and "5.0" in out and "said" in out


def test_the_table_fits_80_columns_and_all_shows_the_rest(files, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    words = (files / "said.jsonl", "--data", files / "one.jsonl")
    command.run(arguments(*words))
    short = capsys.readouterr().out
    assert all(len(line) <= 80 for line in short.splitlines())
    assert "95 %" in short and "cut off %" in short and "R_zip" not in short
    assert "one: 1 problems, 2 responses" in short
    command.run(arguments(*words, "--all"))
    assert "R_zip wrong" in capsys.readouterr().out


def test_json_and_a_folder(files, capsys):
    words = ("--data", files / "one.jsonl", "--out", files / "out", "--json", "--max-tokens", 6)
    command.run(arguments(files / "said.jsonl", *words))
    told = json.loads(capsys.readouterr().out)
    assert told["sets"]["one"]["len"]["value"] == 5.0
    assert told["sets"]["one"]["truncated"]["value"] == 0.0  # the file says how they ended
    manifest = json.loads((files / "out/manifest.json").read_text())
    assert manifest["sampling"]["max_tokens"] == 6


def test_a_data_file_with_other_columns(files, capsys):
    (files / "one.jsonl").write_text(json.dumps({"id": "p", "task": "1+1?", "key": "2"}) + "\n")
    words = ("--data", files / "one.jsonl", "--columns", "question=task,answer=key", "--json")
    command.run(arguments(files / "said.jsonl", *words))
    assert json.loads(capsys.readouterr().out)["sets"]["one"]["acc"]["value"] == 50.0


def test_an_unknown_problem_is_named(files):
    (files / "said.jsonl").write_text('{"id": "zz", "response": "x"}\n')
    with pytest.raises(DataError, match="line 1: problem 'zz' is not in one"):
        command.run(arguments(files / "said.jsonl", "--data", files / "one.jsonl"))


def test_neither_torch_nor_transformers_is_loaded(files):
    code = (
        "import argparse, sys; from crt.commands import score; p = argparse.ArgumentParser();"
        "score.add_arguments(p); score.run(p.parse_args(sys.argv[1:]));"
        "bad = {'torch', 'transformers', 'datasets', 'pandas'} & set(sys.modules);"
        "sys.exit(f'loaded: {bad}' if bad else 0)"
    )
    words = [str(files / "said.jsonl"), "--data", str(files / "one.jsonl")]
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
