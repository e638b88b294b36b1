"""crt audit from the command line, on an evaluation, on completions and on the pocket model."""

import json

import pytest

from crt.cli import main
from crt.pocket import path as pocket_path


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "one.jsonl").write_text('{"id": "p", "question": "3 times 4?", "answer": "12"}\n')
    responses = ["It is 12. Hmm. \\boxed{12}", "\\boxed{7}"]
    rows = [{"id": "p", "response": text, "tokens": 20, "stop": "stop"} for text in responses]
    (tmp_path / "mine.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def test_completions_and_then_the_evaluation_they_became(files, capsys):
    assert main(["audit", "mine.jsonl", "--data", "one.jsonl"]) == 0
    told = capsys.readouterr()
    assert told.out.startswith("right             50.0 %, pass@2 100.0 %\n")
    assert "evaluations/mine/audit.html" in told.err
    folder = files / "evaluations" / "mine"
    assert (folder / "audit.html").is_file() and (folder / "figures.json").is_file()
    assert main(["audit", "evaluations/mine", "--requests-per-month", "1e6", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["month"]["tokens"]["value"] == 20e6
    assert found == json.loads((folder / "audit.json").read_text())
    assert main(["audit", "evaluations/mine", "--out", "elsewhere"]) == 0
    assert (files / "elsewhere" / "audit.html").is_file()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["mine.jsonl"], "no data set is named"),
        (["mine.jsonl", "--data", "one.jsonl", "--price-per-million", "-1"], "0 or more"),
        (["none.jsonl", "--data", "one.jsonl"], "none.jsonl"),
        (["mine.jsonl", "--data", "one.jsonl", "--out", "mine.jsonl"], "mine.jsonl"),
    ],
)
def test_bad_input_is_one_sentence(files, words, told, capsys):
    assert main(["audit", *words]) == 2
    error = capsys.readouterr().err
    assert told in error and "Traceback" not in error


@pytest.mark.skipif(
    not (pocket_path() / "config.json").is_file(), reason="the pocket model is not built yet"
)
def test_the_pocket_model_end_to_end(files, capsys):
    words = ["--data", "pocket/test:6", "--rollouts", "2", "--max-tokens", "256"]
    assert main(["audit", "pocket", *words, "--out", "out", "--tokenizer", "pocket"]) == 0
    assert "right" in capsys.readouterr().out
    found = json.loads((files / "out" / "audit.json").read_text())
    assert found["places"] == "tokens" and len(found["problems"]) == 6
