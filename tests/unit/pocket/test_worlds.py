"""Worlds by name: as models, as data sets, by level."""

from collections import Counter

import pytest

from crt.data.datasets import load, load_mixture, parse
from crt.errors import DataError, EngineError
from crt.pocket import DEFAULT, WORLDS, is_world, level_of, make_problems, path, sums, world_of
from crt.sampling import models
from crt.sampling.models import model_folder


@pytest.mark.parametrize("world", WORLDS)
def test_every_world_is_a_data_set_with_three_splits(world):
    loaded = load(f"{world}/validation:20", seed=1)
    assert len(loaded) == 20
    assert {problem.source.partition("/")[0] for problem in loaded} == {world}
    assert loaded.problems == load(f"{world}:20", "validation", seed=1).problems


def test_names_are_taken_apart():
    assert parse("pocket:chunks") == parse("pocket:chunks", "test")
    selection = parse("pocket:chunks@3,4/test:400")
    assert (selection.name, selection.split, selection.count) == ("pocket:chunks", "test", 400)
    assert selection.levels == (3, 4)
    assert parse("pocket:400").levels == ()


@pytest.mark.parametrize("world", WORLDS)
def test_levels_can_be_chosen(world):
    problems = load(f"{world}@1,3/train:60").problems
    assert Counter(map(level_of, problems)).keys() == {1, 3}
    assert problems[:20] == load(f"{world}@1,3/train:20").problems
    every = make_problems(world, "train", 200, 0)
    assert [p for p in every if level_of(p) in (1, 3)][:20] == list(problems[:20])


def test_levels_mix_as_data_sets_do():
    mixed = load_mixture(["pocket:chunks@1:30", "pocket:chunks@4:10"])
    assert Counter(map(level_of, mixed)) == {1: 30, 4: 10}


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("pocket:chunk", r"Did you mean `pocket:chunks`"),
        ("pocket@5", r"pocket has no level 5: its levels are 1 to 4"),
        ("gsm8k@1", r"no data set"),
        ("pocket:chunks/dev", r"no split 'dev'"),
    ],
)
def test_what_is_not_there_gets_a_sentence(name, sentence):
    with pytest.raises(DataError, match=sentence):
        load(name)


def test_a_level_with_too_few_problems_is_refused(monkeypatch):
    levels = (sums.Level((2, 2), (1, 3)), sums.Level((5, 5), (1, 9)))
    tiny = sums.SumsWorld("pocket:chunks", levels)
    monkeypatch.setitem(sums.WORLDS, "pocket:chunks", tiny)
    with pytest.raises(DataError, match="too few problems of these levels for 10 in test"):
        load("pocket:chunks@1/test:10")  # 1 + 1 to 3 + 3: nine in all splits


def test_names_of_models():
    assert [is_world(name) for name in (*WORLDS, "pocket:other")] == [True] * 4
    assert [is_world(name) for name in ("pocket/test", "pocket:4", "owner/pocket")] == [False] * 3
    assert model_folder(DEFAULT) == path()
    with pytest.raises(EngineError, match=r"no world 'pocket:chunk'. Did you mean"):
        model_folder("pocket:chunk")


def test_a_world_that_is_not_installed_says_how_to_make_it(tmp_path, monkeypatch):
    monkeypatch.setattr("crt.pocket.ASSETS", tmp_path)
    with pytest.raises(EngineError, match=r"tools.pocket build --world pocket:checks --install"):
        models.model_folder("pocket:checks")


def test_a_folder_tells_its_world(tmp_path):
    assert world_of(path()) == DEFAULT
    assert world_of(tmp_path) is None
    (tmp_path / "config.json").write_text('{"pocket_world": "pocket:checks"}')
    (tmp_path / "tokenizer.json").write_text((path() / "tokenizer.json").read_text())
    assert world_of(tmp_path) == "pocket:checks"
    (tmp_path / "tokenizer.json").write_text("{}")
    assert world_of(tmp_path) is None
