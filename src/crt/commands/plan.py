"""crt plan: tokens, memory, hours and cost of recipes on given hardware, before anyone pays."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from crt.commands import add_overrides

if TYPE_CHECKING:
    from crt.plan import Plan

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
    add_overrides(parser)


def run(args: argparse.Namespace) -> int:
    """Prints the estimate and what it rests on; runs nothing."""
    from crt.errors import ConfigError
    from crt.plan import default_count, device_of, make_plan
    from crt.recipes import load_recipe, recipe_files

    device = device_of(args.device)
    if args.devices is not None and args.devices < 1:
        raise ConfigError(f"--devices {args.devices}: at least 1")
    configs = [load_recipe(path, args.overrides) for path in recipe_files(args.recipes)]
    if args.scale and len(configs) > 1:
        raise ConfigError("--scale takes one recipe.")
    plans = [
        make_plan(
            config, device, args.devices or default_count(config, device), tokens=args.tokens,
            problems=args.problems, billions=args.billions, evaluation=args.evaluation,
        )
        for config in configs
    ]  # fmt: skip
    if args.scale:
        plans = print_scale(plans[0])
    elif len(plans) == 1:
        print_one(plans[0], args)
    else:
        print_many(plans, args)
    print("\nRests on:")
    for line in dict.fromkeys(line for plan in plans for line in plan.basis):
        print(f"- {line}")
    return 0


def print_one(plan: "Plan", args: argparse.Namespace) -> None:
    """One recipe in detail."""
    from crt.describe import amount, digits, duration
    from crt.plan import estimate, steps_of

    config, costs = plan.config, estimate(plan)
    rows = {
        "tokens sampled by the policy": amount(costs.policy.tokens),
        "tokens sampled by the reference": f"{amount(costs.guard.tokens)} "
        f"({config.reference.mode})",
        "tokens sampled in validation": amount(costs.validation.tokens),
        "memory on each device: training": f"{digits(costs.training_gb)} GB of "
        f"{plan.device.memory_gb:g}",
        "memory on each device: sampling": f"{digits(costs.sampling_gb)} GB",
        "time: sampling": duration(costs.policy.hours),
        "time: reference (the guard)": f"{duration(costs.guard.hours)} ({costs.guard_share:.0%})",
        "time: validation": duration(costs.validation.hours),
        "time: training": duration(costs.training.hours),
    }
    if args.evaluation:
        tested = costs.evaluation + costs.base_evaluation
        rows["time: evaluation"] = f"{duration(tested.hours)}, {amount(tested.tokens)}"
    device_hours = costs.total.hours * plan.devices
    rows["time in all"] = duration(costs.total.hours)
    rows["device hours in all"] = digits(device_hours)
    if args.price is not None:
        rows["cost"] = digits(device_hours * args.price)
    print(
        f"{config.name} on {plan.devices} × {args.device}, {amount(plan.shape.parameters)} "
        f"parameters, {steps_of(plan):.0f} steps of "
        f"{config.schedule.problems_per_step} × {config.sampling.group_size} rollouts"
    )
    for name, value in rows.items():
        print(f"  {name:34}{value}")
    if not costs.fits:
        print(DOES_NOT_FIT)


def print_many(plans: "Sequence[Plan]", args: argparse.Namespace) -> None:
    """A row per recipe, what they share once, and the total, as Markdown."""
    from crt.describe import amount, digits
    from crt.plan import estimate, plans_by_base

    costs = [(plan.config.name, estimate(plan).alone, plan.devices) for plan in plans]
    for most, *others in plans_by_base(plans):
        runs = f"once for {1 + len(others)} runs" if others else "for one run"
        base = f"base {most.config.model.name.rpartition('/')[2]}"
        shared = estimate(most)
        costs.append((f"{base}: reference rollouts, {runs}", shared.reference, most.devices))
        if args.evaluation:
            costs.append((f"{base}: evaluation", shared.base_evaluation, most.devices))
    tokens = sum(cost.tokens for _, cost, _ in costs)
    hours = sum(cost.hours for _, cost, _ in costs)
    device_hours = sum(cost.hours * devices for _, cost, devices in costs)
    numbers = [(name, c.tokens, c.hours, c.hours * devices) for name, c, devices in costs]
    numbers.append(("total", tokens, hours, device_hours))
    rows = [["recipe", "tokens sampled", "hours", "device hours"]]
    rows += [[name, amount(t), digits(h), digits(d)] for name, t, h, d in numbers]
    if args.price is not None:
        prices = ["cost", *(digits(number[-1] * args.price) for number in numbers)]
        rows = [[*row, price] for row, price in zip(rows, prices, strict=True)]
    print_table(rows)
    for plan in plans:
        if not estimate(plan).fits:
            print(f"\n{plan.config.name}: {DOES_NOT_FIT}")
    counts = " or ".join(map(str, sorted({plan.devices for plan in plans})))
    print(f"\nOne seed on {counts} × {args.device}, one run after the other.")


def print_scale(plan: "Plan") -> "list[Plan]":
    """A row per model and number of devices, as Markdown; the plans that it shows."""
    from crt.describe import digits
    from crt.plan import estimate, scale_plans

    head = (
        "model", "GPUs", "share a model", "GB in training", "GB in sampling", "hours sampling",
        "hours training", "guard, cached", "guard, fresh", "hours in all, cached",
    )  # fmt: skip
    rows: list[Sequence[str]] = [head]
    plans: list[Plan] = []
    for size, cached_plan, fresh_plan in scale_plans(plan):
        plans.append(cached_plan)
        cached, fresh = estimate(cached_plan), estimate(fresh_plan)
        hours = digits(cached.total.hours)
        rows.append([
            size,
            str(cached_plan.devices),
            str(cached_plan.config.cluster.tensor_parallel),
            digits(cached.training_gb),
            digits(cached.sampling_gb),
            digits((cached.policy + cached.validation).hours),
            digits(cached.training.hours),
            f"{digits(cached.guard.hours)} h ({cached.guard_share:.0%})",
            f"{digits(fresh.guard.hours)} h ({fresh.guard_share:.0%})",
            hours if cached.fits else f"({hours}) does not fit",
        ])  # fmt: skip
    print_table(rows)
    return plans


def print_table(rows: Sequence[Sequence[str]]) -> None:
    """Markdown; the first row is the head."""
    head, *body = rows
    for row in (head, ["---"] * len(head), *body):
        print(f"| {' | '.join(row)} |")
