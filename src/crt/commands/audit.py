"""crt audit: how much a model overthinks and what could be saved, as one page and five lines."""

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What is audited, the load it is under, and how it is sampled if it is a model."""
    from crt.commands.eval import add_plan

    parser.add_argument(
        "model",
        metavar="SOURCE",
        help="an evaluation's folder; completions (JSONL, lm-eval, lighteval, inspect_ai); or as "
        "for crt eval a model or a server's address",
    )
    parser.add_argument(
        "--out", type=Path, help="folder of the page (the evaluation's; evaluations/<name>)"
    )
    parser.add_argument("--name", help="what the model is called on the page")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument(
        "--requests-per-month", type=float, default=0.0, metavar="N", help="the load to price"
    )
    parser.add_argument(
        "--price-per-million", type=float, default=0.0, metavar="P", help="of generated tokens"
    )
    parser.add_argument("--tokenizer", help="finds places in tokens, and counts where a file lacks")
    parser.add_argument(
        "--regrade", action="store_true", help="grade although the file has verdicts"
    )
    parser.add_argument(
        "--texts", type=float, default=4.0, metavar="MB", help="size of the answers in the page (4)"
    )
    add_plan(parser)


def run(args: argparse.Namespace) -> int:
    """Finds or makes the evaluation, writes the page, prints five lines."""
    import json

    from crt.commands.compare import print_notes
    from crt.commands.eval import grading_of, load_options, names_of, plan_of
    from crt.errors import ConfigError, shown
    from crt.evaluation.audit import Load, audit, find_evaluation
    from crt.evaluation.evaluator import progress
    from crt.reporting.audit import lines, write_audit

    if not 0 <= args.texts <= 200:
        raise ConfigError(f"--texts {args.texts:g} is not a number of megabytes, 0 to 200.")
    month = Load(args.requests_per_month, args.price_per_million)
    with progress(args.name or args.model) as tell:
        evaluation = find_evaluation(
            args.model,
            lambda: plan_of(args),
            args.out,
            name=args.name,
            tell=tell,
            note=lambda sentence: print_notes([sentence]),
            data=names_of(args.data or ""),
            truncated=args.truncated or "wrong",
            max_tokens=args.max_tokens,
            temperature=args.temperature,
            top_p=args.top_p,
            tokenizer=args.tokenizer,
            opens_thinking=bool(args.opens_thinking),
            skip_bad=args.skip_bad,
            load=load_options(args),
            grading=grading_of(args),
            regrade=args.regrade,
        )
    found = audit(evaluation, grading_of(args), month=month, tokenizer=args.tokenizer)
    folder, budget = args.out or evaluation.folder or Path(), int(1e6 * args.texts)
    path = write_audit(evaluation, found, folder, args.argv[1:], budget)
    print_notes(found["warnings"], "warning: ")
    print(
        json.dumps(found, indent=1, allow_nan=False)
        if args.json
        else shown("\n".join(lines(found)))
    )
    print_notes([f"{path} ({path.stat().st_size / 1e6:.1f} MB)"])
    return 0
