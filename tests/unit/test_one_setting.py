"""The experiment of one setting in many worlds: its figures by hand, and nothing is made twice."""

import pytest

from tools import one_setting
from tools.one_setting import (
    LEFT_OUT,
    METHODS,
    RECIPES,
    WORLDS,
    carry_out,
    jobs_of,
    optimum_length,
    page,
    points,
    saving,
    score,
    summaries,
    summary,
)


def row(world="stories", method="crt", seed=1, acc=80.0, len=60.0, checkpoint="last", **changes):
    made = {
        "world": world, "method": method, "seed": seed, "checkpoint": checkpoint, "acc": acc,
        "base_acc": 80.0, "len": len, "base_len": 100.0, "optimum_len": 50.0, "ad": 10.0,
        "error": 0.8,
    }  # fmt: skip
    return made | changes


def test_a_run_is_judged_by_its_base_and_its_optimum():
    run = row(acc=78.0)
    assert points(run) == -2.0
    assert saving(run) == pytest.approx(0.8)  # 40 of 50 tokens
    assert score(run) == pytest.approx(0.4 - 10 * 0.025)  # 40 % shorter, 2.5 % less accurate


def test_every_world_weighs_the_same_however_many_seeds_it_has():
    rows = [
        row(acc=82.0, len=50.0),
        row("chunks", seed=1, acc=78.0),
        row("chunks", seed=2, acc=79.0),
    ]
    found = summary(rows)
    assert found["points"] == pytest.approx((2.0 - 1.5) / 2)
    assert found["saved"] == pytest.approx((1.0 + 0.8) / 2)
    assert found["lowest"] == -2.0
    assert found["kept"] == pytest.approx(2 / 3)  # one point below is still kept
    assert found["worst"] == pytest.approx((score(rows[1]) + score(rows[2])) / 2)


def test_the_world_of_the_divisor_does_not_count_and_the_best_worst_world_is_first():
    rows = [
        row(LEFT_OUT, acc=20.0),
        row(len=90.0),
        row(method="kimi", len=70.0),
        row(method="kimi", len=10.0, checkpoint="recommended"),
    ]
    assert [(r["method"], r["runs"]) for r in summaries(rows, "last")] == [("kimi", 1), ("crt", 1)]


def test_the_optimum_gets_longer_with_the_accuracy_that_is_wanted():
    lengths = [optimum_length(WORLDS["chunks"], accuracy) for accuracy in (60.0, 80.0, 90.0, 100.0)]
    assert lengths == sorted(set(lengths))
    hard = optimum_length(WORLDS["long chunks"], 80.0)
    assert hard > optimum_length(WORLDS["chunks"], 80.0)


@pytest.mark.parametrize("world", WORLDS)
def test_all_methods_do_the_same_work(world):
    jobs = jobs_of(WORLDS[world], METHODS, seed=3)
    assert len({job.name for job in jobs}) == len(METHODS)
    assert {job.config.schedule.tokens for job in jobs} == {700_000}
    assert {job.config.evaluation.data for job in jobs} == {(f"{WORLDS[world].data}/test:2000",)}
    assert {job.seed for job in jobs} == {3}


def test_the_picture_is_drawn(tmp_path, monkeypatch):
    monkeypatch.setattr(one_setting, "PICTURE", tmp_path / "worlds.png")
    one_setting.picture([row(), row(method="grpo", acc=82.0, len=95.0), row(world=LEFT_OUT)])
    assert (tmp_path / "worlds.png").read_bytes().startswith(b"\x89PNG")


def test_methods_have_recipes():
    assert {f"{name}.toml" for name in METHODS} <= {file.name for file in RECIPES.iterdir()}


def test_a_run_whose_rows_are_published_is_not_made_again(tmp_path, monkeypatch):
    results = tmp_path / "worlds.json"
    one_setting.write_json(results, [row("chunks"), row("chunks", checkpoint="recommended")])
    monkeypatch.setattr(one_setting, "RESULTS", results)
    before = results.read_text()
    assert carry_out(tmp_path / "runs", ["chunks"], ["crt"], [1], 1)
    assert not (tmp_path / "runs").exists()
    assert one_setting.rows_so_far() == one_setting.read_json(results)
    assert before.count("chunks") == 2


def test_a_short_run_becomes_rows_and_a_page(tmp_path, monkeypatch):
    monkeypatch.setattr(one_setting, "RESULTS", tmp_path / "worlds.json")
    monkeypatch.setattr(one_setting, "TEST", 20)
    settings = (
        "schedule.tokens=20000", "schedule.steps=3", "schedule.save_every=1",
        "schedule.problems_per_step=2", "validation.problems=8", "validation.finalists=1",
        "validation.final_rollouts=2", "evaluation.rollouts=1", "reference.rollouts=2",
        "schedule.average=1", "optim.learning_rate=1e-9", 'preflight.skip=["solves"]',
    )  # fmt: skip
    monkeypatch.setattr(one_setting, "SETTINGS", settings)
    assert carry_out(tmp_path / "runs", ["chunks"], ["crt_1s"], [1], 1)
    rows = one_setting.rows_so_far()
    assert {r["checkpoint"] for r in rows} == {"last", "recommended"}
    assert all(r["world"] == "chunks" and r["optimum_len"] > 0 for r in rows)
    text = page(rows)
    assert "| crt_1s | 1 |" in text and "nan" not in text
    # killed before the last of its evaluations it is no result yet: the other row would be missing
    first, *others = (tmp_path / "runs").glob(
        "chunks/seed1/evaluations/crt_1s-seed1/*/figures.json"
    )
    assert others
    first.unlink()
    (tmp_path / "worlds.json").unlink()
    one_setting.harvest(tmp_path / "runs", "chunks")
    assert one_setting.rows_so_far() == []
