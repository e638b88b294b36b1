"""A run's steps as rows: the gap to the reference in points, its floor, tokens, λ."""

from collections.abc import Iterator, Sequence

from crt.report.sources import Row, RunView

GUARDED = ("crt", "crt_1s", "primal_dual")  # whose margin in Stage I is one of accuracy
SMOOTHING = 0.8
GOALS = {"length": "blue", "accuracy": "vermillion", "mixed": "green"}


def rows(run: RunView) -> list[Row]:
    """A row a step, accuracies in points; steps without any usable problem are left out."""
    return list(_rows(run.steps, run.method in GUARDED))


def _rows(steps: Sequence[Row], guarded: bool) -> Iterator[Row]:
    smooth: Row = {}
    for step in steps:
        if step.get("accuracy") is None:
            continue
        gap = 100 * (step["accuracy"] - step["reference_accuracy"])
        error = 100 * (step.get("standard_error") or 0.0)
        has_floor = guarded and step.get("stage", 1) == 1 and step.get("margin") is not None
        smooth = {
            name: value if name not in smooth else _mix(smooth[name], value)
            for name, value in {"gap": gap, "tokens": step["tokens"]}.items()
        }
        yield {
            "step": step["step"],
            "until": step["step"] + 1,
            "stage": f"Stage {'I' * int(step.get('stage', 1))}",
            "goal": step["goal"],
            "rectified": 100 * (step.get("rectified") or 0.0),
            "accuracy": 100 * step["accuracy"],
            "reference": 100 * step["reference_accuracy"],
            **{"gap": gap, "gap_low": gap - error, "gap_high": gap + error},
            "floor": gap - 100 * step["margin"] if has_floor else None,
            "tokens": step["tokens"],
            "reference_tokens": step["reference_tokens"],
            **{"smooth_gap": smooth["gap"], "smooth_tokens": smooth["tokens"]},
            "multiplier": step.get("multiplier"),
        }


def _mix(old: float, new: float) -> float:
    return SMOOTHING * old + (1 - SMOOTHING) * new


def thinned(found: Sequence[Row], most: int) -> list[Row]:
    """At most so many rows, evenly spaced; each reaches to the next."""
    every = max(1, -(-len(found) // most))
    kept = list(found[::every])
    ends = [row["step"] for row in kept[1:]] + [row["until"] for row in found[-1:]]
    return [{**row, "until": end} for row, end in zip(kept, ends, strict=True)]


def stage_two(found: Sequence[Row]) -> int | None:
    """The first step of Stage II."""
    return next((row["step"] for row in found if row["stage"] == "Stage II"), None)
