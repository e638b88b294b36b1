"""crt completion: a script that lets the shell complete verbs and options."""

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which shell."""
    parser.add_argument("shell", choices=("bash", "zsh", "fish"))


def run(args: argparse.Namespace) -> int:
    """Prints the script."""
    from crt.cli import VERBS, parser_of_verb
    from crt.completion import script

    print(script(args.shell, VERBS, {verb: parser_of_verb(verb) for verb in VERBS}), end="")
    return 0
