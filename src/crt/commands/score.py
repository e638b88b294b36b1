"""crt score: grade and measure completions that somebody else produced."""

import argparse
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
    parser.add_argument(
        "--regrade", action="store_true", help="grade although the file has verdicts"
    )
    from crt.commands.eval import add_grading, add_loading, add_output

    add_output(parser)
    add_loading(parser)
    add_grading(parser)


def run(args: argparse.Namespace) -> int:
    """Grades, prints the table."""
    from crt.commands.compare import print_notes
    from crt.commands.eval import grading_of, load_options, names_of, print_evaluation
    from crt.evaluation.completions import score

    evaluation = score(
        args.file,
        names_of(args.data),
        args.out,
        name=args.name,
        note=lambda sentence: print_notes([sentence]),
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
    print_evaluation(evaluation, args)
    return 0
