"""One verb per module: its arguments, and what it prints. The work is done elsewhere.

May import: everything; nothing imports it but the command line.
"""

import argparse


def add_overrides(parser: argparse.ArgumentParser) -> None:
    """`--set`, for verbs that read a recipe."""
    parser.add_argument(
        "--set", action="append", default=[], dest="overrides", metavar="KEY=VALUE",
        help="change a setting, e.g. --set schedule.steps=200 (may be repeated)",
    )  # fmt: skip
