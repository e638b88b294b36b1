"""crt plan: tokens, memory, hours and cost of recipes on given hardware, before anyone pays."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from crt.plan import Cost, Place, Plan

FAMILY = "deepseek-ai/DeepSeek-R1-Distill-Qwen-"  # of --scale
SIZES, COUNTS = ("1.5B", "7B", "32B"), (8, 64, 512)
DOES_NOT_FIT = (
    "It does not fit: lower optim.micro_batch or sampling.max_tokens, raise "
    "cluster.tensor_parallel, add devices, or train an adapter (model.lora)."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Recipes, the hardware, and what is known better than the assumptions."""
    parser.add_argument(
        "recipes", type=Path, nargs="+", metavar="RECIPE", help="recipes (.toml), or their folder"
    )
    parser.add_argument(
        "--device", default="h100", help="h100 (default), a100-80, rtx4090, cpu, laptop, …"
    )
    parser.add_argument(
        "--devices", type=int, help="how many (the recipe's cluster, or 8; one computer)"
    )
    parser.add_argument("--price", type=float, help="of one device per hour, for the cost")
    parser.add_argument("--tokens", type=float, help="the base model's mean response length")
    parser.add_argument("--problems", type=int, help="training problems, if they are not here")
    parser.add_argument("--billions", type=float, help="parameters, if the model is not here")
    parser.add_argument(
        "--evaluation", action="store_true",
        help="count the evaluation too, as bench-methods does it: the base and two checkpoints",
    )  # fmt: skip
    parser.add_argument(
        "--scale", action="store_true",
        help="a table: this recipe with models of 1.5B, 7B and 32B on 8, 64 and 512 devices",
    )  # fmt: skip
    parser.add_argument("--set", action="append", default=[], dest="overrides", metavar="KEY=VALUE")


def run(args: argparse.Namespace) -> int:
    """Prints the estimate and what it rests on; runs nothing."""
    from crt.errors import ConfigError
    from crt.plan import Known, device_of, places, plan, usual_count
    from crt.recipes import load_recipe, recipe_files

    device = device_of(args.device)
    if args.devices is not None and args.devices < 1:
        raise ConfigError(f"--devices {args.devices}: at least 1")
    known = Known(args.tokens, args.problems, args.billions)
    configs = [load_recipe(path, args.overrides) for path in recipe_files(args.recipes)]
    if args.scale:
        if len(configs) > 1:
            raise ConfigError("--scale takes one recipe.")
        models = [(size, FAMILY + size) for size in SIZES]
        print_scale(list(places(configs[0], models, COUNTS, device, known)))
        return 0
    plans = [
        plan(
            config, device, args.devices or usual_count(config, args.device), known, args.evaluation
        )
        for config in configs
    ]
    if len(plans) == 1:
        print_one(plans[0], args)
    else:
        print_many(plans, args)
    return 0


def print_one(plan: "Plan", args: argparse.Namespace) -> None:
    """One recipe in detail."""
    from crt.plan import steps_of

    config, found = plan.config, plan.estimate
    schedule, total = config.schedule, found.total
    rows = [
        ("tokens sampled by the policy", amount(found.policy.tokens)),
        ("tokens sampled by the reference", f"{amount(found.guard.tokens)} "
         f"({config.reference.mode})"),
        ("tokens sampled in validation", amount(found.validation.tokens)),
        ("memory on each device: training", f"{digits(found.training_gb)} GB of "
         f"{plan.device.memory_gb:g}"),
        ("memory on each device: sampling", f"{digits(found.sampling_gb)} GB"),
        ("time: sampling", duration(found.policy.hours)),
        ("time: reference (the guard)", f"{duration(found.guard.hours)} "
         f"({found.guard_share:.0%})"),
        ("time: validation", duration(found.validation.hours)),
        ("time: training", duration(found.training.hours)),
    ]  # fmt: skip
    if args.evaluation:
        tested = found.evaluation + found.base_evaluation
        rows.append(("time: evaluation", f"{duration(tested.hours)}, {amount(tested.tokens)}"))
    rows += [
        ("time in all", duration(total.hours)),
        ("device hours in all", digits(total.hours * plan.devices)),
    ]
    if args.price is not None:
        rows.append(("cost", digits(total.hours * plan.devices * args.price)))
    print(
        f"{config.name} on {plan.devices} × {args.device}, {amount(plan.shape.parameters)} "
        f"parameters, {steps_of(config, plan.assume):.0f} steps of "
        f"{schedule.problems_per_step} × {config.sampling.group_size} rollouts"
    )
    for name, value in rows:
        print(f"  {name:34}{value}")
    if not plan.fits:
        print(DOES_NOT_FIT)
    print_basis(plan.basis)


