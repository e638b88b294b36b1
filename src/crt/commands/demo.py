"""crt demo: the whole of CRT on the model inside the package, on this machine, in minutes."""

import argparse
from pathlib import Path

from crt.commands import add_overrides
from crt.errors import ConfigError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--seed", type=int, default=1, help="of data order and sampling (1)")
    add("--out", type=Path, help="the directory (runs/demo, with a seed its own)")
    add("--tabular", action="store_true", help="a policy that is a table: exact, in a second")
    add_overrides(parser)


def run(args: argparse.Namespace) -> int:
    """Trains, evaluates base, Stage I and CRT on held-out problems, and shows what came of it."""
    from crt.demo import (
        demo_settings,
        evaluate_checkpoints,
        evaluate_results,
        show_results,
        show_tabular,
    )
    from crt.pocket import path as pocket

    if args.tabular or not (pocket() / "config.json").is_file():
        show_tabular(args.seed)
        return 0
    from crt.cli import main
    from crt.processes import silence_libraries
    from crt.run import Run

    path = args.out or Path("runs") / ("demo" if args.seed == 1 else f"demo-seed{args.seed}")
    if path.exists() and args.overrides:
        raise ConfigError(f"{path} goes on as it was begun: for --set choose another with --out.")
    settings = [f"--set={setting}" for setting in demo_settings(args.seed, args.overrides)]
    begin = ["pocket", f"--out={path}", *settings]
    if code := main(["train", *([f"--resume={path}"] if path.exists() else begin)]):
        return code
    silence_libraries()
    demo = Run.open(path)
    evaluations = evaluate_results(demo)
    evaluate_checkpoints(demo)
    show_results(demo, evaluations)
    return 0
