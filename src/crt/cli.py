"""crt <verb>: parse first, import heavy modules after."""

import argparse
import contextlib
import importlib
import os
import sys
from collections.abc import Iterator, Mapping, Sequence

VERBS = {
    "demo": "see the method work, on this machine, in a moment",
    "train": "train a model to think shorter, from a recipe",
    "recipe": "list the recipes inside the package, or copy one",
    "show": "print a recipe's resolved configuration and what would run",
    "plan": "estimate tokens, memory, hours and cost of recipes",
    "eval": "sample a model on data sets, grade, and measure with intervals",
    "score": "grade and measure completions from a file",
    "compare": "the paper's tables from evaluations",
    "audit": "how much a model overthinks, and what could be saved, on one page",
    "verify": "check a claim of accuracy, with a test that stops as soon as it may",
    "bench-methods": "train methods with several seeds on the same work, and compare them",
    "family": "choose a run's verbosity levels from its evaluation",
    "serve": "serve the levels to OpenAI clients, with a playground",
    "export": "write one level as a model folder with its card",
    "report": "one page, and figures for print, from runs and evaluations",
    "ask": "ask the pocket model, or another, one question",
    "data": "list, load and check data sets",
    "grade": "grade responses against answers",
}

EXAMPLES = {
    "demo": "crt demo --tabular\ncrt demo --seed 2 --out runs/second",
    "train": "crt train pocket --set schedule.steps=200\ncrt train --resume runs/pocket\n"
    "crt train recipe.toml --engine verl --print",
    "recipe": "crt recipe list\ncrt recipe copy methods/kimi --out kimi.toml",
    "show": "crt show pocket\ncrt show recipe.toml --set optim.kl=0.01 --json",
    "plan": "crt plan recipe.toml --device rtx4090 --devices 1\n"
    "crt plan paper/deepseek-1.5b-crt --scale --price 2.5",
    "eval": "crt eval pocket --data pocket/test:200\n"
    "crt eval http://localhost:8000/v1 --data gsm8k,math500 --rollouts 4\n"
    "crt eval runs/demo --all-checkpoints --data pocket/test:200",
    "score": "crt score responses.jsonl --data math500 --out evaluations/mine",
    "compare": "crt compare evaluations/base evaluations/short --intervals\n"
    "crt compare base=a short=b --format latex",
    "audit": "crt audit pocket --data pocket/test:200 --rollouts 8 --max-tokens 256\n"
    "crt audit evaluations/base --requests-per-month 1e6 --price-per-million 2\n"
    "crt audit samples_gsm8k.jsonl --data gsm8k",
    "verify": 'crt verify short --base base --claim "accuracy >= base - 1pt" --data gsm8k\n'
    "crt verify exported --claim exported/README.md\n"
    "crt verify evaluations/short --base evaluations/base "
    '--claim "accuracy >= base - 2pt"',
    "bench-methods": "crt bench-methods methods/crt methods/kimi --seeds 1 2 3 --out runs/two\n"
    "crt bench-methods tune methods/kimi --grid method.weight=0.5,1\n"
    "crt bench-methods pocket --grid optim.kl=0,0.001 --dry-run\n"
    "crt bench-methods runs/two --table md",
    "family": "crt family runs/demo --data pocket/test:3000\n"
    "crt family runs/demo --shares none --tolerance 0.02",
    "serve": "crt serve runs/demo --port 8080",
    "export": "crt export runs/demo --level concise --to concise",
    "report": "crt report runs/demo\ncrt report runs/demo --figures figures --format pdf",
    "ask": 'crt ask "Tom has 3 boxes of 4 pens. He gives 2 away. How many pens does Tom have?"\n'
    "crt ask --levels runs/demo",
    "data": "crt data list\ncrt data show pocket/test -n 3\ncrt data check gsm8k/train math500",
    "grade": "crt grade responses.jsonl",
}

