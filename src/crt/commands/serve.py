"""crt serve: a family of levels behind an OpenAI-compatible proxy with a verbosity dial."""

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from crt.levels.family import Family, Level


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What is served, where, and by which engine; defaults are those of `ServeOptions`."""
    add = parser.add_argument
    add("family", type=Path, help="a run with a family.json, or the file")
    add("--host", help="other than this machine needs a key (127.0.0.1)")
    add("--port", type=int, help="0 for any free one (8000)")
    add("--api-key", help="what clients must send (or CRT_API_KEY)")
    add("--default", help="level of requests that choose none (the shortest certified)")
    add(
        "--measured-prompt",
        action=argparse.BooleanOptionalAction,
        help="put a single question into the prompt that the levels were measured with (yes)",
    )
    _limits(parser.add_argument_group("limits"))
    _engine(parser.add_argument_group("engine"))


def run(args: argparse.Namespace) -> int:
    """Serves until it is told to stop."""
    from crt.levels.proxy import KEY_VARIABLE, ServeOptions, serve, serve_options

    args.api_key = args.api_key or os.environ.get(KEY_VARIABLE) or None
    given = {name: getattr(args, name) for name in ServeOptions.model_fields}
    options = serve_options(**{name: value for name, value in given.items() if value is not None})
    return serve(args.family, options, _ready, lambda text: print(text, file=sys.stderr))


def _ready(url: str, family: "Family", default: "Level") -> None:
    levels = ", ".join(
        f"{level.name} ({level.len.value:.0f} tokens{'' if level.certified else ', uncertified'})"
        for level in family.levels
    )
    print(f"{family.name}: {levels}; {default.name} by default.")
    print(f"Playground: {url}/    OpenAI clients: {url}/v1    (Ctrl-C ends)", flush=True)


def _limits(group: Any) -> None:
    add = group.add_argument
    add("--slots", type=int, help="responses at once per level (64)")
    add("--queue", type=int, help="responses that may wait (128)")
    add("--context", type=int, help="tokens of prompt and response (the model's)")
    add("--time-limit", type=float, help="seconds per request (300)")
    add("--body-kb", type=int, help="largest body in KiB (1024)")
    add("--drain", type=int, help="seconds for streams at the end (30)")


def _engine(group: Any) -> None:
    add = group.add_argument
    add(
        "--engine",
        choices=("auto", "local", "vllm"),
        help="auto: vLLM if it is installed and there is a GPU, else local",
    )
    add(
        "--dtype",
        choices=("auto", "float32", "bfloat16", "float16"),
        help="how the model is used (auto: as it was saved)",
    )
    add("--vllm-args", help="options for every `vllm serve`")
    add(
        "--upstream",
        action="append",
        metavar="[LEVEL=]URL",
        help="an OpenAI-compatible server that answers (http://…/v1); again for other levels",
    )
    add(
        "--upstream-model",
        action="append",
        metavar="LEVEL=NAME",
        help="a level's name on that server, if it is not found by itself",
    )
    add("--upstream-key-from", help="environment variable with the server's key")
