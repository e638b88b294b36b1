"""Servers that are started for the dial, waited for, and ended with it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import httpx

from crt.errors import EngineError
from crt.processes import ends_with_parent

START_SECONDS = 900.0  # loading and compiling a large model takes minutes
END_SECONDS = 30.0


@dataclass(frozen=True)
class Launch:
    """A server to start, and the levels it serves."""

    command: tuple[str, ...]
    url: str
    models: dict[str, str]  # level → name there


def start(planned: Sequence[Launch], note: Callable[[str], None]) -> list[subprocess.Popen[bytes]]:
    """One after the other, so that each sees what memory the others took."""
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for each in planned:
            note(" ".join(each.command))
            processes.append(_begun(each.command))
            wait_for(each.url, processes[-1], START_SECONDS)
    except BaseException:
        stop(processes)
        raise
    return processes


def _begun(command: Sequence[str]) -> subprocess.Popen[bytes]:
    """In a group of its own: Ctrl-C is for the dial, which lets streams finish first.

    Even if this process is killed its servers do not stay behind and keep the GPU's memory.
    """
    ending = ends_with_parent(signal.SIGTERM)
    return subprocess.Popen(command, stdout=sys.stderr, start_new_session=True, preexec_fn=ending)


def wait_for(url: str, process: "subprocess.Popen[Any]", seconds: float) -> None:
    """Returns when the server lists its models; says so if it ends or takes too long."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if process.poll() is not None:
            raise EngineError(f"the server ended with exit code {process.returncode}: see above.")
        try:
            if httpx.get(f"{url}/models", timeout=5.0, trust_env=False).status_code == 200:
                return
        except httpx.HTTPError:
            pass
        time.sleep(0.2)
    raise EngineError(f"the server at {url} was not ready within {seconds:g} seconds.")


def stop(processes: Sequence["subprocess.Popen[Any]"]) -> None:
    """Asks them to end, then makes them, with what they started."""
    for process in processes:
        process.terminate()
    for process in processes:
        try:
            process.wait(timeout=END_SECONDS)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
