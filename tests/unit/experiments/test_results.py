"""From runs and evaluations to tables: small numbers with the arithmetic beside them."""

import json
from pathlib import Path

import pytest

from crt.cli import main
from crt.evaluation import score
from crt.experiments.collect import collect, read_outcome
from crt.experiments.plan import (
    Comparison,
    Job,
    make_jobs,
    name_recipes,
    plan_comparison,
    write_plan,
)
from crt.experiments.results import (
    best_trial,
    build_tables,
    read_trial,
    render_tables,
    write_results,
    write_tuned,
)
from crt.io import write_json
from crt.run import RECORD, Run

PROBLEMS = 12
COLUMNS = ["Acc", "Len", "AES1", "AES2", "R_zip", "AD%", "AP%", "AI%", "worst seed", "seeds"]


def run_of(
    comparison: Comparison, job: Job, accuracy: float = 0.9, tokens: float = 50.0, stopped: str = ""
) -> None:
    """A run of four steps with one checkpoint, as training leaves it."""
    run = Run.create(comparison.run(job), job.config)
    for step in range(1, 5):
        run.add_step(
            {"step": step, "stage": 1, "generated_tokens": 100, "seconds": {"sample": 30.0}}
        )
    run.checkpoint(4).mkdir()
    record = {"accuracy": accuracy, "tokens": tokens, "margin": accuracy - 0.8}
    reference = {"reference_accuracy": 0.8, "reference_tokens": 100.0}
    write_json(run.checkpoint(4) / RECORD, record | reference)
    if stopped:
        run.set_progress(stopped=stopped)
    else:
        run.set_progress(finished=True, recommended=4, feasible=accuracy >= 0.8)


def evaluated(folder: Path, data: Path, right: int, tokens: int) -> None:
    """An evaluation in which the first `right` problems are solved, with so many tokens each."""
    lines = [
        {"id": f"q{i}", "response": rf"\boxed{{{i if i < right else 99}}}", "tokens": tokens}
        | {"stop": "eos"}
        for i in range(PROBLEMS)
    ]
    file = data.with_name(f"{folder.parent.name}-{folder.name}.jsonl")
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    score(file, [str(data)], folder)