EXIT_CODES = """\
exit codes:
  0    done
  1    done, and something was found or failed
       (data check --strict, bench-methods, verify)
  2    the input cannot be used: one sentence says why
  3    verify: undecided, the problems do not suffice
  130  interrupted by Ctrl-C
  141  whoever read the output has gone
  143  asked to end; what is saved is whole and goes on"""

EXTRAS = {  # what the package alone does not bring, and what does
    **dict.fromkeys(
        ("torch", "transformers", "tokenizers", "safetensors", "accelerate", "trl", "peft"), "train"
    ),
    **dict.fromkeys(("datasets", "pyarrow", "huggingface_hub"), "data"),
    **dict.fromkeys(("verl", "ray", "hydra", "omegaconf"), "cluster"),
    "vl_convert": "report",
    **dict.fromkeys(("fastapi", "uvicorn", "prometheus_client"), "serve"),
}


EXIT_LOST_ANOTHER = 75  # of one of several processes; whoever started them says what happened


def module_of(verb: str) -> str:
    """Where a verb lives; a module's name has no dash."""
    return f"crt.commands.{verb.replace('-', '_')}"


def parser_for(verb: str | None) -> argparse.ArgumentParser:
    """The parser; only the chosen verb's module is loaded, so that `crt --help` is quick."""
    parser = argparse.ArgumentParser(
        prog="crt",
        description="Make a reasoning language model think shorter without getting worse.",
        epilog=EXIT_CODES,
        formatter_class=help_formatter,
    )
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    parser.add_argument(
        "--completion", choices=("bash", "zsh", "fish"), help="print a script for tab completion"
    )
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
            add_arguments(chosen, name)
    return parser


def parser_of_verb(verb: str) -> argparse.ArgumentParser:
    """The parser of one verb alone."""
    parser = argparse.ArgumentParser(prog=f"crt {verb}", formatter_class=help_formatter)
    add_arguments(parser, verb)
    return parser


def add_arguments(parser: argparse.ArgumentParser, verb: str) -> None:
    """The verb's own arguments and examples, and those of all verbs."""
    importlib.import_module(module_of(verb)).add_arguments(parser)
    loudness = parser.add_mutually_exclusive_group()
    loudness.add_argument(
        "-q", "--quiet", action="store_true", help="results and errors, no progress and no notes"
    )
    loudness.add_argument(
        "-v", "--verbose", action="store_true", help="what libraries say, too, and tracebacks"
    )
    examples = "\n".join(f"  {line}" for line in EXAMPLES[verb].splitlines())
    parser.epilog = "\n\n".join(filter(None, [f"examples:\n{examples}", parser.epilog]))


