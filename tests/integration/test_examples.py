"""The examples run as they stand, on a small budget."""

import json
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(name: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *arguments],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_minimal_loop_trains_both_stages():
    out = run(
        "minimal_loop.py", "--stage-one", "2", "--stage-two", "1", "--problems", "4",
        "--group-size", "4", "--held-out", "8",
    )  # fmt: skip
    lines = out.splitlines()
    assert [line.split("step")[0].strip() for line in lines[:3]] == ["Stage I"] * 2 + ["Stage II"]
    assert all(" length " in line or " accuracy " in line for line in lines[:3])
    assert [line.split()[0] for line in lines[3:]] == ["base", "stage1", "crt"]


def test_minimal_loop_is_one_page():
    assert len((EXAMPLES / "minimal_loop.py").read_text().splitlines()) <= 210


def test_own_verifier_grades_made_up_completions():
    lines = run("own_verifier.py").splitlines()
    verdicts = [line.split()[0] for line in lines]
    assert verdicts == ["correct", "wrong", "no_answer", "wrong", "wrong", "correct"]
    assert "5 of 5 words" in lines[0] and "without dog" in lines[3]


def test_trl_script_trains_both_stages(tmp_path):
    out = run(
        "trl_script.py", "--steps", "1", "--problems", "2", "--group-size", "4",
        "--max-tokens", "48", "--out", str(tmp_path),
    )  # fmt: skip
    assert "Stage 1 ends after 1 steps." in out and "Stage 2 ends after 1 steps." in out
    assert "'crt/margin'" in out and "'crt/goal_length'" in out
    assert (tmp_path / "stage2" / "final" / "model.safetensors").is_file()


def test_completions_of_others_are_scored_and_compared(tmp_path):
    out = run("score_completions.py", "--data", "pocket/test:300", "--out", str(tmp_path))
    assert "Against the base" in out and "│        passed │" in out
    assert (tmp_path / "short" / "figures.json").is_file()
    files = [str(tmp_path / f"{name}.jsonl") for name in ("base", "short")]
    again = run("score_completions.py", *files, "--data", "pocket/test:300", "--out", str(tmp_path))
    assert again == out


def cells() -> list[dict]:
    notebook = json.loads((EXAMPLES / "quickstart.ipynb").read_text(encoding="utf-8"))
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def test_the_notebook_was_executed_in_order_and_is_small():
    assert [cell["execution_count"] for cell in cells()] == list(range(1, len(cells()) + 1))
    outputs = [output for cell in cells() for output in cell["outputs"]]
    assert not [output for output in outputs if output["output_type"] == "error"]
    assert any("image/svg+xml" in output.get("data", {}) for output in outputs)
    assert "/tmp" not in json.dumps(outputs)
    assert (EXAMPLES / "quickstart.ipynb").stat().st_size < 200_000


def test_the_notebook_runs(monkeypatch, tmp_path):
    """As it stands, with fewer steps and problems."""
    monkeypatch.chdir(tmp_path)
    names: dict = {"__name__": "notebook"}
    for number, cell in enumerate(cells(), 1):
        code = "".join(cell["source"])
        code = code.replace("STEPS = 28", "STEPS = 4").replace("pocket/test:100", "pocket/test:8")
        code = code.replace("validation.problems=200", "validation.problems=8")
        exec(compile(code, f"cell {number}", "exec"), names)
    assert len(names["run"].steps) == 4
    assert names["short"].counts and names["before"].length > 0
