"""A disk that is full or read-only at any write: one sentence, exit code 2, and nothing is lost."""

import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from lives import FILES, evaluation, lived_through, one_sentence, training
from processes import COUNTS, Fault, until

from tests.support.trained import same

LONG = pytest.mark.faults


@LONG
@pytest.mark.parametrize("kind", ["full", "read-only"])
@pytest.mark.parametrize("chain", range(8))
def test_training(kind, chain, faulty, whole, tiny, tmp_path, choice):
    run = tmp_path / "run"
    assert lived_through(faulty, training(tiny, run), kind, choice, 2)
    same(whole, run)


@LONG
@pytest.mark.parametrize("kind", ["full", "read-only"])
def test_evaluation_at_every_write(kind, faulty, tiny, tmp_path):
    """Each call that changes a file fails once, in order."""
    whole, out = tmp_path / "whole", tmp_path / "out"
    counted = faulty.live(evaluation(tiny, whole), Fault("nothing", -1, whole))
    assert counted.code == 0 and counted.events
    for at in range(1, counted.events + 1):
        shutil.rmtree(out, ignore_errors=True)
        ended = faulty.live(evaluation(tiny, out), Fault(kind, at, out))
        one_sentence(ended)
        assert ended.code == 2 or (ended.code == 0 and (out / "figures.json").exists())
        assert faulty.live(evaluation(tiny, out)).code == 0
        for name in FILES:
            assert (out / name).read_bytes() == (whole / name).read_bytes(), name


@LONG
@pytest.mark.parametrize("kind", ["full", "read-only"])
def test_report(kind, faulty, whole, tmp_path, choice):
    run = tmp_path / "run"
    shutil.copytree(whole, run)
    words = ["report", run, "--figures", tmp_path / "figures", "--format", "svg"]
    for at in sorted(choice.sample(range(1, 40), 6)):
        ended = faulty.live(words, Fault(kind, at, tmp_path))
        one_sentence(ended)
        assert ended.code in (0, 2), ended.told


@contextlib.contextmanager
def mounted(folder: Path, megabytes: int) -> Iterator[Path]:
    """A small disk of its own; skipped where we may not mount one."""
    folder.mkdir()
    size = f"size={megabytes}m"
    command = ["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("a disk of its own cannot be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@LONG
def test_a_real_disk_that_fills_up_and_is_emptied(nursery, whole, tiny, tmp_path):
    """Somebody else fills it while a run is under way."""
    with mounted(tmp_path / "disk", 4) as disk:
        run, ballast = disk / "run", disk / "ballast"
        with nursery.living(["train", tiny / "recipe.toml", "--out", run]) as life:
            until(lambda: (run / "steps.jsonl").exists())
            with contextlib.suppress(OSError), ballast.open("wb") as file:
                while True:
                    file.write(bytes(4096))
                    file.flush()
        full = life.ended()
        assert full.code == 2, full.told
        one_sentence(full)
        COUNTS["train: a disk that fills up"] += 1
        ballast.unlink()
        assert nursery.live(["train", "--resume", run]).code == 0
        same(whole, run)


@LONG
def test_a_real_disk_that_is_read_only(nursery, whole, tiny, tmp_path):
    with mounted(tmp_path / "disk", 16) as disk:
        shutil.copytree(whole, disk / "run")
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        for words in (
            ["train", tiny / "recipe.toml", "--out", disk / "new"],
            ["train", "--resume", disk / "run"],
            ["report", disk / "run"],
            evaluation(tiny, disk / "evaluation"),
        ):
            ended = nursery.live(words)
            one_sentence(ended)
            assert ended.code == 2 and "ead-only" in ended.err, ended.told
            COUNTS[f"{words[0]}: a read-only disk"] += 1
