"""crt demo --tabular: the method on a policy small enough to know everything about it."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from crt.algorithm.step import Row
    from crt.algorithm.tabular import Policy


def show(seed: int) -> int:
    """Trains each method for 400 steps and prints what became of accuracy and length."""
    from rich.console import Console
    from rich.table import Table

    results, rows = train_all(seed)
    base = results["base"]
    table = Table(title="32 problems, 4 ways of answering, 400 steps")
    for heading in ("policy", "accuracy %", "tokens", "AES1", "AES2"):
        table.add_column(heading, justify="left" if heading == "policy" else "right")
    for name, policy in results.items():
        table.add_row(name, *figures(policy, base))
    console = Console()
    console.print(table)
    for stage, title in ((1, "Stage I"), (2, "Stage II")):
        console.print(f"{title}, goal of each step: [cyan]·[/] length, [red]●[/] accuracy")
        console.print(ribbon([row for row in rows if row["stage"] == stage]))
    console.print(
        "Without a guard the short answers win and accuracy is lost. CRT stops shortening when "
        "accuracy falls below the reference and restores it first; Stage II then raises accuracy "
        "inside the length that was learnt."
    )
    return 0


def train_all(seed: int) -> tuple[dict[str, "Policy"], list["Row"]]:
    """Every method from the same base with the same reference; and the rows of two-stage CRT."""
    import numpy as np

    from crt.algorithm.objectives import LengthOnly, PrimalDual, Refine, Shorten
    from crt.algorithm.tabular import Training, fit, fit_two_stages, make_base
    from crt.algorithm.two_stage import Saturation

    training = Training()
    rng = np.random.default_rng(seed)
    base = make_base(32, rng)
    reference, _ = base.sample(training.reference_rollouts, rng)
    length_only, _ = fit(base, LengthOnly(), reference, training, rng)
    primal_dual, _ = fit(base, PrimalDual(), reference, training, rng)
    stage_one, crt, rows = fit_two_stages(base, Shorten(), Refine(), Saturation(), training, rng)
    named = {
        "base": base,
        "length only": length_only,
        "primal-dual": primal_dual,
        "CRT, Stage I": stage_one,
        "CRT, both stages": crt,
    }
    return named, rows


def figures(policy: "Policy", base: "Policy") -> tuple[str, ...]:
    """One row of the table."""
    from crt.algorithm.metrics import AES1, AES2, aes

    point = (policy.accuracy, policy.length, base.accuracy, base.length)
    scores = (f"{float(aes(*point, weights=weights)):+.2f}" for weights in (AES1, AES2))
    return f"{100 * policy.accuracy:.1f}", f"{policy.length:.0f}", *scores


def ribbon(rows: list["Row"], width: int = 80) -> str:
    """A mark a step, `width` a line."""
    marks = ["[red]●[/]" if row["goal"] == "accuracy" else "[cyan]·[/]" for row in rows]
    lines = ("".join(marks[i : i + width]) for i in range(0, len(marks), width))
    return "\n".join(lines)
