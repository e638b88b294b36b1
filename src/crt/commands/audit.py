"""crt audit: how much a model overthinks and what could be saved, as one page and five lines."""

import argparse
from pathlib import Path

from crt.commands import note
from crt.commands.eval import add_plan, grading_of, load_options, names_of, plan_of
from crt.errors import ConfigError, shown


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "model",
        metavar="SOURCE",
        help="an evaluation's folder; completions (JSONL, lm-eval, lighteval, inspect_ai); or as "
        "for crt eval a model or a server's address",
    )
    add("--out", type=Path, help="folder of the page (the evaluation's; evaluations/<name>)")
    add("--name", help="what the model is called on the page")
    add("--json", action="store_true", help="print the figures as JSON")
    add("--requests-per-month", type=float, default=0.0, metavar="N", help="the load to price")
    add("--price-per-million", type=float, default=0.0, metavar="P", help="of generated tokens")
    add("--tokenizer", help="finds places in tokens, and counts where a file lacks")
    add("--regrade", action="store_true", help="grade although the file has verdicts")
    add(
        "--texts", type=float, default=4.0, metavar="MB", help="size of the answers in the page (4)"
    )
    add_plan(parser)


def run(args: argparse.Namespace) -> int:
    import json

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
            note=note,
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
    results = audit(evaluation, grading_of(args), month=month, tokenizer=args.tokenizer)
    folder, budget = args.out or evaluation.folder or Path(), int(1e6 * args.texts)
    path = write_audit(evaluation, results, folder, args.argv[1:], budget)
    for warning in results["warnings"]:
        note(warning, "warning: ")
    as_text = shown("\n".join(lines(results)))
    print(json.dumps(results, indent=1, allow_nan=False) if args.json else as_text)
    note(f"{path} ({path.stat().st_size / 1e6:.1f} MB)")
    return 0
