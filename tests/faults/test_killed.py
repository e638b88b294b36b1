"""Killed with -9 at hundreds of moments and begun again: the result is that of one whole life."""

import shutil
import sqlite3
from pathlib import Path

import pytest
from lives import FILES, Work, evaluation, lived_through, sampled, training
from processes import Fault

from tests.support.trained import same

LONG = pytest.mark.faults


@pytest.mark.parametrize("chain", [0, *(pytest.param(i, marks=LONG) for i in range(1, 22))])
def test_training(chain, faulty, whole, tiny, tmp_path, choice):
    run = tmp_path / "run"
    most = 260 if chain else 700  # in `make test` it is killed once or twice
    assert lived_through(faulty, training(tiny, run, most), "kill", choice, -9)
    same(whole, run)
    assert not list(tmp_path.rglob(".unfinished*"))
    assert sampled(tmp_path / "references") == sampled(whole.parent / "references")


@LONG
def test_the_reference_is_sampled_once(faulty, whole, tiny, tmp_path, choice):
    """Killed while it is drawn and stored: what was stored stays, the rest is drawn as ever."""
    run, references = tmp_path / "run", tmp_path / "references"
    kept: dict[tuple[str, str], str] = {}
    work = training(tiny, run)
    for _ in range(40):
        fault = Fault("kill", choice.randrange(1, 80), references)
        ended = faulty.live(work.words(), fault)
        assert ended.code in (0, -9), ended.told
        now = sampled(references) if references.exists() and tables(references) else {}
        assert kept.items() <= now.items()
        kept = now
        if ended.code == 0:
            break
    else:
        assert faulty.live(work.words()).code == 0
    same(whole, run)
    assert sampled(references) == sampled(whole.parent / "references")


def tables(references: Path) -> bool:
    """Whether every cache has come as far as to have its table."""
    for path in references.glob("*.sqlite"):
        with sqlite3.connect(path) as database:
            query = "select count(*) from sqlite_master where name = 'rollouts'"
            if not database.execute(query).fetchone()[0]:
                return False
    return True


@LONG
@pytest.mark.parametrize("chain", range(8))
def test_evaluation(chain, faulty, tiny, tmp_path, choice):
    """No part that was finished is written again."""
    whole, out, kept = tmp_path / "whole", tmp_path / "killed", {}
    assert faulty.live(evaluation(tiny, whole)).code == 0

    def parts() -> None:
        now = {path.name: path.stat().st_ino for path in out.glob("parts/[0-9]*")}
        if (out / "figures.json").exists():
            return  # they are joined, and go
        assert kept.items() <= now.items()
        kept.update(now)

    work = Work(lambda: evaluation(tiny, out), tmp_path / "killed", 40, parts)
    assert lived_through(faulty, work, "kill", choice, -9)
    for name in FILES:
        assert (out / name).read_bytes() == (whole / name).read_bytes(), name
    assert not list(out.rglob(".unfinished*"))


@LONG
def test_report(faulty, whole, tiny, tmp_path, choice):
    """The page and the figures are whole, old or absent; in the end they are all there."""
    run = tmp_path / "run"
    shutil.copytree(whole, run)
    page, figures = run / "report.html", tmp_path / "figures"
    words = ["report", run, "--figures", figures, "--format", "svg"]
    assert faulty.live(words).code == 0
    drawn = {path.name: path.read_bytes() for path in figures.iterdir()}
    length = len(page.read_text())
    for _ in range(10):
        fault = Fault("kill", choice.randrange(1, 4 * len(drawn) + 8), tmp_path)
        shutil.rmtree(figures, ignore_errors=True)
        assert faulty.live(words, fault).code in (0, -9)
        assert abs(len(page.read_text()) - length) < 100  # its date may be shorter
        for path in figures.glob("[!.]*"):
            assert path.read_bytes() == drawn[path.name]
    assert faulty.live(words).code == 0
    found = {path.name: path.read_bytes() for path in figures.glob("[!.]*")}
    assert found == drawn
