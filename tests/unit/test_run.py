import json

import pytest

from crt.errors import ConfigError, CrtError, DataError
from crt.io import append_row, read_sealed, write_sealed
from crt.recipes import config_of
from crt.run import Run


def make_run(path) -> Run:
    config = config_of({
        "name": "test",
        "model": {"name": "pocket"},
        "data": {"train": ["pocket"]},
        "method": {"type": "crt"},
        "schedule": {"steps": 100},
    })  # fmt: skip
    return Run.create(path, config)


def test_a_run_is_opened_as_it_was_created(tmp_path):
    run = make_run(tmp_path / "run")
    assert Run.open(run.path).config == run.config
    assert "versions" in json.loads((run.path / "config.json").read_text())
    with pytest.raises(ConfigError, match="is there already and is not written over"):
        make_run(run.path)
    with pytest.raises(ConfigError, match="is not a run"):
        Run.open(tmp_path)


def test_a_changed_configuration_is_refused(tmp_path):
    file = make_run(tmp_path / "run").path / "config.json"
    file.write_text(file.read_text().replace('"steps": 100', '"steps": 200'))
    with pytest.raises(DataError, match=r"config\.json is damaged, or was edited"):
        Run.open(tmp_path / "run")


def test_a_run_with_settings_that_are_gone_names_its_version(tmp_path):
    file = make_run(tmp_path / "run").path / "config.json"
    versions = {"crt-train": "0.0.9"}
    write_sealed(file, read_sealed(file) | {"forgotten": 1, "versions": versions})
    with pytest.raises(ConfigError, match=r"forgotten is not a setting\..* by crt-train 0\.0\.9\."):
        Run.open(tmp_path / "run")


def test_rows_of_the_last_version_have_a_checksum_that_goes(tmp_path):
    run = make_run(tmp_path / "run")
    append_row(run.path / "steps.jsonl", {"step": 1, "goal": "length", "checksum": "0123456789ab"})
    run.add_step({"step": 2, "goal": "accuracy"})
    assert run.steps == [{"step": 1, "goal": "length"}, {"step": 2, "goal": "accuracy"}]


def test_what_was_written_after_a_step_is_taken_back(tmp_path):
    run = make_run(tmp_path / "run")
    for step in (1, 2, 3):
        run.add_step({"step": step})
        run.add_rollouts(step, [{"text": f"é {step}"}])
        run.checkpoint(step).mkdir()
    run.forget_after(2)
    assert [row["step"] for row in run.steps] == [1, 2]
    assert run.rollouts(2) == [{"text": "é 2"}]
    assert not run.rollouts_file(3).exists() and not run.checkpoint(3).exists()


def test_damaged_rollouts_are_named(tmp_path):
    run = make_run(tmp_path / "run")
    run.add_rollouts(1, [{"text": "a"}])
    file = run.rollouts_file(1)
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(DataError, match=r"step-0001\.jsonl\.zst is damaged"):
        run.rollouts(1)


def test_two_processes_do_not_write_one_run(tmp_path):
    run = make_run(tmp_path / "run")
    with run.locked(), pytest.raises(CrtError, match="by another process"), run.locked():
        pass


def test_progress_is_added_to_and_taken_back(tmp_path):
    run = make_run(tmp_path / "run")
    assert run.progress == {}
    run.set_progress(stage=2, stage_two_from=40)
    run.forget_progress("stage_two_from")
    assert run.progress == {"stage": 2}


def test_keys_of_earlier_versions_have_their_names_of_today(tmp_path):
    run = make_run(tmp_path / "run")
    old = {"step": 1, "generated": 40, "silent_groups": 0.5, "weights_apart": 1e-9}
    append_row(run.path / "steps.jsonl", old)
    names = {"step", "generated_tokens", "zero_advantage_groups", "rollout_probs_diff_max"}
    assert run.steps[0].keys() == names and run.steps[0]["generated_tokens"] == 40
