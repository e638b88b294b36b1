"""verl's command is started, followed and ended; a small stand-in for verl plays its part."""

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from crt.errors import EngineError
from crt.io import write_json
from crt.training.verl.data import StageFolder
from crt.training.verl.fit import launch


@pytest.fixture
def folder(tmp_path) -> StageFolder:
    return StageFolder(tmp_path)


def verl_is(monkeypatch, tmp_path: Path, body: str) -> None:
    """A package called verl whose `main_ppo` does this."""
    package = tmp_path / "elsewhere" / "verl" / "trainer"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").touch()
    (package / "__init__.py").touch()
    (package / "main_ppo.py").write_text(f"import os, pathlib, sys, time\n{body}\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "elsewhere"), prepend=os.pathsep)
    monkeypatch.setenv("VERL_USE_EXTERNAL_MODULES", "mine")


def test_overrides_and_modules_arrive(monkeypatch, tmp_path, folder):
    verl_is(monkeypatch, tmp_path, "print(sys.argv[1:], os.environ['VERL_USE_EXTERNAL_MODULES'])")
    assert launch({"a.b": 1, "c": "x y"}, folder, lambda: None) is True
    assert folder.log.read_text() == "['a.b=1', \"c='x y'\"] mine,crt.training.verl.trainer\n"


def test_a_failure_is_one_sentence_with_the_last_error(monkeypatch, tmp_path, folder):
    verl_is(monkeypatch, tmp_path, "raise ValueError('first')")
    with pytest.raises(EngineError, match=r"code 1 with: ValueError: first\. All .*verl\.log"):
        launch({}, folder, lambda: None)


def test_the_trainers_own_reason_counts(monkeypatch, tmp_path, folder):
    body = f'pathlib.Path({str(folder.stopped)!r}).write_text(\'{{"reason": "collapsed"}}\')'
    verl_is(monkeypatch, tmp_path, body + "\nsys.exit(1)")
    write_json(folder.stopped, {"reason": "of an earlier time"})
    with pytest.raises(EngineError, match=r"^collapsed$"):
        launch({}, folder, lambda: None)


def test_asked_to_end_it_saves_first(monkeypatch, tmp_path, folder):
    """The trainer, wherever it runs, sees a file; nothing is killed."""
    wait = f"while not pathlib.Path({str(folder.stop)!r}).exists(): time.sleep(0.01)"
    verl_is(monkeypatch, tmp_path, f"{wait}\nprint('saved')")
    asked: list[float] = []

    def meanwhile() -> None:
        if not asked:
            asked.append(time.monotonic())
            os.kill(os.getpid(), signal.SIGTERM)

    assert launch({}, folder, meanwhile) is False
    assert folder.log.read_text() == "saved\n" and not folder.stop.exists()


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's own signal is Linux's")
def test_it_ends_with_its_parent(monkeypatch, tmp_path, folder):
    """Killed, `crt train` must not leave a trainer behind that writes the run."""
    note = tmp_path / "pid"
    verl_is(monkeypatch, tmp_path, f"pathlib.Path({str(note)!r}).write_text(str(os.getpid()))\n"
            "time.sleep(600)")  # fmt: skip
    body = (
        "from pathlib import Path; from crt.training.verl.fit import launch; "
        "from crt.training.verl.data import StageFolder; "
        f"launch({{}}, StageFolder(Path({str(tmp_path)!r})), lambda: None)"
    )
    parent = os.spawnv(os.P_NOWAIT, sys.executable, [sys.executable, "-c", body])
    until(lambda: note.exists() and note.read_text())
    os.kill(parent, signal.SIGKILL)
    os.waitpid(parent, 0)
    child = int(note.read_text())
    until(lambda: not alive(child))


def until(is_so) -> None:
    for _ in range(3000):
        if is_so():
            return
        time.sleep(0.02)
    raise AssertionError("it did not come to this within a minute")


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