@pytest.fixture
def data(tmp_path) -> Path:
    path = tmp_path / "sums.jsonl"
    rows = [{"id": f"q{i}", "question": f"say {i}", "answer": str(i)} for i in range(PROBLEMS)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def compared(recipes, data, tmp_path) -> Comparison:
    """Two methods and seeds: `two` saves half and loses nothing at seed 1, 3 of 12 at seed 2."""
    words = [str(recipes["two"]), str(recipes["grpo"])]
    jobs = make_jobs("methods", name_recipes(words, [], []), {}, [1, 2])
    comparison = plan_comparison(tmp_path / "out", "methods", jobs)
    write_plan(comparison)
    right = {"two-seed1": 12, "two-seed2": 9, "grpo-seed1": 12, "grpo-seed2": 12}
    tokens = {"two-seed1": 50, "two-seed2": 50, "grpo-seed1": 100, "grpo-seed2": 110}
    for job in jobs:
        run_of(comparison, job)
        evaluated(comparison.evaluation(job, 4), data, right[job.name], tokens[job.name])
    for seed in (1, 2):
        evaluated(comparison.base(seed), data, 12, 100)
    return comparison


def cells(comparison: Comparison, key: str, method: str) -> dict[str, object]:
    table = next(t for t in build_tables(collect(comparison)) if t.key == key)
    row = dict(table.rows)[method]
    return {column.title: cell for column, cell in zip(table.columns, row, strict=True)}


def test_a_row_a_method_seed_and_checkpoint(compared):
    write_results(compared)
    rows = json.loads((compared.path / "methods.json").read_text())
    assert len(rows) == 2 * 2 * 2
    row = rows[0]
    assert (row["method"], row["type"], row["seed"]) == ("two", "crt", 1)
    assert (row["checkpoint"], row["step"]) == ("recommended", 4)
    assert (row["acc"], row["len"], row["base_acc"], row["base_len"]) == (100, 50, 100, 100)
    assert (row["aes1"], row["aes2"]) == (0.5, 0.5)
    assert (row["ad"], row["ap"], row["ai"]) == (0, 100, 0)
    assert (row["tokens"], row["steps"], row["minutes"]) == (400, 4, 2.0)
    # seed 2: ΔA = −1/4 and half of the tokens are saved: 0.5 − 5/4 and 0.5 − 10/4
    other = next(r for r in rows if r["method"] == "two" and r["seed"] == 2)
    assert (other["aes1"], other["aes2"]) == pytest.approx((-0.75, -2.0))
    assert (other["ad"], other["ap"]) == (25, 75)
    # grpo got longer at seed 2 and no shorter at seed 1: no problem to count transitions over
    assert {r["ad"] for r in rows if r["method"] == "grpo"} == {None}


def test_the_table_has_means_over_seeds(compared):
    row = cells(compared, "methods_recommended", "two")
    assert list(row) == COLUMNS
    assert row["Acc"].interval.value == 87.5
    assert row["AES2"].interval.value == pytest.approx((0.5 - 2.0) / 2)
    assert row["worst seed"].text == "-25.00"
    assert row["seeds"].text == "2"
    base = cells(compared, "methods_recommended", "base")
    assert (base["Acc"].interval.value, base["Len"].interval.value) == (100, 100)


def test_the_interval_holds_both_seeds_and_problems(compared):
    row = cells(compared, "methods_recommended", "two")
    # both drawn seeds may be the first (chance 1/4), which solves every problem
    assert row["Acc"].interval.high == 100
    # both may be the second, and then problems vary: 75 % of 12 problems is below 75 as often
    assert row["Acc"].interval.low < 75
    # the length is the same at all seeds and problems
    assert row["Len"].interval[:3] == (50, 50, 50)


def test_the_best_is_marked_and_an_unsure_lead_too(compared):
    two, grpo = (cells(compared, "methods_recommended", name) for name in ("two", "grpo"))
    assert two["Len"].marks == {"best"}  # 50 against 100 and 110 at every seed and problem
    assert "best" in grpo["Acc"].marks
    assert "lead_unsure" in grpo["Acc"].marks  # two draws of seed 1 have no lead at all


def test_every_form_of_the_tables(compared, capsys):
    built = build_tables(collect(compared))
    for form in ("terminal", "md", "latex", "csv", "json"):
        assert "87.5" in render_tables(built, form, False)
    assert main(["bench-methods", str(compared.path), "--table", "md", "--intervals"]) == 0
    printed = capsys.readouterr().out
    assert r"| two | 87.50 \[" in printed
    assert "### What it took" in printed
    assert r"87.50 \[" in (compared.path / "results.md").read_text()


def test_a_stopped_run_is_a_result(compared, recipes, data):
    jobs = make_jobs("methods", name_recipes([str(recipes["short"])], [], []), {}, [1])
    comparison = plan_comparison(compared.path, "methods", jobs)
    write_plan(comparison)
    run_of(comparison, jobs[0], accuracy=0.1, tokens=3, stopped="it has collapsed.")
    evaluated(comparison.evaluation(jobs[0], 4), data, 0, 3)
    found = read_outcome(comparison.run(jobs[0]))
    assert found.over and found.status == "stopped" and not found.feasible
    assert found.checkpoints == {"recommended": 4, "last": 4}
    row = collect(comparison).of("short", "recommended")[0].row()
    assert (row["outcome"], row["stopped"], row["acc"]) == ("stopped", "it has collapsed.", 0)
    assert "was stopped at step 4" in render_tables(build_tables(collect(comparison)), "md", False)


def test_what_is_missing_is_named(compared, recipes):
    jobs = make_jobs("methods", name_recipes([str(recipes["short"])], [], []), {}, [1])
    comparison = plan_comparison(compared.path, "methods", jobs)
    write_plan(comparison)
    assert collect(comparison).missing == ("short-seed1: it is not begun",)
    assert "short-seed1: it is not begun" in render_tables(
        build_tables(collect(comparison)), "md", False
    )


def test_the_rule_of_tuning(recipes, tmp_path):
    found = name_recipes([str(recipes["two"])], [], [])
    grid = {"optim.learning_rate": [0.1, 0.2, 0.3, 0.4]}
    jobs = make_jobs("tune", found, {"two": grid}, [0])
    comparison = plan_comparison(tmp_path, "tune", jobs)
    write_plan(comparison)
    # against 0.8 and 100 tokens: 0.5 + 3·0.125, 0.9 − 10·0.125, 0.4 + 0, 0.99 but stopped
    measured = [(0.9, 50.0, ""), (0.7, 10.0, ""), (0.8, 60.0, ""), (0.8, 1.0, "alarm")]
    run_of(comparison, jobs[0], *measured[0])
    assert "not all runs are over" in write_tuned(comparison)[0]
    for job, values in zip(jobs[1:], measured[1:], strict=True):
        run_of(comparison, job, *values)
    tried = [read_trial(comparison, job) for job in jobs]
    assert [trial["aes2"] for trial in tried] == pytest.approx([0.875, -0.35, 0.4, 0.99])
    best = best_trial(tried)
    assert best is not None and best["values"] == {"optim.learning_rate": 0.1}
    assert write_tuned(comparison)[1] == "optim.learning_rate = 0.1"
    written = json.loads((tmp_path / "tuned.json").read_text())["recipes"]["two"]
    assert written["chosen"] == {"optim.learning_rate": 0.1} and len(written["tried"]) == 4


def test_a_variant_for_every_value_of_a_setting(recipes, data, tmp_path):
    found = name_recipes([str(recipes["two"])], [], [])
    grid = {"reference.rollouts": [8, 2]}  # 4 is the recipe's own
    jobs = make_jobs("methods", found, {"two": grid}, [1])
    comparison = plan_comparison(tmp_path / "out", "methods", jobs)
    write_plan(comparison)
    evaluated(comparison.base(1), data, 12, 100)
    for job, tokens in zip(jobs, (50, 60, 70), strict=True):
        run_of(comparison, job)
        evaluated(comparison.evaluation(job, 4), data, 12, tokens)
    write_results(comparison)
    rows = json.loads((comparison.path / "methods.json").read_text())
    recommended = [row for row in rows if row["checkpoint"] == "recommended"]
    assert [(row["method"], row["len"]) for row in recommended] == [
        ("two", 50),
        ("two reference.rollouts=8", 60),
        ("two reference.rollouts=2", 70),
    ]
    assert "two reference.rollouts=8" in render_tables(
        build_tables(collect(comparison)), "md", False
    )


def test_one_command_writes_what_a_page_needs(compared, tmp_path, capsys):
    folder = tmp_path / "docs" / "results"
    assert main(["bench-methods", str(compared.path), "--export", str(folder)]) == 0
    assert [Path(line).name for line in capsys.readouterr().out.split()] == [
        "methods.json", "methods_last.json", "methods.md", "methods.png",
    ]  # fmt: skip
    rows = json.loads((folder / "methods.json").read_text())
    # one object a method and seed, of the recommended checkpoint
    assert [(row["method"], row["seed"]) for row in rows] == [
        ("two", 1), ("two", 2), ("grpo", 1), ("grpo", 2),
    ]  # fmt: skip
    wanted = {"acc", "len", "aes1", "aes2", "r_zip", "ad", "ap", "ai", "base_acc", "base_len"}
    assert all(wanted <= row.keys() and row["checkpoint"] == "recommended" for row in rows)
    text = (folder / "methods.md").read_text()
    assert text == (compared.path / "results.md").read_text()
    assert r"| two | 87.50 \[" in text
    assert (folder / "methods.png").read_bytes().startswith(b"\x89PNG")


def test_what_cannot_be_exported_is_one_sentence(recipes, tmp_path, capsys):
    found = name_recipes([str(recipes["two"])], [], [])
    empty = plan_comparison(tmp_path / "empty", "methods", make_jobs("methods", found, {}, [1]))
    grid = {"two": {"optim.learning_rate": [0.1]}}
    tuned = plan_comparison(tmp_path / "tuned", "tune", make_jobs("tune", found, grid, [0]))
    for comparison, why in ((empty, "no result yet"), (tuned, "no results to export")):
        write_plan(comparison)
        assert main(["bench-methods", str(comparison.path), "--export", str(tmp_path)]) == 2
        assert why in capsys.readouterr().err
    assert main(["bench-methods", str(recipes["two"]), "--export", str(tmp_path)]) == 2
    assert "--export takes the folder of a comparison" in capsys.readouterr().err
