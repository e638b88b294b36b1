"""Contenders in turn on the same machine: wall and CPU seconds for a counted amount of work."""

import gc
import resource
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import psutil

Contender = Callable[[int], float]  # the number of the repeat → units of work done


@dataclass(frozen=True)
class Timing:
    """One repeat of one contender."""

    wall: float
    cpu: float  # of this process and all its children
    work: float

    @property
    def wall_each(self) -> float:
        """Seconds a unit of work."""
        return self.wall / self.work

    @property
    def cpu_each(self) -> float:
        """CPU seconds a unit of work."""
        return self.cpu / self.work


Timings = dict[str, list[Timing]]


def interleaved(contenders: Mapping[str, Contender], repeats: int, warm_up: int = 1) -> Timings:
    """Every contender in every repeat, forwards and backwards in turn; warm-ups are not kept.

    What slows the machine down for a while then slows all of them, and nobody is always first.
    """
    timings: Timings = {name: [] for name in contenders}
    for repeat in range(-warm_up, repeats):
        order = list(contenders)
        for name in order if repeat % 2 == 0 else reversed(order):
            timing = timed(contenders[name], repeat)
            if repeat >= 0:
                timings[name].append(timing)
    return timings


def timed(contender: Contender, repeat: int) -> Timing:
    """One repeat; rubbish of the one before is not this one's to clear away."""
    gc.collect()
    cpu, wall = cpu_seconds(), time.perf_counter()
    work = contender(repeat)
    wall, cpu = time.perf_counter() - wall, cpu_seconds() - cpu
    return Timing(wall, cpu, work)


def cpu_seconds() -> float:
    """CPU seconds so far of this process, its children, and those of them that have ended."""
    usage = (resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN))
    ended = sum(each.ru_utime + each.ru_stime for each in usage)
    return ended + sum(map(_seconds, psutil.Process().children(recursive=True)))


def _seconds(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:  # ended a moment ago: its parent has its seconds
        return 0.0
    return times.user + times.system + times.children_user + times.children_system