def print_many(plans: "Sequence[Plan]", args: argparse.Namespace) -> None:
    """A row per recipe, what they share once, and the total, as Markdown."""
    from crt.plan import Cost, shared_costs

    lines: list[tuple[str, Cost, int]] = [
        (each.config.name, each.estimate.alone, each.devices) for each in plans
    ]
    for each in shared_costs(plans):
        runs = f"once for {each.runs} runs" if each.runs > 1 else "for one run"
        base = f"base {each.model.rpartition('/')[2]}"
        lines.append((f"{base}: reference rollouts, {runs}", each.reference, each.devices))
        if args.evaluation:
            lines.append((f"{base}: evaluation", each.evaluation, each.devices))
    total = Cost()
    for _, cost, _ in lines:
        total += cost
    hours = sum(cost.hours * devices for _, cost, devices in lines)
    head = ["recipe", "tokens sampled", "hours", "device hours"]
    head += ["cost"] if args.price is not None else []
    body = [cells(name, cost, cost.hours * devices, args.price) for name, cost, devices in lines]
    print_table([head, *body, cells("total", total, hours, args.price)])
    for each in plans:
        if not each.fits:
            print(f"\n{each.config.name}: {DOES_NOT_FIT}")
    counts = sorted({each.devices for each in plans})
    print(
        f"\nOne seed on {' or '.join(map(str, counts))} × {args.device}, one run after the other."
    )
    print_basis(list(dict.fromkeys(line for each in plans for line in each.basis)))


def cells(name: str, cost: "Cost", device_hours: float, price: float | None) -> list[str]:
    """One row of the table."""
    row = [name, amount(cost.tokens), digits(cost.hours), digits(device_hours)]
    return row if price is None else [*row, digits(device_hours * price)]


def print_scale(found: "Sequence[Place]") -> None:
    """A row per model and number of devices, as Markdown."""
    head = (
        "model", "GPUs", "share a model", "GB in training", "GB in sampling", "hours sampling",
        "hours training", "guard, cached", "guard, fresh", "hours in all, cached",
    )  # fmt: skip
    rows: list[Sequence[str]] = [head]
    for place in found:
        cached, fresh, plan = place.cached.estimate, place.fresh.estimate, place.cached
        hours = digits(cached.total.hours)
        rows.append([
            place.name,
            str(plan.devices),
            str(plan.config.cluster.tensor_parallel),
            digits(cached.training_gb),
            digits(cached.sampling_gb),
            digits((cached.policy + cached.validation).hours),
            digits(cached.training.hours),
            f"{digits(cached.guard.hours)} h ({cached.guard_share:.0%})",
            f"{digits(fresh.guard.hours)} h ({fresh.guard_share:.0%})",
            hours if plan.fits else f"({hours}) does not fit",
        ])  # fmt: skip
    print_table(rows)
    basis = [line for place in found for line in place.cached.basis]
    print_basis(list(dict.fromkeys(basis)))


def print_table(rows: Sequence[Sequence[str]]) -> None:
    """Markdown; the first row is the head."""
    head, *body = rows
    for row in (head, ["---"] * len(head), *body):
        print(f"| {' | '.join(row)} |")


def print_basis(lines: Sequence[str]) -> None:
    """What the figures rest on."""
    print("\nRests on:")
    for line in lines:
        print(f"- {line}")


def digits(value: float) -> str:
    """Three significant digits: 1,450, 64.6, 0.0123."""
    if value == 0:
        return "0"
    if abs(value) >= 100:
        return f"{float(f'{value:.3g}'):,.0f}"
    from math import floor, log10

    return f"{value:.{2 - floor(log10(abs(value)))}f}"


def amount(count: float) -> str:
    """A number of tokens or parameters: 646 million."""
    for size, name in ((1e9, " billion"), (1e6, " million")):
        if count >= size:
            return digits(count / size) + name
    return digits(count)


def duration(hours: float) -> str:
    """In hours, minutes or seconds, whichever is the largest that gives at least 1."""
    if hours >= 1:
        return f"{digits(hours)} h"
    if hours * 60 >= 1:
        return f"{digits(hours * 60)} min"
    return f"{digits(hours * 3600)} s"
