"""The certificate's lines, by hand, and how thinking and answer stand apart."""

import numpy as np
import pytest

from crt.algorithm.statistics import gaffke_bound
from crt.cli import main
from crt.config import ContractConfig
from crt.evaluation.contract import certify, contract_table
from crt.evaluation.metrics import all_metrics
from crt.evaluation.store import load, open_store
from crt.evaluation.tables import metrics_table
from crt.types import Rollout, Verdict
from tests.unit.reporting.conftest import manifest

RELATIVE = {"metric": "accuracy", "at_least": "reference", "tolerance": 0.05}


def contract(*lines) -> ContractConfig:
    return ContractConfig.model_validate({"lines": lines})


def made(folder, **sets):
    """An evaluation: set → a list of problems, each a list of (right, tokens, thinking)."""
    said = manifest(folder.name, folder.name, "", 2)
    said["data"] = [{"name": name, "hash": "same", "problems": 0, "skipped": 0} for name in sets]
    rollouts = [
        Rollout(f"p{i}", "x", length, "eos", Verdict.CORRECT if right else Verdict.WRONG,
                dataset=name, index=r, thinking=thinking)
        for name, problems in sets.items()
        for i, problem in enumerate(problems)
        for r, (right, length, thinking) in enumerate(problem)
    ]  # fmt: skip
    with open_store(folder, said) as store:
        store.write_problems([])
        store.write_rollouts(rollouts)
        return store.finish(said)


def problems(count: int, right: int = 2, length: int = 100, thinking: int = 80):
    return [[(r < right, length, thinking) for r in range(2)] for _ in range(count)]


def test_a_line_of_one_set_has_its_own_bound(tmp_path):
    base = made(tmp_path / "base", gsm8k=problems(200), own=problems(200))
    ours = made(tmp_path / "ours", gsm8k=problems(200), own=problems(200, right=1))
    lines = contract({**RELATIVE, "data": "gsm8k"}, {**RELATIVE, "data": "own"})
    good, bad = certify(lines, ours, base)
    # two lines: each at 97.5 %; without a difference the bound is that of one problem more
    assert good.certificate.level == 0.975
    assert good.certificate.lower_bound == pytest.approx(0.025 ** (1 / 200) - 1, abs=1e-6)
    assert good.passed and (good.base, good.value, good.bound) == (100.0, 100.0, 100.0)
    assert (bad.value, bad.certificate.difference, bad.passed) == (50.0, -0.5, False)


def test_all_sets_together_count_alike_whatever_their_size(tmp_path):
    base = made(tmp_path / "base", a=problems(300), b=problems(100))
    ours = made(tmp_path / "ours", a=problems(300), b=problems(100, right=1))
    [line] = certify(contract(RELATIVE), ours, base)
    assert line.value == 75.0 and line.certificate.difference == pytest.approx(-0.25)


def test_pass_at_k_may_fall_while_accuracy_stays(tmp_path):
    # the base solves every problem once in two, the other half of them always and half never
    base = made(tmp_path / "base", own=problems(400, right=1))
    ours = made(tmp_path / "ours", own=[*problems(200, right=2), *problems(200, right=0)])
    pass_line = {"metric": "pass@2", "at_least": "reference", "tolerance": 0.1}
    accuracy, passed = certify(contract({**RELATIVE, "tolerance": 0.1}, pass_line), ours, base)
    assert (accuracy.base, accuracy.value) == (50.0, 50.0) and accuracy.passed
    assert (passed.base, passed.value) == (100.0, 50.0) and not passed.passed


def test_answers_keep_their_length_while_thinking_falls(tmp_path):
    base = made(tmp_path / "base", own=problems(60, length=100, thinking=80))
    ours = made(tmp_path / "ours", own=problems(60, length=60, thinking=40))
    same = {"metric": "answer", "at_least": "reference"}
    less = {"metric": "thinking", "at_most": "0.6 * reference"}
    answer, thinking = certify(contract(same, less), ours, base)
    assert (answer.base, answer.value, answer.passed) == (20.0, 20.0, True)
    assert (thinking.value, thinking.bound) == (40.0, 48.0)
    assert thinking.certificate.difference == 8.0 and thinking.passed


def test_who_thinks_to_the_cap_has_given_no_long_answer(tmp_path):
    """It counts whole where an answer may not get long, and not at all where not short."""
    base = made(tmp_path / "base", own=[*problems(30), *problems(30, length=102)])
    endless = [*problems(30, 0, 500, 500), *problems(30, 0, 502, 502)]
    ours = made(tmp_path / "ours", own=endless)
    least, most = {"at_least": "0.9 * reference"}, {"at_most": "2 * reference"}
    lines = contract({"metric": "answer"} | least, {"metric": "answer"} | most)
    assert [(r.value, r.passed) for r in certify(lines, ours, base)] == [(0, False), (501, False)]
    assert set(lines.measures().numbers) == {"answer", "answered"}


def test_without_a_spread_nothing_is_shown(tmp_path):
    """A function that says 1 thirty times may well say 0 one time in twenty."""
    own = tmp_path / "own.py"
    own.write_text("def one(rollout): return 1\n")
    base, ours = (made(tmp_path / name, own=problems(30)) for name in ("base", "ours"))
    lines = contract({"metric": f"{own}:one", "at_least": 0.97})
    [line] = certify(lines, ours, base)
    assert line.value == 1.0 and not line.passed and "its bound needs a spread" in line.note


def test_a_function_that_is_gone_is_a_note_and_no_failure(tmp_path):
    own = tmp_path / "own.py"
    own.write_text("def gone(rollout): return 1\n")
    base, ours = (made(tmp_path / name, own=problems(30)) for name in ("base", "ours"))
    lines = contract({"metric": f"{own}:gone", "at_least": 0.97}, RELATIVE)
    own.unlink()
    gone, accuracy = certify(lines, ours, base)
    assert (
        "own.py cannot be found" in gone.note
        and not gone.passed
        and accuracy.certificate is not None
    )


