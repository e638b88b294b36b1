"""python -m tools.pocket: build in sittings, measure, read the card."""

import argparse
import json
import shutil

import pytest

from crt.errors import ConfigError, DataError
from crt.pocket import path
from tools.pocket import __main__ as pocket
from tools.pocket import supervised


def asked(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    pocket.add_arguments(parser)
    return parser.parse_args(words)


def test_prints_the_shipped_card(capsys):
    assert pocket.run(asked("card")) == 0
    assert capsys.readouterr().out.strip() == (path() / "README.md").read_text().strip()


def test_describes_again_what_was_measured(tmp_path):
    shutil.copytree(path(), tmp_path, dirs_exist_ok=True)
    for name in ("README.md", "hashes.json"):
        (tmp_path / name).write_text("old")
    assert pocket.run(asked("describe", "--model", str(tmp_path))) == 0
    for name in ("README.md", "figures.json", "hashes.json"):
        assert (tmp_path / name).read_text() == (path() / name).read_text()


def test_a_folder_without_a_card_is_refused(tmp_path):
    with pytest.raises(DataError, match="no model card"):
        pocket.run(asked("card", "--model", str(tmp_path)))


def test_measures_every_style(capsys):
    pocket.run(asked("measure", "--problems", "8", "--copies", "1", "--json"))
    figures = json.loads(capsys.readouterr().out)
    assert figures["problems"] == 8
    assert {row["rollouts"] for row in figures["styles"].values()} == {8}
    assert figures["styles"]["guess"]["length"] < figures["styles"]["redundant"]["length"]


def test_a_short_sitting_says_how_to_go_on(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(supervised, "BATCH", 4)
    assert pocket.run(asked("build", "--out", str(tmp_path), "--minutes", "0")) == 0
    said = capsys.readouterr().out
    assert "stopped at supervised step 1; the same command goes on from here" in said
    assert (tmp_path / "state" / "state.safetensors").exists()


def test_a_world_that_is_not_there_is_refused():
    with pytest.raises(DataError, match=r"no world 'pocket:chunk'. Did you mean `pocket:chunks`"):
        pocket.run(asked("card", "--world", "chunk"))


def test_no_steps_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="at least 1"):
        pocket.run(asked("build", "--out", str(tmp_path), "--supervised", "0"))
