"""A run of version 0.1 as its own code wrote it, without weights: it is still read."""

import json
import tarfile
from pathlib import Path

import pytest

from crt.algorithm.two_stage import TwoStage
from crt.cli import main
from crt.errors import ConfigError
from crt.run import Run
from crt.training.train import train_run

ARCHIVE = Path(__file__).parents[1] / "support" / "run_of_0.1.tar.gz"


@pytest.fixture(scope="module")
def old_run(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("old")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    return folder / "runs" / "old"


def test_steps_rollouts_and_checkpoints_are_read(old_run):
    run = Run.open(old_run)
    assert [row["step"] for row in run.steps] == [1, 2, 3, 4]
    assert all("checksum" not in row for row in run.steps)
    assert len(run.rollouts(1)) == 2 * 4  # problems × rollouts
    assert sorted(run.checkpoints) == [2, 4] and run.progress["finished"]


def test_crt_report_reads_it(old_run, tmp_path):
    assert main(["report", str(old_run), "--out", str(tmp_path / "page.html")]) == 0
    assert "step-0004" in (tmp_path / "page.html").read_text()


def test_crt_compare_reads_its_evaluations(old_run, capsys):
    (series,) = (old_run / "evaluations").iterdir()
    assert (
        main(["compare", str(series / "base"), str(series / "step-0004"), "--format", "json"]) == 0
    )
    tables = {table["key"] for table in json.loads(capsys.readouterr().out)}
    assert {"table_all", "certificate"} <= tables


def test_its_method_is_the_switch_it_was(old_run):
    run = Run.open(old_run)
    assert isinstance(run.config.method, TwoStage) and run.config.method.shorten.rule == "switch"


def test_it_is_not_gone_on_with(old_run):
    run = Run.open(old_run)
    assert run.readable_only
    run.forget_progress("finished")
    with pytest.raises(ConfigError, match="can be read and evaluated, but not gone on with"):
        train_run(run)


def test_as_a_recipe_its_configuration_names_what_took_the_place_of_its_settings(old_run, capsys):
    assert main(["show", str(old_run / "config.json")]) == 2
    assert "shorten.smoothing was removed: leave it out" in capsys.readouterr().err
