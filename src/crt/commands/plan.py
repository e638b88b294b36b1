"""crt plan: tokens, memory, hours and cost of recipes on given hardware, before anyone pays."""

import argparse
from pathlib import Path

from crt.commands import add_overrides
from crt.errors import ConfigError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("recipes", type=Path, nargs="+", metavar="RECIPE", help="recipes (.toml), or their folder")
    add("--device", default="h100", help="h100 (default), a100-80, rtx4090, cpu, laptop, …")
    add("--devices", type=int, help="how many (the recipe's cluster, or 8; one computer)")
    add("--price", type=float, help="of one device per hour, for the cost")
    add("--tokens", type=float, help="the base model's mean response length")
    add("--problems", type=int, help="training problems, if they are not here")
    add("--billions", type=float, help="parameters, if the model is not here")
    add(
        "--evaluation", action="store_true",
        help="count the evaluation too, as bench-methods does it: the base and two checkpoints",
    )  # fmt: skip
    add(
        "--scale", action="store_true",
        help="a table: this recipe with models of 1.5B, 7B and 32B on 8, 64 and 512 devices",
    )  # fmt: skip
    add_overrides(parser)


def run(args: argparse.Namespace) -> int:
    """Prints the estimate and what it rests on; runs nothing."""
    from crt import plan
    from crt.recipes import load_recipe, recipe_files

    device = plan.device_of(args.device)
    if args.devices is not None and args.devices < 1:
        raise ConfigError(f"--devices {args.devices}: at least 1")
    configs = [load_recipe(path, args.overrides) for path in recipe_files(args.recipes)]
    if args.scale and len(configs) > 1:
        raise ConfigError("--scale takes one recipe.")
    plans = [
        plan.make_plan(
            config, device, args.devices or plan.default_count(config, device), tokens=args.tokens,
            problems=args.problems, billions=args.billions, evaluation=args.evaluation,
        )
        for config in configs
    ]  # fmt: skip
    if args.scale:
        plans = list(plan.scale_plans(plans[0]))
        print(*plan.describe_scale(plans, args.price), sep="\n")
    elif len(plans) == 1:
        print(*plan.describe_one(plans[0], args.price), sep="\n")
    else:
        print(*plan.describe_many(plans, args.price), sep="\n")
    print("\nRests on:")
    for line in dict.fromkeys(line for each in plans for line in each.basis):
        print(f"- {line}")
    return 0
