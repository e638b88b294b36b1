"""One verb per module: its arguments, and what it prints. The work is done elsewhere.

May import: everything; nothing imports it but the command line.
"""

import argparse
import contextlib
import os
import sys
from collections.abc import Iterator


def note(sentence: str, before: str = "") -> None:
    """A sentence to standard error, safe to print."""
    from crt.evaluation.render import printable

    print(printable(before + sentence), file=sys.stderr)


def column_names(text: str) -> dict[str, str]:
    """The value of `--columns`."""
    pairs = [part.partition("=") for part in text.split(",")]
    if not all(field and column for field, _, column in pairs):
        raise argparse.ArgumentTypeError(f"{text!r} is not question=…,answer=…")
    return {field.strip(): column.strip() for field, _, column in pairs}


def add_overrides(parser: argparse.ArgumentParser) -> None:
    """`--set`, for verbs that read a recipe."""
    parser.add_argument(
        "--set", action="append", default=[], dest="overrides", metavar="KEY=VALUE",
        help="change a setting, e.g. --set schedule.steps=200 (may be repeated)",
    )  # fmt: skip


@contextlib.contextmanager
def loading(shown: bool = True) -> Iterator[None]:
    """Something moves on a terminal while torch and the engines are imported."""
    if not shown or "CRT_QUIET" in os.environ or not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status("loading"):
        yield
