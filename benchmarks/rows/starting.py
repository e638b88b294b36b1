"""`crt --help` and `import crt` beside an interpreter that does nothing."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from harness.results import Row, compared
from harness.timing import Contender, interleaved

from . import Setting

STARTS = 5  # in a repeat: one takes a few milliseconds
COMMANDS = {
    "python": [sys.executable, "-c", "pass"],
    "start-help": [str(Path(sys.executable).with_name("crt")), "--help"],
    "start-import": [sys.executable, "-c", "import crt"],
}


def rows(setting: Setting) -> Iterator[Row]:
    """Processes started one after another."""
    wanted = {
        name: command for name, command in COMMANDS.items() if name in {"python", *setting.wanted}
    }
    repeats = setting.repeats if setting.small else max(setting.repeats, 15)
    timings = interleaved({name: starts(command) for name, command in wanted.items()}, repeats)
    for name in COMMANDS:
        if setting.wants(name):
            what = "`crt --help`" if name == "start-help" else "`import crt`"
            yield compared(
                name, what, "python -c pass", timings[name], timings["python"],
                goal=3, better="lower", unit="ms", scale=1000,
            )  # fmt: skip


def starts(command: list[str]) -> Contender:
    """A contender that runs the command a few times."""

    def run(_: int) -> float:
        for _ in range(STARTS):
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return STARTS

    return run
