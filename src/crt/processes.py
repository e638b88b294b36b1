"""This process and its children: signals, an end that is shared, libraries that keep quiet."""

import contextlib
import ctypes
import logging
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

DEATH_SIGNAL = 1  # Linux: PR_SET_PDEATHSIG of prctl(2)
POLL_SECONDS = 0.05
GRACE_SECONDS = 10.0  # for the other processes, when one of them has failed
RANK_OF = "CRT_RANK_OF"  # set for the processes that `run_ranks` starts, which speaks for them
GPU_DEVICES = ("/dev/nvidia0", "/dev/kfd", "/dev/dxg")


@contextlib.contextmanager
def at_signal(act: Callable[..., None], *numbers: signal.Signals) -> Iterator[None]:
    """Within it these signals do this and nothing else; outside the main thread, nothing new."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, act) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def ends_with_parent(number: signal.Signals) -> Callable[[], object] | None:
    """For `preexec_fn`: the child gets this signal when its parent is gone, killed or not."""
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl  # looked up here: after the fork nothing may be loaded
    return lambda: prctl(DEATH_SIGNAL, number)


def silence_libraries() -> None:
    """Turns off the libraries' own bars and notes, before TRL and transformers are loaded."""
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    if "CRT_VERBOSE" in os.environ:
        return
    warnings.filterwarnings("ignore", category=FutureWarning)
    logging.getLogger("trl").setLevel(logging.ERROR)
    from transformers.utils import logging as transformers_logging

    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()


def has_gpu() -> bool:
    """Whether there is an accelerator, found without loading torch."""
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1")
    return not hidden and any(Path(device).exists() for device in GPU_DEVICES)


def cpu_flags() -> frozenset[str]:
    """What the processor can do, as Linux lists it; nothing elsewhere."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return frozenset()
    return frozenset(next((line for line in lines if line.startswith("flags")), "").split())


def physical_cores() -> int:
    """Cores that this process may use; two hardware threads of one core count once."""
    if not hasattr(os, "sched_getaffinity"):
        return os.cpu_count() or 1
    cores: set[str] = set()
    for cpu in os.sched_getaffinity(0):
        siblings = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
        cores.add(siblings.read_text() if siblings.is_file() else str(cpu))
    return len(cores)


@dataclass(frozen=True)
class Ranks:
    """This process among those that `accelerate launch` or `torchrun` started."""

    rank: int = 0
    count: int = 1

    @classmethod
    def found(cls) -> "Ranks":
        """From the launcher's environment; one process without it."""
        return cls(int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1")))

    @property
    def writes(self) -> bool:
        """Only one process writes a run."""
        return self.rank == 0

    def wait(self) -> None:
        """Until every process has come here."""
        if self.count > 1:
            import torch
            from accelerate import PartialState

            on_cpu = not torch.cuda.is_available()
            if on_cpu:  # torch.load restores nothing to accelerate's own choice, "cpu:1"
                os.environ.setdefault("ACCELERATE_TORCH_DEVICE", "cpu")
            PartialState(cpu=on_cpu).wait_for_everyone()

    def gathered(self, rows: list[Any]) -> list[Any]:
        """The rows of every process, one process after the other, for all of them."""
        if self.count == 1:
            return rows
        from accelerate.utils import gather_object

        self.wait()  # which also makes the processes' group, if nothing has yet
        return gather_object(rows)


def lost_another_rank(error: BaseException) -> bool:
    """Whether a process of `run_ranks` failed only because another one is gone."""
    return RANK_OF in os.environ and "gloo" in str(error) and "remote worker" in str(error)


def run_ranks(arguments: Sequence[str], count: int) -> int:
    """`crt ARGUMENTS` in `count` processes that work as one; the exit code of the run.

    The first one speaks for all. What another says on standard error is shown if it fails first.
    SIGTERM is passed on; Ctrl-C reaches every process from the terminal.
    """
    [port] = free_ports(1)
    with contextlib.ExitStack() as stack:
        logs = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(count)]
        ranks = [_start_rank(arguments, rank, count, port, logs[rank]) for rank in range(count)]
        stack.callback(_end_ranks, ranks)

        def pass_on(number: int, _: object) -> None:
            if number == signal.SIGTERM:
                for rank in ranks:
                    rank.terminate()

        with at_signal(pass_on, signal.SIGTERM, signal.SIGINT):
            failed = _wait_for_ranks(ranks)
        if failed is None:
            return 0
        end = time.monotonic() + GRACE_SECONDS
        while any(rank.poll() is None for rank in ranks) and time.monotonic() < end:
            time.sleep(POLL_SECONDS)
        code = ranks[failed].returncode
        if code < 0:
            print(
                f"crt {arguments[0]}: process {failed + 1} of {count} was ended by signal "
                f"{-code}; the others were stopped. What is saved is whole.",
                file=sys.stderr,
            )
            return 128 - code
        if failed > 0 and ranks[0].poll() is None:
            logs[failed].seek(0)
            sys.stderr.write(logs[failed].read().decode(errors="replace"))
        return code


def _start_rank(
    arguments: Sequence[str], rank: int, count: int, port: int, log: IO[bytes]
) -> "subprocess.Popen[bytes]":
    environment = {
        RANK_OF: str(os.getpid()),
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(count),
        "LOCAL_WORLD_SIZE": str(count),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "OMP_NUM_THREADS": "1",
    }
    return subprocess.Popen(
        [sys.executable, "-m", "crt", *arguments],
        env=os.environ | environment,
        stdout=None if rank == 0 else subprocess.DEVNULL,
        stderr=None if rank == 0 else log,
        preexec_fn=ends_with_parent(signal.SIGKILL),
    )


def _wait_for_ranks(ranks: "Sequence[subprocess.Popen[bytes]]") -> int | None:
    """The first to fail, or None when all have ended well."""
    while True:
        codes = [rank.poll() for rank in ranks]
        failed = next((i for i, code in enumerate(codes) if code), None)
        if failed is not None or all(code == 0 for code in codes):
            return failed
        time.sleep(POLL_SECONDS)


def _end_ranks(ranks: "Sequence[subprocess.Popen[bytes]]") -> None:
    for rank in ranks:
        rank.kill()
    for rank in ranks:
        rank.wait()


def free_ports(count: int) -> list[int]:
    """Different ones of this machine, that nobody listens on."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for bound in sockets:
            bound.bind(("127.0.0.1", 0))
        return [bound.getsockname()[1] for bound in sockets]
