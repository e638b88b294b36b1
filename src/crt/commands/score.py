"""crt score: grade and measure completions that somebody else produced."""

import argparse
import sys
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """A file of completions, and the problems they belong to."""
    parser.add_argument(
        "file",
        type=Path,
        help="JSONL (or .jsonl.zst): problem_id or question, response, and if known tokens, stop",
    )
    parser.add_argument("--data", required=True, help="NAME[/SPLIT][:COUNT],…: sets or files")
    parser.add_argument("--out", type=Path, help="write an evaluation's folder, for crt compare")
    parser.add_argument("--name", help="what it is called in tables (the file's name)")
    parser.add_argument("--tokenizer", help="counts tokens where the file does not say them")
    parser.add_argument("--max-tokens", type=int, help="the cap they were sampled with")
    parser.add_argument("--temperature", type=float, help="they were sampled with")
    parser.add_argument("--top-p", type=float, help="they were sampled with")
    parser.add_argument(
        "--truncated",
        choices=("wrong", "grade"),
        default="wrong",
        help="what a response that ran into the cap counts as (wrong)",
    )
    parser.add_argument(
        "--opens-thinking", action="store_true", help="the responses start inside <think>"
    )
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument("--intervals", action="store_true", help="show 95 %% intervals")
    parser.add_argument(
        "--regrade", action="store_true", help="grade although the file has verdicts"
    )
    from crt.commands.eval import add_grading, add_loading

    add_loading(parser)
    add_grading(parser)


def run(args: argparse.Namespace) -> int:
    """Grades, prints the table."""
    from crt.commands.eval import grading_of, load_options, show
    from crt.evaluation.completions import Scoring, score
    from crt.evaluation.render import printable

    scoring = Scoring(
        data=tuple(name.strip() for name in args.data.split(",") if name.strip()),
        truncated=args.truncated,
        max_tokens=args.max_tokens,
        temperature=args.temperature,
        top_p=args.top_p,
        tokenizer=args.tokenizer,
        opens_thinking=args.opens_thinking,
        skip_bad=args.skip_bad,
        load=load_options(args),
        grading=grading_of(args),
        regrade=args.regrade,
    )
    note = lambda sentence: print(printable(sentence), file=sys.stderr)  # noqa: E731
    show(score(args.file, scoring, args.out, name=args.name, note=note), args)
    return 0
