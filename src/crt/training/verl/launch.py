"""Starts verl's own command and waits for it, without losing it or its reason to end."""

import contextlib
import os
import re
import shlex
import signal as signals
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from crt.errors import EngineError
from crt.io import read_json
from crt.processes import at_signal, ends_with_parent
from crt.training.verl.folder import Folder
from crt.training.verl.overrides import MODULES, PLUGIN, modules
from crt.training.verl.words import Overrides, words

POLL_SECONDS = 0.5
REASON = re.compile(r"^(?:\(\w+ pid=\d+[^)]*\) )?([\w.]+(?:Error|Exception|Interrupt): .*)$")


def command(overrides: Overrides) -> list[str]:
    """What starts the training, to be called as it is."""
    return [sys.executable, "-m", "verl.trainer.main_ppo", *words(overrides)]


def environment(outer: Mapping[str, str] = os.environ) -> dict[str, str]:
    """What verl needs to find the plugin."""
    return {
        MODULES: modules(outer.get(MODULES, ""), PLUGIN),
        "RAY_USAGE_STATS_ENABLED": outer.get("RAY_USAGE_STATS_ENABLED", "0"),
        "HYDRA_FULL_ERROR": "1",
    }


def shown(overrides: Overrides) -> str:
    """The command for a shell, one override a line."""
    variables = [f"{name}={shlex.quote(value)}" for name, value in environment().items()]
    head = [*variables, "python -m verl.trainer.main_ppo"]
    return " \\\n  ".join([" ".join(head), *(shlex.quote(word) for word in words(overrides))])


def launch(overrides: Overrides, folder: Folder, meanwhile: Callable[[], None]) -> bool:
    """Runs the training; False when it was asked to end and has saved.

    SIGTERM, and Ctrl-C once, ask it to save after the step under way; a second Ctrl-C ends it.
    """
    folder.stop.unlink(missing_ok=True)
    folder.stopped.unlink(missing_ok=True)
    with folder.log.open("ab") as log:
        process = subprocess.Popen(
            command(overrides),
            env={**os.environ, **environment()},
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C is for us: verl would end without saving
            preexec_fn=ends_with_parent(signals.SIGTERM),  # or it would go on writing the run
        )
    with asked_to_end(folder, process):
        while process.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(POLL_SECONDS)
            meanwhile()
    asked = folder.stop.exists()
    folder.stop.unlink(missing_ok=True)  # whoever starts verl by hand now is not to end at once
    if process.returncode:
        raise EngineError(reason(folder, process.returncode))
    return not asked


def reason(folder: Folder, code: int) -> str:
    """Why training ended: what the trainer says of it, or the last error in verl's log."""
    if folder.stopped.exists():
        return read_json(folder.stopped)["reason"]
    found = _errors(folder.log)
    told = f" with: {found[-1][:300]}" if found else ""
    return f"verl ended with code {code}{told}. All it said is in {folder.log}."


def _errors(log: Path) -> list[str]:
    with log.open(errors="replace") as file:
        return [match.group(1) for line in file if (match := REASON.match(line.strip()))]


@contextlib.contextmanager
def asked_to_end(folder: Folder, process: "subprocess.Popen[bytes]") -> Iterator[None]:
    """A signal becomes a file that the trainer looks for, wherever in the cluster it runs."""

    def end(number: int, _: Any) -> None:
        if number == signals.SIGINT and folder.stop.exists():
            process.terminate()
            raise KeyboardInterrupt
        folder.stop.touch()

    with at_signal(end, signals.SIGTERM, signals.SIGINT):
        yield
