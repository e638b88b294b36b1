"""Starts verl's own command and waits for it, without losing it or its reason to end."""

import contextlib
import os
import re
import shlex
import signal as signals
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any

from crt.errors import EngineError
from crt.io import read_json
from crt.processes import at_signal, ends_with_parent
from crt.training.verl.data import StageFolder
from crt.training.verl.overrides import MODULES, PLUGIN, Overrides, arguments, modules

COMMAND = "verl.trainer.main_ppo"
POLL_SECONDS = 0.5
REASON = re.compile(r"^(?:\(\w+ pid=\d+[^)]*\) )?([\w.]+(?:Error|Exception|Interrupt): .*)$")


def environment(outer: Mapping[str, str] = os.environ) -> dict[str, str]:
    """What verl needs to find the plugin."""
    return {
        MODULES: modules(outer.get(MODULES, ""), PLUGIN),
        "RAY_USAGE_STATS_ENABLED": outer.get("RAY_USAGE_STATS_ENABLED", "0"),
        "HYDRA_FULL_ERROR": "1",
    }


def shown(overrides: Overrides) -> str:
    """The command for a shell, one override per line."""
    variables = [f"{name}={shlex.quote(value)}" for name, value in environment().items()]
    start = " ".join([*variables, f"python -m {COMMAND}"])
    return " \\\n  ".join([start, *(shlex.quote(word) for word in arguments(overrides))])


def launch(overrides: Overrides, folder: StageFolder, meanwhile: Callable[[], None]) -> bool:
    """Runs the training; False when it was asked to end and has saved.

    SIGTERM, and Ctrl-C once, ask it to save after the step under way; a second Ctrl-C ends it.
    """
    folder.stop.unlink(missing_ok=True)
    folder.stopped.unlink(missing_ok=True)
    with folder.log.open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", COMMAND, *arguments(overrides)],
            env={**os.environ, **environment()},
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C is for us: verl would end without saving
            preexec_fn=ends_with_parent(signals.SIGTERM),  # or it would go on writing the run
        )

    def end(number: int, _: Any) -> None:
        """A signal becomes a file that the trainer looks for, wherever in the cluster it runs."""
        if number == signals.SIGINT and folder.stop.exists():
            process.terminate()
            raise KeyboardInterrupt
        folder.stop.touch()

    with at_signal(end, signals.SIGTERM, signals.SIGINT):
        while process.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(POLL_SECONDS)
            meanwhile()
    interrupted = folder.stop.exists()
    folder.stop.unlink(missing_ok=True)  # whoever starts verl by hand now is not to end at once
    if process.returncode:
        raise EngineError(why_it_ended(folder, process.returncode))
    return not interrupted


def why_it_ended(folder: StageFolder, code: int) -> str:
    """What the trainer says of it, or the last error in verl's log."""
    if folder.stopped.exists():
        return read_json(folder.stopped)["reason"]
    last = ""
    with folder.log.open(errors="replace") as file:
        for line in file:
            if match := REASON.match(line.strip()):
                last = f" with: {match[1][:300]}"
    return f"verl ended with code {code}{last}. All its output is in {folder.log}."
