"""The examples run as they stand, on a small budget."""

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
