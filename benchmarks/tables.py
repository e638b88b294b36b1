"""Every method at one setting on seven tabular worlds: who keeps accuracy without being tuned?

    python benchmarks/tables.py                         all methods, a few minutes on one core
    python benchmarks/tables.py crt_1s short_rl --worlds
    python benchmarks/tables.py --candidates            what was tried: docs/notes/method.md

A world is a table of answering styles whose accuracy and length are known, so figures are exact
and there is an optimum: the shortest policy as accurate as the base. `saved` is the share of that
possible saving; `lowest` the accuracy of the worst run against the base, in points; `kept` the
share of runs that end at most one point below the base. Everything is the last iterate's.
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from table_candidates import CANDIDATES

from crt.algorithm.metrics import AES2, aes
from crt.algorithm.objectives import Estimator, Guarded, PrimalDual, Refine, Shorten
from crt.algorithm.registry import METHODS, Method
from crt.algorithm.tabular import WORLDS, Policy, Training, fit, fit_two_stages, make_base, optimum
from crt.algorithm.two_stage import Saturation, TwoStage

Array = NDArray[np.float64]

BATCHES = {  # problems × rollouts a step, and the rate that goes with them
    "16x8": Training(steps=300, group_size=8, rate=0.8, problems_per_step=16),
    "32x16": Training(steps=300, group_size=16, rate=0.5, problems_per_step=32),
    "128x16": Training(steps=300, group_size=16, rate=0.25, problems_per_step=128),
}
PRESCRIBED: dict[str, Estimator] = {  # by the method; the recipes have the same
    "o1_pruner": "whitened",
    "arora_zanette": "centred",
    "dler": "batch",
    "prime_rl": "centred",
    "intern_s2": "centred",
}
UNTOLD = ("l1_exact", "l1_max")  # a table cannot read a budget
SWITCHED = TwoStage(Shorten(rule="switch"), Refine(rule="switch"), Saturation(window=20))


def contenders() -> dict[str, Method]:
    """Every method at its defaults, the paper's readings, and two methods under the guard."""
    methods = {name: kind() for name, kind in METHODS.items() if name not in (*UNTOLD, "guarded")}
    return {
        "crt": TwoStage(),
        "crt_1s": Shorten(),
        "crt_paper": SWITCHED,
        "crt_1s_paper": SWITCHED.shorten,
        "primal_dual": PrimalDual(),
        "guarded length_only": Guarded(),
        "guarded shorter_better": Guarded(METHODS["shorter_better"]()),
        "guarded kimi": Guarded(METHODS["kimi"]()),
        "guarded prime_rl": Guarded(METHODS["prime_rl"]()),
        "guarded short_rl": Guarded(METHODS["short_rl"]()),
    } | methods


@dataclass(frozen=True)
class Outcome:
    """A run against its base and its optimum."""

    points: float  # of accuracy, against the base
    ratio: float  # of length
    aes: float
    saved: float  # of what the optimum saves


def run(
    name: str, method: Method, world: str, training: Training, seed: int, average: bool
) -> Outcome:
    """One method on one world; every method sees the same base and the same reference."""
    rng = np.random.default_rng([seed, 7])
    problems = max(64, training.problems_per_step or 64)
    base = make_base(problems, rng, WORLDS[world])
    _, shortest = optimum(base)
    if isinstance(method, TwoStage):
        stages = (method.shorten, method.refine, method.saturation)
        policy = fit_two_stages(base, *stages, training, rng)[1]
    else:
        reference, _ = base.sample(training.reference_rollouts, rng, training.noise)
        estimator = PRESCRIBED.get(name.removeprefix("guarded "), "group_std")
        path: list[Policy] = []
        policy, _ = fit(base, method, reference, training, rng, estimator=estimator, path=path)
        if average:
            last = [each.logits for each in path[-(len(path) // 3) :]]
            policy = Policy(base.task, np.mean(last, axis=0))
    return outcome(policy, base, shortest)


def outcome(policy: Policy, base: Policy, shortest: float) -> Outcome:
    """Exact, because a table's expectations are."""
    score = aes(policy.accuracy, policy.length, base.accuracy, base.length, AES2)
    return Outcome(
        100 * (policy.accuracy - base.accuracy),
        policy.length / base.length,
        float(score),
        (base.length - policy.length) / (base.length - shortest),
    )


def show(name: str, outcomes: Mapping[str, Sequence[Outcome]]) -> str:
    """A row: mean and worst AES2 over worlds, accuracy, savings."""
    scores = [float(np.mean([one.aes for one in runs])) for runs in outcomes.values()]
    points = np.array([one.points for runs in outcomes.values() for one in runs])
    saved = np.mean([one.saved for runs in outcomes.values() for one in runs])
    return (
        f"{name:<27}{np.mean(scores):+9.2f}{min(scores):+9.2f}{points.mean():+9.1f}"
        f"{points.min():+9.1f}{(points >= -1).mean():8.0%}{saved:8.0%}"
    )


def show_worlds(name: str, outcomes: Mapping[str, Sequence[Outcome]]) -> str:
    """A row: in each world points of accuracy and length over the base's."""
    cells = [
        f"{np.mean([one.points for one in runs]):+5.1f}{np.mean([one.ratio for one in runs]):5.2f}"
        for runs in outcomes.values()
    ]
    return f"{name[:9]:<10}" + "".join(cells)


def main() -> None:
    """A table per size of batch."""
    args = arguments()
    methods = CANDIDATES if args.candidates else contenders()
    if args.methods:
        methods = {name: methods[name] for name in args.methods}
    worlds = args.only or list(WORLDS)
    for batch in args.batch:
        training = replace(BATCHES[batch], reference_rollouts=args.reference, noise=args.noise)
        if args.steps:
            rate = training.rate * training.steps / args.steps
            training = replace(training, steps=args.steps, rate=rate)
        print(
            f"\n{batch} a step, {training.steps} steps, {args.reference} reference rollouts, "
            f"{args.seeds} seeds\n"
        )
        if args.worlds:
            print(f"{'':<10}" + "".join(f"{world:>10}" for world in worlds))
        else:
            print(
                f"{'':<27}{'AES2':>9}{'worst':>9}{'points':>9}{'lowest':>9}{'kept':>8}{'saved':>8}"
            )
        for name, method in methods.items():
            outcomes = {
                world: [
                    run(name, method, world, training, seed, args.average)
                    for seed in range(args.seeds)
                ]
                for world in worlds
            }
            print((show_worlds if args.worlds else show)(name, outcomes), flush=True)


def arguments() -> argparse.Namespace:
    """What is asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("methods", nargs="*", metavar="METHOD", help="all, if none is named")
    parser.add_argument("--candidates", action="store_true", help="rules of the guard instead")
    parser.add_argument("--worlds", action="store_true", help="a column per world")
    parser.add_argument("--only", nargs="+", choices=WORLDS, help="these worlds")
    parser.add_argument("--batch", nargs="+", choices=BATCHES, default=["16x8"])
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--steps", type=int, help="the rate makes up for fewer")
    parser.add_argument("--reference", type=int, default=256, help="rollouts per problem")
    parser.add_argument("--average", action="store_true", help="mean of the last third's weights")
    parser.add_argument("--noise", type=float, default=0.15, help="of a style's log length")
    return parser.parse_args()


if __name__ == "__main__":
    main()
