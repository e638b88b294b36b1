"""What the figures were measured on, and how much of it somebody else was using."""

import os
import platform
import time
from importlib.metadata import PackageNotFoundError, version

import psutil

from harness.timing import cpu_seconds

PACKAGES = ("torch", "transformers", "trl", "math-verify", "vllm")


def machine(cores: int) -> dict[str, str | int | float]:
    """The hardware, the versions, and the cores that each contender has."""
    facts: dict[str, str | int | float] = {
        "processor": _processor(),
        "cores": os.cpu_count() or 1,
        "cores_used": cores,
        "memory_gb": round(psutil.virtual_memory().total / 2**30),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }
    for package in PACKAGES:
        try:
            facts[package] = version(package)
        except PackageNotFoundError:
            continue
    return facts


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            names = (line.partition(":")[2].strip() for line in lines if "model name" in line)
            return next(names, platform.processor())
    except OSError:
        return platform.processor() or platform.machine()


class Watch:
    """How much of the machine others use, from the moment this is made."""

    def __init__(self) -> None:
        self.begun, self.all_before, self.own_before = time.perf_counter(), _used(), cpu_seconds()

    def others(self) -> float:
        """Cores that other processes have used so far, on average."""
        seconds = max(time.perf_counter() - self.begun, 1e-9)
        used = (_used() - self.all_before) - (cpu_seconds() - self.own_before)
        return round(max(0.0, used) / seconds, 2)


def _used() -> float:
    """CPU seconds of the whole machine that were not idle."""
    times = psutil.cpu_times()
    return times.user + times.system + times.nice
