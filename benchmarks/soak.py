"""Does a long run grow? Trains the pocket model for many steps and watches memory, files and disk.

    python benchmarks/soak.py --steps 2000

Small batches, because it is the steps that count: every kind of work of a run is in them, both
stages, checkpoints, their measurement, the cache of the reference and the grader's workers.
"""

import argparse
import json
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import psutil

RECIPE = Path(__file__).parents[1] / "recipes" / "pocket.toml"
SETTINGS = (
    "schedule.problems_per_step=4", "sampling.group_size=4", "schedule.save_every=50",
    "validation.problems=16", "validation.rollouts=1", "validation.final_rollouts=1",
    "reference.rollouts=2",
)  # fmt: skip
WARM_UP = 100  # steps after which every buffer has its size


@dataclass(frozen=True)
class Sample:
    """What the process and its children hold after so many steps."""

    step: int
    resident_mb: float
    workers_mb: float  # the grader's processes
    open_files: int
    threads: int
    state_mb: float  # the trainer's saved states: two a stage, one under way
    kept_mb: float  # rollouts, rows and checkpoints, which a run keeps for good
    seconds: float


def main() -> int:
    """Trains, watches, prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--every", type=int, default=50, help="steps between two looks")
    parser.add_argument("--out", type=Path, default=Path("runs/soak"))
    args = parser.parse_args()
    process = start(args.steps, args.out)
    samples = list(watched(process, args.out, args.every))
    (args.out / "soak.jsonl").write_text("".join(json.dumps(asdict(s)) + "\n" for s in samples))
    print(table(samples))
    print("\n".join(fits(samples)))
    return process.wait()


def start(steps: int, out: Path) -> subprocess.Popen[bytes]:
    """The command as a user gives it."""
    words = [sys.executable, "-m", "crt", "train", str(RECIPE), "--out", str(out)]
    for setting in (*SETTINGS, f"schedule.steps={steps}"):
        words += ["--set", setting]
    return subprocess.Popen(words)


def watched(process: subprocess.Popen[bytes], run: Path, every: int):
    """A sample whenever so many more steps are done."""
    begun, seen = time.monotonic(), 0
    while process.poll() is None:
        time.sleep(0.5)
        done = steps_of(run)
        if done >= seen + every:
            seen = done - done % every
            try:
                yield sample(psutil.Process(process.pid), run, done, time.monotonic() - begun)
            except psutil.NoSuchProcess:  # it has just ended
                return


def steps_of(run: Path) -> int:
    """Rows there are by now."""
    path = run / "steps.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def sample(process: psutil.Process, run: Path, step: int, seconds: float) -> Sample:
    """What is held now."""
    workers = sum(child.memory_info().rss for child in process.children(recursive=True))
    state = size(run / "state")
    return Sample(
        step,
        process.memory_info().rss / 1e6,
        workers / 1e6,
        process.num_fds(),
        process.num_threads(),
        state / 1e6,
        (size(run) - state) / 1e6,
        round(seconds, 1),
    )


def size(folder: Path) -> int:
    """Bytes on disk; a file with two names counts where it is met first."""
    seen: dict[int, int] = {}
    for path in folder.rglob("*"):
        try:
            found = path.stat()
        except FileNotFoundError:  # removed since it was listed
            continue
        seen[found.st_ino] = found.st_blocks * 512
    return sum(seen.values())


def table(samples: list[Sample]) -> str:
    """A row a sample."""
    lines = ["| step | resident MB | workers MB | open files | threads | state MB | kept MB |"]
    lines.append("|---|---|---|---|---|---|---|")
    for s in samples:
        lines.append(
            f"| {s.step} | {s.resident_mb:.0f} | {s.workers_mb:.0f} | {s.open_files} | "
            f"{s.threads} | {s.state_mb:.1f} | {s.kept_mb:.1f} |"
        )
    return "\n".join(lines)


def fits(samples: list[Sample]):
    """A straight line through each column after the warm-up: growth per 1000 steps."""
    late = [s for s in samples if s.step >= WARM_UP]
    if len(late) < 3:
        yield f"{len(late)} samples after {WARM_UP} steps are too few for a line."
        return
    steps = np.array([s.step for s in late])
    for name in ("resident_mb", "workers_mb", "open_files", "threads", "state_mb", "kept_mb"):
        values = np.array([getattr(s, name) for s in late], dtype=float)
        slope, start = np.polyfit(steps, values, 1)
        rest = values - (slope * steps + start)
        spread = (rest @ rest / max(1, len(late) - 2)) ** 0.5
        error = spread / np.sqrt(((steps - steps.mean()) ** 2).sum())
        yield f"{name}: {1000 * slope:+.2f} ± {1000 * error:.2f} per 1000 steps"


if __name__ == "__main__":
    sys.exit(main())
