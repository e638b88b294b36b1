"""crt score: grade and measure completions that somebody else produced."""

import argparse
from pathlib import Path

from crt.commands import note
from crt.commands.eval import (
    add_grading,
    add_loading,
    add_output,
    grading_of,
    load_options,
    names_of,
    print_evaluation,
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "file",
        type=Path,
        help="JSONL (or .jsonl.zst): problem_id or question, response, and if known tokens, stop",
    )
    add("--data", required=True, help="NAME[/SPLIT][:COUNT],…: sets or files")
    add("--out", type=Path, help="write an evaluation's folder, for crt compare")
    add("--name", help="what it is called in tables (the file's name)")
    add("--tokenizer", help="counts tokens where the file does not say them")
    add("--max-tokens", type=int, help="the cap they were sampled with")
    add("--temperature", type=float, help="they were sampled with")
    add("--top-p", type=float, help="they were sampled with")
    add(
        "--truncated",
        choices=("wrong", "grade"),
        default="wrong",
        help="what a response that ran into the cap counts as (wrong)",
    )
    add("--opens-thinking", action="store_true", help="the responses start inside <think>")
    add("--regrade", action="store_true", help="grade although the file has verdicts")
    add_output(add)
    add_loading(add)
    add_grading(add)


def run(args: argparse.Namespace) -> int:
    from crt.evaluation.completions import score

    evaluation = score(
        args.file,
        names_of(args.data),
        args.out,
        name=args.name,
        note=note,
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
