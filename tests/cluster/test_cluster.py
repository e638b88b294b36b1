"""verl's real trainer on the pocket model: Ray, two FSDP workers, two vLLM servers, no GPU.

`make test-cluster` makes the environment and runs this; it took 39 minutes on two busy cores.
"""

import re
import signal
import subprocess
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("verl", reason="make test-cluster makes the environment for this")

from command import crt, steps, told, wait_for

from crt.io import read_json, write_json
from crt.run import Run

HERE = Path(__file__).parent
KILLED_AFTER = 10  # steps; the last checkpoint before is that of step 8


@pytest.fixture(scope="module")
def two_stages(place) -> Run:
    """CRT, killed in the middle of Stage I and taken up again."""
    path = place["folder"] / "runs" / "crt"
    first = crt(place, "train", str(HERE / "pocket.toml"), "--out", str(path))
    wait_for(first, lambda: steps(path) >= KILLED_AFTER)
    first.send_signal(signal.SIGKILL)
    first.communicate()
    stores = (path.parent / "references").glob("*.sqlite")
    before = {store: store.stat().st_mtime_ns for store in stores}
    output = told(crt(place, "train", "--resume", str(path)))
    assert "checkpoints/step-" in output
    assert {store: store.stat().st_mtime_ns for store in before} == before  # sampled once
    return Run.open(path)


def rows_of(run: Run, stage: int) -> list[dict[str, Any]]:
    return [row for row in run.steps if row["stage"] == stage]


def test_killed_and_taken_up_it_has_every_step_once(two_stages):
    assert [row["step"] for row in two_stages.steps] == list(range(1, 33))
    assert two_stages.progress["finished"] is True
    log = (two_stages.path / "state" / "stage1" / "verl.log").read_text(errors="replace")
    assert re.search(r"Resuming from .*global_step_8", log)


def test_both_goals_of_the_switch_occur(two_stages):
    assert {row["goal"] for row in rows_of(two_stages, 1)} == {"length", "accuracy"}
    for row in rows_of(two_stages, 1):
        floor = row["reference_accuracy"] - row["slack"]
        assert (row["goal"] == "accuracy") == (row["accuracy"] < floor - 1e-9)


def test_sampler_and_trainer_have_the_same_weights(two_stages):
    """Rounding is 3e-4 at most here; two updates behind, probabilities differ by up to 0.4."""
    apart = [row["rollout_probs_diff_max"] for row in two_stages.steps]
    assert len(apart) == 32 and max(apart) < 5e-3 and np.median(apart) < 5e-5


def test_stage_two_starts_from_the_shortest_feasible_checkpoint(two_stages):
    progress = two_stages.progress
    assert [row["stage"] for row in two_stages.steps] == sorted(
        row["stage"] for row in two_stages.steps
    )
    assert rows_of(two_stages, 2)[0]["step"] == progress["stage_one_ended"] + 1
    assert two_stages.checkpoints[progress["stage_two_from"]]["final"]
    # its own reference: that of the checkpoint, not of the base
    base, short = rows_of(two_stages, 1)[0], rows_of(two_stages, 2)[0]
    assert short["reference_tokens"] < base["reference_tokens"]


def test_length_has_fallen_and_accuracy_is_held(two_stages):
    best = two_stages.checkpoints[two_stages.progress["recommended"]]
    assert best["tokens"] < 0.85 * best["reference_tokens"], best
    assert best["accuracy"] > best["reference_accuracy"] - 0.08, best
    first, last = rows_of(two_stages, 1)[:4], rows_of(two_stages, 1)[-4:]
    share = [np.mean([r["tokens"] / r["reference_tokens"] for r in some]) for some in (first, last)]
    assert share[1] < 0.9 * share[0]


def test_every_response_is_there(two_stages):
    for step in (1, 20, 32):
        kept = two_stages.rollouts(step)
        assert len(kept) == 64 and len({each["problem_id"] for each in kept}) == 8
        row = two_stages.steps[step - 1]
        assert sum(each["tokens"] for each in kept) == row["generated_tokens"]
        right = np.mean([each["verdict"] == "correct" for each in kept])
        assert right == pytest.approx(row["accuracy"])


def test_a_checkpoint_is_like_any_other(two_stages, place):
    """`crt eval` loads it with transformers and finds what the cluster's vLLM found."""
    best = two_stages.progress["recommended"]
    out = place["folder"] / "evaluation"
    words = ["--data", "pocket/validation:64", "--rollouts", "4", "--temperature", "1.0"]
    words += ["--top-p", "1.0", "--max-tokens", "256", "--out", str(out), "--engine", "fast"]
    told(crt(place, "eval", str(two_stages.checkpoint(best)), *words))
    figures = read_json(out / "figures.json")["sets"]["pocket/validation:64"]
    record = two_stages.checkpoints[best]
    assert figures["len"]["value"] == pytest.approx(record["tokens"], rel=0.15)
    assert figures["acc"]["value"] == pytest.approx(100 * record["accuracy"], abs=10)


@pytest.fixture(scope="module")
def primal_dual(place, two_stages) -> Run:
    """Asked to end after a few steps, then launched by hand: another rate for λ counts."""
    path = place["folder"] / "runs" / "primal_dual"
    method = 'method={type="primal_dual", multiplier_rate=1.0}'
    changes = [method, "schedule.steps=8", "validation.final_rollouts=0", "optim.kl=0.001"]
    words = [word for change in changes for word in ("--set", change)]
    recipe = str(HERE / "pocket.toml")
    first = crt(place, "train", recipe, "--out", str(path), *words)
    wait_for(first, lambda: steps(path) >= 3)
    first.send_signal(signal.SIGTERM)
    assert "Stopped and saved" in told(first, code=143)
    write_json(path / "changed.json", {"after": steps(path)})
    printed = told(crt(place, "train", "--resume", str(path), "--print"))
    command = printed[printed.index("VERL_USE_EXTERNAL_MODULES") :]
    rate = "+crt.objective.multiplier_rate"
    assert f"{rate}=1.0" in command and "trainer.resume_mode=resume_path" in command
    by_hand = command.replace(f"{rate}=1.0", f"{rate}=0.5")
    with (path / "by_hand.log").open("w") as log:
        subprocess.run(
            by_hand, shell=True, check=True, env=place["environment"], stdout=log,
            cwd=place["folder"],
        )  # fmt: skip
    told(crt(place, "train", "--resume", str(path)))
    return Run.open(path)


def test_lambda_follows_its_formula(primal_dual):
    changed = read_json(primal_dual.path / "changed.json")["after"]
    rows = primal_dual.steps
    assert [row["step"] for row in rows] == list(range(1, 9)) and 3 <= changed < 8
    assert rows[0]["multiplier"] == 1.0
    for now, after in pairwise(rows):
        # λ moves in the step itself, with the rate that counts in it
        rate = 1.0 if now["step"] <= changed else 0.5
        violation = now["reference_accuracy"] - now["accuracy"]
        assert after["multiplier"] == pytest.approx(max(0.0, now["multiplier"] + rate * violation))


def test_the_kl_is_to_the_base(primal_dual):
    """verl's reference worker and its actor round alike: the first step has no distance."""
    values = [row["kl"] for row in primal_dual.steps]
    assert abs(values[0]) < 1e-6 and values[-1] > 1e-4


def test_the_state_is_beside_verls_own(primal_dual):
    folder = sorted((primal_dual.path / "state" / "stage1" / "verl").glob("global_step_*"))[-1]
    assert read_json(folder / "crt.json")["memory"]["multiplier"] > 0