def test_a_function_of_a_run_is_not_run_where_it_is_only_read(tmp_path):
    trap = tmp_path / "trap.py"
    trap.write_text(f"open({str(tmp_path / 'sprung')!r}, 'w')\ndef one(rollout): return 1\n")
    base, ours = (made(tmp_path / name, own=problems(30)) for name in ("base", "ours"))
    lines = contract({"metric": f"{trap}:one", "at_least": 0.97}, RELATIVE)
    own, accuracy = certify(lines, ours, base, run_functions=False)
    assert not (tmp_path / "sprung").exists()
    assert own.certificate is None and "runs no code" in own.note
    assert accuracy.certificate is not None


def test_the_bound_of_tokens_is_that_of_a_normal_mean(tmp_path):
    lengths = np.arange(40) + 80
    rows = [[(True, int(n), 0), (True, int(n), 0)] for n in lengths]
    base = made(tmp_path / "base", own=problems(40, thinking=0))
    [line] = certify(contract({"metric": "tokens", "at_most": 110}),
                     made(tmp_path / "ours", own=rows), base)  # fmt: skip
    error = lengths.std(ddof=1) / 40**0.5
    assert line.certificate.lower_bound == pytest.approx(
        110 - lengths.mean() - 1.6449 * error, 1e-3
    )


def test_what_cannot_be_said_is_said_to_be_unknown(tmp_path):
    base = made(tmp_path / "base", own=problems(20))
    ours = made(tmp_path / "ours", own=problems(20))
    lines = contract(
        {**RELATIVE, "data": "gsm8k"},
        {"metric": "pass@4", "at_least": 0.5},
        {"metric": "tokens", "at_most": 300},
    )
    absent, few, small = certify(lines, ours, base)
    assert absent.note == "no data set of gsm8k was evaluated"
    assert few.note == "pass@4 needs 4 rollouts of a problem; there are 2."
    assert small.note == "20 problems: the bound of tokens needs 30 of each data set"
    assert not any(result.passed for result in (absent, few, small))
    (tmp_path / "ours" / "rollouts.jsonl.zst").unlink()
    assert "is missing" in certify(lines, load(tmp_path / "ours"), base)[0].note


def test_the_bounds_hold_together(tmp_path):
    """At most 5 % of evaluations say of three lines that are broken just so that one is kept."""
    rng, passed = np.random.default_rng(0), 0
    level = 1 - 0.05 / 3
    for _ in range(400):
        lost = rng.random((3, 150)) < 0.03  # accuracy falls by the tolerance, in each set
        passed += any(gaffke_bound([-each.astype(float)], level) >= -0.03 for each in lost)
    assert passed / 400 <= 0.05 + 2 * (0.05 * 0.95 / 400) ** 0.5


def test_compare_has_the_table(tmp_path, capsys):
    made(tmp_path / "base", own=problems(100))
    made(tmp_path / "ours", own=problems(100))
    recipe = tmp_path / "r.toml"
    text = 'base = "pocket"\n[[contract.lines]]\nmetric = "accuracy"\nat_least = "reference"\n'
    recipe.write_text(text + "tolerance = 0.05\n")
    words = ["compare", str(tmp_path / "base"), str(tmp_path / "ours"), "--format", "csv"]
    assert main([*words, "--contract", str(recipe)]) == 0
    found = [line for line in capsys.readouterr().out.splitlines() if line.startswith("contract,")]
    assert any("ours: accuracy at least reference" in line and "passed" in line for line in found)
    recipe.write_text('base = "pocket"\n')
    assert main([*words, "--contract", str(recipe)]) == 2
    assert "has no [[contract.lines]]" in capsys.readouterr().err


def test_thinking_and_answer_are_columns_where_the_model_marks_them(tmp_path):
    marked = made(tmp_path / "a", own=problems(4, length=100, thinking=80))
    table = metrics_table(all_metrics(marked.counts), "t")
    values = {c.title: cell.interval for c, cell in zip(table.columns, table.rows[0][1])}  # noqa: B905
    assert (values["Thinking"].value, values["Answer"].value) == (80.0, 20.0)
    plain = made(tmp_path / "b", own=problems(4, thinking=0))
    assert "thinking" not in all_metrics(plain.counts)["sets"]["own"].values
    titles = [c.title for c in metrics_table(all_metrics(plain.counts), "t").columns]
    assert "Thinking" not in titles


def test_an_evaluation_of_an_earlier_version_is_read(tmp_path):
    import json

    from crt.io import sha256

    folder = tmp_path / "old"
    made(folder, own=problems(4))
    rows = [json.loads(line) for line in (folder / "by_problem.jsonl").read_text().splitlines()]
    for row in rows:
        del row["thinking"]
    (folder / "by_problem.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    said = json.loads((folder / "figures.json").read_text())
    said["files"]["by_problem.jsonl"] = sha256(folder / "by_problem.jsonl")
    (folder / "figures.json").write_text(json.dumps(said))
    found = all_metrics(load(folder).counts)["sets"]["own"].values
    assert found["len"].value == 100.0 and "thinking" not in found


def test_the_table_says_how_levels_are_corrected(tmp_path):
    base, ours = (made(tmp_path / name, own=problems(9)) for name in ("base", "ours"))
    note = contract_table(contract(RELATIVE, {**RELATIVE, "data": "own"}), [ours], base).notes[0]
    assert "With 2 lines each bound is one-sided at 97.5 %" in note and "Bonferroni" in note
