"""crt <verb>: parse first, import heavy modules after."""

import argparse
import importlib
import os
import sys
from collections.abc import Sequence

VERBS = {
    "demo": "see the method work, on this machine, in a moment",
    "train": "train a model to think shorter, from a recipe",
    "show": "print a recipe's resolved configuration and what would run",
    "plan": "estimate tokens, memory, hours and cost of recipes",
    "eval": "sample a model on data sets, grade, and measure with intervals",
    "score": "grade and measure completions from a file",
    "compare": "the paper's tables from evaluations",
    "bench-methods": "train methods with several seeds on the same work, and compare them",
    "family": "choose a run's verbosity levels from its evaluation",
    "serve": "serve the levels to OpenAI clients, with a playground",
    "export": "write one level as a model folder with its card",
    "report": "one page, and figures for print, from runs and evaluations",
    "ask": "ask the pocket model, or another, one question",
    "data": "list, load and check data sets",
    "grade": "grade responses against answers",
}

EXTRAS = {  # what `pip install crt-train` alone does not bring, and what does
    **dict.fromkeys(
        ("torch", "transformers", "tokenizers", "safetensors", "accelerate", "trl", "peft"), "train"
    ),
    **dict.fromkeys(("datasets", "pyarrow", "huggingface_hub"), "data"),
    **dict.fromkeys(("verl", "ray", "hydra", "omegaconf"), "cluster"),
    "vl_convert": "report",
    **dict.fromkeys(("fastapi", "uvicorn", "prometheus_client", "httpx"), "serve"),
}


def module_of(verb: str) -> str:
    """Where a verb lives; a module's name has no dash."""
    return f"crt.commands.{verb.replace('-', '_')}"


def parser_for(verb: str | None) -> argparse.ArgumentParser:
    """The parser; only the chosen verb's module is loaded, so that `crt --help` is quick."""
    parser = argparse.ArgumentParser(
        prog="crt",
        description="Make a reasoning language model think shorter without getting worse.",
        formatter_class=help_formatter,
    )
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    verbs = parser.add_subparsers(dest="verb", metavar="<verb>", title="verbs")
    for name, line in VERBS.items():
        chosen = verbs.add_parser(
            name,
            help=line,
            description=line.capitalize() + ".",
            formatter_class=help_formatter,
            add_help=name == verb,
        )
        if name == verb:
            importlib.import_module(module_of(name)).add_arguments(chosen)
    return parser


def help_formatter(prog: str) -> argparse.HelpFormatter:
    """As wide as the terminal; argparse alone would load shutil to find that out."""
    columns = os.environ.get("COLUMNS", "")
    if not columns.isdecimal():
        try:
            columns = os.get_terminal_size().columns
        except OSError:  # no terminal
            columns = 80
    return argparse.HelpFormatter(prog, width=max(int(columns), 40) - 2)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one verb; bad input ends with one sentence on standard error and exit code 2."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    verb = next((word for word in arguments if not word.startswith("-")), None)
    if verb is not None and verb not in VERBS:
        from crt.errors import did_you_mean, shown

        print(
            shown(f"crt: there is no verb {verb!r}. {did_you_mean(verb, VERBS)}"), file=sys.stderr
        )
        return 2
    parser = parser_for(verb)
    args = parser.parse_args(arguments)
    args.argv = arguments  # for a verb that starts processes like itself
    if args.version:
        from crt.version import __version__

        print(f"crt {__version__}")
        return 0
    if args.verb is None:
        parser.print_help()
        return 0
    return run_verb(args)


def run_verb(args: argparse.Namespace) -> int:
    """The verb's own exit code, 2 for bad input, 130 when interrupted, 141 for a closed pipe."""
    from crt.errors import CrtError, shown

    try:
        return importlib.import_module(module_of(args.verb)).run(args)
    except CrtError as error:
        print(shown(f"crt {args.verb}: {error}"), file=sys.stderr)
        return 2
    except ModuleNotFoundError as error:
        package = (error.name or "").split(".")[0]
        if package not in EXTRAS:
            raise
        advice = f"pip install 'crt-train[{EXTRAS[package]}]'"
        print(f"crt {args.verb}: this needs {package}: {advice}.", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"crt {args.verb}: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # `crt … | head`: the reader has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as error:  # the machine's doing: a full disk, a folder without rights, no memory
        place = f"{error.filename}: " if error.filename else ""
        print(f"crt {args.verb}: {place}{error.strerror or error}.", file=sys.stderr)
        return 2
