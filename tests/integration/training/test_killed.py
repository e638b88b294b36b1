"""Killed with -9 at any moment and resumed, a run ends like one that nothing happened to."""

from pathlib import Path

import pytest

from crt.run import Run
from tests.support.trained import rows, same, train

LORA = ("[prompt]", "lora.rank = 2\n[prompt]")
FRESH = ("[reference]", '[reference]\nmode = "fresh"')


def recipe(tiny: Path, name: str, *changes: tuple[str, str]) -> str:
    """The tiny recipe with something else in it, by its file's name."""
    text = (tiny / "recipe.toml").read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    (tiny / f"{name}.toml").write_text(text)
    return f"{name}.toml"


def finished(tiny: Path, run: Path, recipe: str = "recipe.toml") -> Path:
    done = train(tiny, run, recipe=recipe)
    assert done.returncode == 0, done.stderr
    return run


def killed(tiny: Path, run: Path, moment: str, step: int, recipe: str = "recipe.toml") -> Path:
    """Killed, then resumed to its end."""
    assert train(tiny, run, moment, step, recipe).returncode == -9
    assert not Run.open(run).progress.get("finished")
    return finished(tiny, run)


@pytest.fixture(scope="module")
def whole(tiny, tmp_path_factory) -> Path:
    return finished(tiny, tmp_path_factory.mktemp("runs") / "whole")


@pytest.mark.parametrize(
    ("moment", "step"),
    [
        ("before the row", 2),
        ("in the middle of a checkpoint", 6),
        ("before the checkpoint", 8),
        ("between the stages", 0),
    ],
)
def test_killed_and_resumed_is_the_same_run(whole, tiny, tmp_path, moment, step):
    same(whole, killed(tiny, tmp_path / "killed", moment, step))


def test_killed_while_the_chosen_checkpoint_is_measured_again(whole, tiny, tmp_path):
    step = Run.open(whole).progress["recommended"]
    assert Run.open(whole).checkpoints[step]["final"]
    moment = "before the second measurement is written"
    same(whole, killed(tiny, tmp_path / "killed", moment, step))


def test_sigterm_saves_and_can_be_resumed(whole, tiny, tmp_path):
    run = tmp_path / "ended"
    stopped = train(tiny, run, "terminate", 5)
    assert stopped.returncode == 143
    assert f"crt train --resume {run}" in stopped.stdout
    assert len(rows(run)) == 5
    same(whole, finished(tiny, run))


def test_primal_dual_keeps_its_multiplier_through_a_kill(tiny, tmp_path):
    text = (tiny / "recipe.toml").read_text()
    method = text[text.index('type = "crt"') : text.index("[schedule]")]
    name = recipe(tiny, "pd", (method, 'type = "primal_dual"\n'))
    whole = finished(tiny, tmp_path / "whole", name)
    same(whole, killed(tiny, tmp_path / "killed", "before the row", 6, name))
    assert len({row["multiplier"] for row in rows(whole)}) > 1


@pytest.fixture(scope="module")
def adapter(tiny, tmp_path_factory) -> Path:
    name = recipe(tiny, "adapter", LORA)
    return finished(tiny, tmp_path_factory.mktemp("adapter") / "whole", name)


@pytest.mark.parametrize(
    ("moment", "step"),
    [("before the row", 3), ("in the middle of a checkpoint", 6), ("before the row", 7)],
)
def test_an_adapter_too(adapter, tiny, tmp_path, moment, step):
    """In Stage I, in a checkpoint of Stage II, and between two checkpoints of it."""
    run = killed(tiny, tmp_path / "killed", moment, step, "adapter.toml")
    assert (Run.open(run).checkpoint(8) / "adapter_model.safetensors").is_file()
    same(adapter, run)


def test_a_fresh_reference_is_drawn_as_before_the_kill(tiny, tmp_path):
    name = recipe(tiny, "fresh", FRESH)
    whole = finished(tiny, tmp_path / "whole", name)
    assert not list((tmp_path / "references").glob("*.sqlite"))
    same(whole, killed(tiny, tmp_path / "killed", "before the row", 6, name))
