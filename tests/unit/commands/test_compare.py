"""crt compare from the command line."""

import argparse
import csv
import io
import json

import pytest

from crt.commands import compare as command
from crt.errors import ConfigError, DataError
from crt.evaluation import comparison_frame, figures_frame, load, problems_frame, score


def arguments(*words):
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return parser.parse_args([str(word) for word in words])


def completions(path, right, tokens):
    """20 problems, 2 responses each: `right(i)` of them correct."""
    rows = [
        {
            "id": f"p{i}",
            "response": f"so \\boxed{{{i if r < right(i) else -1}}}",
            "tokens": tokens,
            "stop": "eos",
        }
        for i in range(20)
        for r in range(2)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def folders(tmp_path):
    problems = tmp_path / "twenty.jsonl"
    rows = [{"id": f"p{i}", "question": f"{i}?", "answer": str(i)} for i in range(20)]
    problems.write_text("".join(json.dumps(row) + "\n" for row in rows))
    made = {
        "base": (lambda i: i % 3, 100),
        "short": (lambda i: i % 3, 60),
        "worse": (lambda i: 0, 10),
    }
    for name, (right, tokens) in made.items():
        file = completions(tmp_path / f"{name}.jsonl", right, tokens)
        settings = {"max_tokens": 512, "temperature": 0.6, "top_p": 0.95}
        score(file, [str(problems)], tmp_path / name, name=name, **settings)
    return [tmp_path / name for name in made]


def test_the_tables(folders, capsys):
    assert command.run(arguments(*folders)) == 0
    told = capsys.readouterr()
    # base: i % 3 of 2 right: 7 × 0 + 7 × 1 + 6 × 2 = 19 of 40 = 47.5 %
    assert "47.50" in told.out
    # short: same accuracy, 60 for 100 tokens: 0.4; worse: 0.9 − 5 and 0.9 − 10
    assert "0.4000" in told.out and "-4.1000" in told.out and "-9.1000" in told.out
    assert "not passed" in told.out and "≈" in told.out
    # equal to the base on 20 problems: 299 without a difference would be enough
    assert "short: To certify an equally good policy within 1 point needs about 299" in told.out
    assert "may differ in what is not known of them: prompt" in told.err


@pytest.mark.parametrize("form", ["markdown", "latex", "csv", "json"])
def test_every_form_has_the_same_figures(folders, capsys, form):
    command.run(arguments(*folders, "--format", form))
    out = capsys.readouterr().out
    if form == "csv":
        rows = list(csv.DictReader(io.StringIO(out)))
        [aes] = [
            r
            for r in rows
            if (r["table"], r["method"], r["figure"]) == ("table_all", "short", "aes2")
        ]
        assert float(aes["value"]) == pytest.approx(0.4)
    elif form == "json":
        tables = {table["key"]: table for table in json.loads(out)}
        cells = tables["stability_twenty"]["cells"]
        # all 20 got shorter, 13 of them had something to lose
        [ad] = [c for c in cells if (c["method"], c["figure"]) == ("worse", "ad")]
        assert (ad["value"], ad["problems"]) == (65.0, 20)
    else:
        assert "0.4000" in out


def test_names_base_and_tolerance(folders, capsys):
    base, short, _ = folders
    words = (f"A={short}", f"B={base}", "--base", "B", "--tolerance", 100, "--format", "markdown")
    command.run(arguments(*words))
    out = capsys.readouterr().out
    assert out.index("| B |") < out.index("| A |") and "| passed |" in out


def test_what_cannot_be_compared(folders, tmp_path):
    with pytest.raises(DataError, match="is not an evaluation"):
        command.run(arguments(folders[0], tmp_path))
    manifest = json.loads((folders[1] / "manifest.json").read_text())
    manifest["grader"] = "0.1"
    (folders[1] / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(DataError, match=r"differ in the grader: .* --anyway"):
        command.run(arguments(*folders))
    assert command.run(arguments(*folders, "--anyway")) == 0
    with pytest.raises(ConfigError, match="not a number of points"):
        command.run(arguments(*folders, "--tolerance", -1))


def test_data_frames_in_a_few_lines(folders):
    evaluations = [load(folder) for folder in folders]
    figures = figures_frame(evaluations)
    acc = figures[(figures.figure == "acc") & (figures.kind == "sets")].set_index("evaluation")
    assert acc.value.to_dict() == {"base": 47.5, "short": 47.5, "worse": 0.0}
    problems = problems_frame(evaluations)
    assert len(problems) == 60
    assert problems.groupby("evaluation").len.mean().to_dict() == {
        "base": 100,
        "short": 60,
        "worse": 10,
    }
    cells = comparison_frame(evaluations)
    assert set(cells.method) == {"base", "short", "worse"}
