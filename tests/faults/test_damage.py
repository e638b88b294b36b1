"""Files that change while nobody looks: never a silent difference, never a traceback."""

import random
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from lives import one_sentence
from processes import COUNTS, Fault
from safetensors import SafetensorError

from crt.errors import DataError
from crt.run import Run
from crt.training.checkpoints import check
from tests.support.trained import same

LONG = pytest.mark.faults
STAGE_TWO = 560  # events: the run is in Stage II, with two states of each stage


def flipped(path: Path, choice: random.Random) -> None:
    """One bit is another one."""
    content = bytearray(path.read_bytes())
    content[choice.randrange(len(content))] ^= 1 << choice.randrange(8)
    path.write_bytes(content)


def cut(path: Path, choice: random.Random) -> None:
    """The end is missing."""
    content = path.read_bytes()
    path.write_bytes(content[: choice.randrange(len(content))])


def gone(path: Path, _: random.Random) -> None:
    path.unlink()


DAMAGES: dict[str, Callable[[Path, random.Random], None]] = {
    "flipped": flipped,
    "cut": cut,
    "gone": gone,
}


@pytest.fixture(scope="session")
def half(faulty, tiny, tmp_path_factory) -> Path:
    """A run that was killed in Stage II."""
    run = tmp_path_factory.mktemp("half") / "run"
    fault = Fault("kill", STAGE_TWO, run.parent)
    words = ["train", tiny / "recipe.toml", "--out", run]
    assert faulty.live(words, fault).code == -9
    assert (run / "state" / "stage2").is_dir()
    return run


def copied(half: Path, to: Path) -> Path:
    """With its reference cache, and with hard links as they were."""
    subprocess.run(["cp", "-a", str(half.parent), str(to)], check=True)
    return to / half.name


def damaged_files(run: Path, pattern: str) -> list[Path]:
    found = sorted(path for path in run.glob(pattern) if path.is_file() and path.stat().st_size)
    assert found, pattern
    return found


def survives(nursery, whole: Path, run: Path, damaged: Path) -> None:
    """The run ends like one that nothing happened to, or somebody is told which file is bad."""
    ended = nursery.live(["train", "--resume", run])
    one_sentence(ended)
    if ended.code == 2:
        assert damaged.name in ended.err or damaged.parent.name in ended.err, ended.told
        return
    assert ended.code == 0, ended.told
    try:
        same(whole, run)
    except (DataError, SafetensorError, AssertionError, ValueError):
        assert damaged.name in ended.err + told_when_used(run, damaged), ended.told


def told_when_used(run: Path, damaged: Path) -> str:
    """What is said of a file that nothing has needed so far, by whoever comes to need it."""
    try:
        if damaged.parent.parent.name == "checkpoints":
            check(damaged.parent, damaged.parent / "record.json")
        Run.open(run).rollouts(int(damaged.name[5:9]))
    except (DataError, ValueError) as error:
        return str(error)
    return ""


def damage(nursery, half, whole, to: Path, choice, kind: str, pattern: str) -> None:
    run = copied(half, to)
    file = choice.choice(damaged_files(run, pattern))
    DAMAGES[kind](file, choice)
    print(f"{kind}: {file}")
    COUNTS[f"file {kind}"] += 1
    survives(nursery, whole, run, file)


PLACES = (
    "config.json", "progress.json", "steps.jsonl", "checkpoints/*/*", "checkpoints/*/record.json",
    "checkpoints/*/model.safetensors", "state/stage1/*/*", "state/stage2/*/*", "rollouts/*",
)  # fmt: skip


@pytest.mark.parametrize("place", ["state/stage2/*/*", pytest.param("config.json", marks=LONG)])
def test_a_bit(place, faulty, half, whole, tmp_path, choice):
    damage(faulty, half, whole, tmp_path / "copy", choice, "flipped", place)


@LONG
@pytest.mark.parametrize("again", range(3))
@pytest.mark.parametrize("kind", DAMAGES)
@pytest.mark.parametrize("place", PLACES)
def test_anything(place, kind, again, faulty, half, whole, tmp_path, choice):
    damage(faulty, half, whole, tmp_path / "copy", choice, kind, place)


@LONG
@pytest.mark.parametrize("again", range(6))
@pytest.mark.parametrize("kind", ["flipped", "cut"])
def test_the_reference_cache(kind, again, faulty, half, tmp_path, choice):
    """What is left of it is used, and the rest drawn again; or it is named."""
    run = copied(half, tmp_path / "copy")
    file = choice.choice(damaged_files(run.parent, "references/*.sqlite"))
    DAMAGES[kind](file, choice)
    COUNTS[f"file {kind}"] += 1
    ended = faulty.live(["train", "--resume", run])
    one_sentence(ended)
    assert ended.code == 0 or (ended.code == 2 and file.name in ended.err), ended.told


def test_the_checkpoint_that_stage_two_started_from(faulty, half, whole, tmp_path, choice):
    """Stage I makes it again, bit for bit, and Stage II begins anew."""
    run = copied(half, tmp_path / "copy")
    found = Run.open(run)
    file = found.checkpoint(found.progress["stage_two_from"]) / "model.safetensors"
    flipped(file, choice)
    ended = faulty.live(["train", "--resume", run])
    assert ended.code == 0 and f"{file} is damaged" in ended.err, ended.told
    same(whole, run)


@LONG
def test_a_damaged_checkpoint_is_not_evaluated(faulty, whole, tiny, tmp_path, choice):
    run = copied(whole, tmp_path / "copy")
    flipped(run / "checkpoints/step-0002/model.safetensors", choice)
    words = ["eval", run / "checkpoints/step-0002", "--data", tiny / "data.jsonl"]
    ended = faulty.live([*words, "--out", tmp_path / "out"])
    assert ended.code == 2 and "step-0002/model.safetensors is damaged" in ended.err