class HelpFormatter(argparse.HelpFormatter):
    """Blocks of several lines stay as they are; other text is filled."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        fill = super()._fill_text
        blocks = text.split("\n\n")
        return "\n\n".join(b if "\n" in b else fill(b, width, indent) for b in blocks)


def help_formatter(prog: str) -> argparse.HelpFormatter:
    """As wide as the terminal; argparse alone would load shutil to find that out."""
    columns = os.environ.get("COLUMNS", "")
    if not columns.isdecimal():
        columns = 80
        with contextlib.suppress(OSError):  # no terminal
            columns = os.get_terminal_size().columns
    return HelpFormatter(prog, width=max(int(columns), 40) - 2)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one verb; bad input ends with one sentence on standard error and exit code 2."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    verb = next((word for word in arguments[:1] if not word.startswith("-")), None)
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
    if args.completion:
        print(completion_script(args.completion), end="")
        return 0
    if args.verb is None:
        parser.print_help()
        return 0
    return run_verb(args)


def run_verb(args: argparse.Namespace) -> int:
    """The verb's own exit code, 2 for bad input, 130 when interrupted, 141 for a closed pipe."""
    from crt.errors import CrtError, install_command, shown
    from crt.processes import lost_another_rank

    def refuse(sentence: str) -> int:
        if args.verbose:
            import traceback

            traceback.print_exc()
        print(shown(f"crt {args.verb}: {sentence}"), file=sys.stderr)
        return 2

    try:
        with loudness(args.quiet, args.verbose):
            return importlib.import_module(module_of(args.verb)).run(args)
    except CrtError as error:
        return refuse(str(error))
    except RuntimeError as error:
        if not lost_another_rank(error):
            raise
        return EXIT_LOST_ANOTHER
    except ModuleNotFoundError as error:
        package = (error.name or "").split(".")[0]
        if package not in EXTRAS:
            raise
        return refuse(f"this needs {package}: {install_command(EXTRAS[package])}")
    except KeyboardInterrupt:
        print(f"crt {args.verb}: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # `crt … | head`: the reader has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as error:  # the machine's doing: a full disk, a folder without rights, no memory
        place = f"{error.filename}: " if error.filename else ""
        return refuse(f"{place}{error.strerror or error}.")


@contextlib.contextmanager
def loudness(quiet: bool, verbose: bool) -> Iterator[None]:
    """For this process and those it starts: no notes at all, or also what libraries say."""
    flags = {"CRT_QUIET": quiet, "CRT_VERBOSE": verbose}
    added = [name for name, on in flags.items() if on and name not in os.environ]
    os.environ.update(dict.fromkeys(added, "1"))
    try:
        with contextlib.ExitStack() as stack:
            if quiet:
                nowhere = stack.enter_context(open(os.devnull, "w", encoding="utf-8"))
                stack.enter_context(contextlib.redirect_stderr(nowhere))
            yield
    finally:
        for name in added:
            os.environ.pop(name, None)


# ---- Tab completion

BASH = """\
# In ~/.bashrc:  eval "$(crt --completion bash)"
_crt() {{
    local current=${{COMP_WORDS[COMP_CWORD]}} words=""
    case "$COMP_CWORD:${{COMP_WORDS[1]}}" in
        1:*) words="{verbs}" ;;
{cases}
    esac
    COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o bashdefault -o default -F _crt crt
"""
ZSH = '# In ~/.zshrc:  eval "$(crt --completion zsh)"\nautoload -U bashcompinit && bashcompinit\n'
FISH = "# In ~/.config/fish/config.fish:  crt --completion fish | source\n"


def completion_script(shell: str) -> str:
    """Tab completion for bash, zsh or fish, made from the parsers of all verbs."""
    parsers = {name: parser_of_verb(name) for name in VERBS}
    if shell == "fish":
        return FISH + "".join(_fish_lines(parsers))
    cases = "\n".join(
        f'        *:{verb}) words="{" ".join(words_of(parser))}" ;;'
        for verb, parser in parsers.items()
    )
    bash = BASH.format(verbs=" ".join(VERBS), cases=cases)
    return bash if shell == "bash" else ZSH + bash.partition("\n")[2]


def words_of(parser: argparse.ArgumentParser) -> list[str]:
    """Its options, and what its arguments may be where that is a list; those of actions too."""
    words: list[str] = []
    for action in parser._actions:
        words += [option for option in action.option_strings if option.startswith("--")]
        words += map(str, action.choices or ())
        if isinstance(action, argparse._SubParsersAction):
            words += [word for each in action.choices.values() for word in words_of(each)]
    return list(dict.fromkeys(words))


def _fish_lines(parsers: Mapping[str, argparse.ArgumentParser]) -> Iterator[str]:
    for verb, line in VERBS.items():
        quoted = line.replace("'", r"\'")
        yield f"complete -c crt -n __fish_use_subcommand -a {verb} -d '{quoted}'\n"
    for verb, parser in parsers.items():
        for word in words_of(parser):
            what = f"-l {word[2:]}" if word.startswith("--") else f"-a {word}"
            yield f"complete -c crt -n '__fish_seen_subcommand_from {verb}' {what}\n"
