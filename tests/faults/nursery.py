"""Run as a program: forks a process for every order it reads, and says its id and how it ended."""

import ctypes
import importlib
import json
import os
import signal
import sys
from pathlib import Path

LOADED = (
    "crt.training.train", "crt.training.trl.fit", "crt.sampling.vllm", "peft",
    "crt.commands.eval", "crt.evaluation.backends", "crt.commands.report", "crt.reporting.report",
    "crt.commands.serve", "crt.levels.proxy", "crt.levels.local", "crt.algorithm.tabular",
)  # fmt: skip
ALARM = 600  # seconds: a process that hangs is ended, and its code tells


def main() -> None:
    library = ctypes.CDLL(sys.argv[1]) if sys.argv[1] else None
    for name in LOADED:
        importlib.import_module(name)
    import torch

    torch.set_num_threads(1)
    for line in sys.stdin:
        order = json.loads(line)
        pid = os.fork()
        if pid == 0:
            carry_out(order, library)
        print(pid, flush=True)
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def carry_out(order: dict, library: ctypes.CDLL | None) -> None:
    """In the new process."""
    said = Path(order["said"])
    (said / "events").unlink(missing_ok=True)
    for number, name in ((0, os.devnull), (1, "out"), (2, "err")):
        flags = os.O_RDONLY if number == 0 else os.O_CREAT | os.O_WRONLY | os.O_TRUNC
        os.dup2(os.open(said / name, flags), number)
    sys.stdin = os.fdopen(0)  # the orders are not for this process
    signal.signal(signal.SIGINT, signal.default_int_handler)  # make in the background ignores it
    signal.alarm(ALARM)
    if library is not None:
        library.faulty_clock(ctypes.c_long(order["clock"]))
        where = order.get("folder", "").encode()
        library.faulty_arm(where, order.get("kind", 0), ctypes.c_long(order.get("at", -1)))
    code = run(order["words"])
    if library is not None:
        (said / "events").write_text(str(library.faulty_events()))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # what a forked process would tidy up belongs to its parent


def run(words: list[str]) -> int:
    """As the command does; a traceback is printed, and is what tests look for."""
    from crt.cli import main as crt

    try:
        return crt(words)
    except SystemExit as error:
        return int(error.code or 0)
    except BaseException:
        import traceback

        traceback.print_exc()
        return 1


if __name__ == "__main__":
    main()
