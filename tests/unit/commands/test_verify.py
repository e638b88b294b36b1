"""crt verify from the command line: what it says, and its exit codes."""

import json

import pytest

from crt.cli import main
from crt.evaluation import score
from crt.pocket import path as pocket_path

COUNT = 120


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """Evaluations on the same problems: all right, and every second one right."""
    monkeypatch.chdir(tmp_path)
    problems = [
        {"id": f"p{i}", "question": f"{i} + 1?", "answer": f"{i + 1}"} for i in range(COUNT)
    ]
    (tmp_path / "sums.jsonl").write_text("".join(json.dumps(p) + "\n" for p in problems))
    for name, right in {"good": 1, "half": 2}.items():
        rows = [
            {"id": f"p{i}", "response": f"\\boxed{{{i + 1 if i % right == 0 else 0}}}", "tokens": 5}
            for i in range(COUNT)
        ]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        score(tmp_path / f"{name}.jsonl", [str(tmp_path / "sums.jsonl")], tmp_path / name)
    return tmp_path


@pytest.mark.parametrize(
    ("model", "base", "claim", "code", "state"),
    [
        ("good", "half", "accuracy >= base - 1pt", 0, "accepted"),
        ("half", "good", "accuracy >= base - 1pt", 1, "rejected"),
        ("good", "good", "accuracy >= base - 1pt", 3, "undecided"),
        ("good", "good", "accuracy >= base - 5pt", 0, "accepted"),
        ("good", None, "accuracy >= 80 %", 0, "accepted"),
        ("half", None, "good/figures.json", 1, "rejected"),
        ("half", "good", "good/figures.json", 1, "rejected"),
    ],
)
def test_verdicts_and_exit_codes(folders, model, base, claim, code, state, capsys):
    words = ["verify", model, "--claim", claim, *(["--base", base] if base else [])]
    assert main(words) == code
    told = capsys.readouterr()
    assert told.out.startswith(f"{state} after ") and max(map(len, told.out.splitlines())) <= 80
    assert main([*words, "--json"]) == code
    assert json.loads(capsys.readouterr().out)["state"] == state


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["good", "--claim", "better"], "neither a card's file nor a claim"),
        (["good", "--claim", "accuracy >= base"], "it needs a base"),
        (["good", "--claim", "accuracy >= base", "--base", "pocket"], "both be evaluations"),
        (["good", "--claim", "accuracy >= 80 %", "--base", "half"], "leave out --base"),
        (["good", "--claim", "accuracy >= 8 %", "--data", "gsm8k"], "with data sums, not with gsm"),
        (["good", "--claim", "accuracy >= 80 %", "--rollouts", "4"], "with rollouts 1, not with 4"),
        (["good", "--claim", "accuracy >= 80 %", "--confidence", "2"], "between 0 and 1"),
        (["good", "--claim", "none/README.md"], "cannot be read"),
        (["pocket", "--claim", "accuracy >= 80 %"], "no data set is named"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(folders, words, told, capsys):
    assert main(["verify", *words]) == 2
    error = capsys.readouterr().err
    assert told in error and "Traceback" not in error


@pytest.mark.skipif(
    not (pocket_path() / "config.json").is_file(), reason="the pocket model is not built yet"
)
def test_the_pocket_model_end_to_end(folders, capsys):
    words = ["--data", "pocket/test:64", "--rollouts", "1", "--max-tokens", "256"]
    assert main(["verify", "pocket", "--claim", "accuracy >= 30 %", *words]) == 0
    assert "accepted" in capsys.readouterr().out
    assert list((folders / "verifications" / "pocket-test-64" / "model" / "parts").iterdir())
