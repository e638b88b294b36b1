"""crt verify: check a claim of accuracy with a test that stops as soon as it may."""

import argparse
import contextlib
from pathlib import Path
from typing import Any

from crt.commands import note
from crt.commands.eval import SAMPLING, add_plan, names_of, plan_of
from crt.errors import ConfigError

EXIT_CODES = {"accepted": 0, "rejected": 1, "undecided": 3}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    parser.epilog = (
        "The test looks after every problem and may stop at any: each wrong verdict has a chance "
        "of at most 5 % (1 - confidence). Exit code 0: accepted. 1: rejected. 3: undecided, the "
        "problems do not suffice. 2: the input cannot be used."
    )
    add("model", help="a model as for crt eval, or an evaluation's folder")
    add(
        "--claim",
        required=True,
        help='"accuracy >= base - 1pt", "accuracy >= 80 %%", or a card: README.md of crt export, '
        "family.json, figures.json of an evaluation",
    )
    add("--base", help="a model or an evaluation's folder, measured beside it")
    add("--level", help="which level of a family.json (its default)")
    add("--confidence", type=float, default=0.95, help="of each verdict (0.95)")
    add("--out", type=Path, help="folder of the responses (verifications/<model>-<data>)")
    add("--json", action="store_true", help="print the verdict as JSON")
    add_plan(parser)


def run(args: argparse.Namespace) -> int:
    import json
    import shutil
    import textwrap

    from crt.evaluation.verify import as_json, describe, parse_claim, shuffled, verify
    from crt.levels.card import is_card, read_card

    if not 0 < args.confidence < 1:
        raise ConfigError(f"--confidence {args.confidence:g} is not between 0 and 1")
    if is_card(args.claim):
        card = read_card(Path(args.claim), args.level)
        claim = card.claim
        for name, value in card.settings.items():
            setattr(args, name, value if getattr(args, name) is None else getattr(args, name))
        if args.base:  # measured, and not taken from the card
            claim = type(claim)(claim.margin)
    else:
        claim = parse_claim(args.claim)
    with contextlib.ExitStack() as stack:
        model, base, keys = _accuracies(args, stack)
        look = verify(
            claim,
            model,
            base,
            shuffled(keys, args.seed),
            confidence=args.confidence,
            tell=lambda look: note(f"{look.problems} problems, {100 * look.mean:+.1f}"),
        )
    verdict = as_json(claim, look, args.confidence)
    words = describe(claim, look, args.confidence)
    columns = shutil.get_terminal_size().columns
    print(json.dumps(verdict, indent=1) if args.json else textwrap.fill(words, columns))
    return EXIT_CODES[look.state]


def _accuracies(args: argparse.Namespace, stack: contextlib.ExitStack) -> Any:
    """The model's and the base's accuracies by problem, and which problems there are."""
    from crt.evaluation.datasets import folder_label, label, load_sets, short_name
    from crt.evaluation.store import is_evaluation
    from crt.evaluation.verify import load_recorded, sampled

    sources = [source for source in (args.model, args.base) if source]
    if all(map(is_evaluation, sources)):
        claimed = {name: getattr(args, name) for name in SAMPLING}
        claimed["data"] = [label(name) for name in names_of(args.data)] if args.data else None
        return load_recorded(args.model, args.base, claimed)
    if any(map(is_evaluation, sources)):
        raise ConfigError("the model and its base must both be evaluations, or both be models")
    plans = [plan_of(argparse.Namespace(**vars(args) | {"model": source})) for source in sources]
    sets = load_sets(plans[0].settings.data, **(plans[0].load or {}))
    default = f"{short_name(args.model)}-{folder_label(plans[0].settings.data)}"[:120]
    folder = args.out or Path("verifications") / default
    accuracies = [
        stack.enter_context(sampled(plan, sets, folder / name, note))
        for name, plan in zip(("model", "base"), plans, strict=False)
    ]
    keys = [(loaded.name, problem.id) for loaded in sets for problem in loaded]
    return accuracies[0], accuracies[1] if args.base else None, keys
