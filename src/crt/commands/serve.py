"""crt serve: a family of levels behind an OpenAI-compatible proxy with a verbosity dial."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from crt.levels.family import Family, Level


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What is served, where, and by which engine."""
    parser.add_argument("family", type=Path, help="a run with a family.json, or the file")
    parser.add_argument("--host", default="127.0.0.1", help="other than this machine needs a key")
    parser.add_argument("--port", type=int, default=8000, help="0 for any free one (8000)")
    parser.add_argument("--api-key", help="what clients must send (or CRT_API_KEY)")
    parser.add_argument(
        "--default", help="level of requests that choose none (the shortest certified)"
    )
    parser.add_argument(
        "--measured-prompt",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="put a single question into the prompt that the levels were measured with (yes)",
    )
    _limits(parser.add_argument_group("limits"))
    _engine(parser.add_argument_group("engine"))


def run(args: argparse.Namespace) -> int:
    """Serves until it is told to stop."""
    from crt.levels.server import Address, ServeOptions, api_key, serve

    options = ServeOptions(
        Address(args.host, args.port, api_key(args.api_key), args.drain),
        default=args.default,
        measured_prompt=args.measured_prompt,
        time_limit=args.time_limit,
        body_kb=args.body_kb,
        engine=args.engine,
        dtype=args.dtype,
        slots=args.slots,
        queue=args.queue,
        context=args.context,
        vllm_args=args.vllm_args,
        upstream=args.upstream,
        upstream_model=args.upstream_model,
        upstream_key_from=args.upstream_key_from,
    )
    return serve(args.family, options, _ready, lambda text: print(text, file=sys.stderr))


def _ready(url: str, family: "Family", default: "Level") -> None:
    levels = ", ".join(
        f"{level.name} ({level.len.value:.0f} tokens{'' if level.certified else ', uncertified'})"
        for level in family.levels
    )
    print(f"{family.name}: {levels}; {default.name} by default.")
    print(f"Playground: {url}/    OpenAI clients: {url}/v1    (Ctrl-C ends)", flush=True)


def _limits(group: Any) -> None:
    group.add_argument("--slots", type=int, default=64, help="responses at once per level (64)")
    group.add_argument("--queue", type=int, default=128, help="responses that may wait (128)")
    group.add_argument("--context", type=int, help="tokens of prompt and response (the model's)")
    group.add_argument("--time-limit", type=float, default=300, help="seconds per request (300)")
    group.add_argument("--body-kb", type=int, default=1024, help="largest body in KiB (1024)")
    group.add_argument("--drain", type=int, default=30, help="seconds for streams at the end (30)")


def _engine(group: Any) -> None:
    group.add_argument(
        "--engine",
        choices=("auto", "local", "vllm"),
        default="auto",
        help="auto: vLLM if it is installed and there is a GPU, else local",
    )
    group.add_argument(
        "--dtype", choices=("auto", "float32", "bfloat16", "float16"), default="auto"
    )
    group.add_argument("--vllm-args", default="", help="options for every `vllm serve`")
    group.add_argument(
        "--upstream",
        action="append",
        default=[],
        metavar="[LEVEL=]URL",
        help="an OpenAI-compatible server that answers (http://…/v1); again for other levels",
    )
    group.add_argument(
        "--upstream-model",
        action="append",
        default=[],
        metavar="LEVEL=NAME",
        help="a level's name on that server, if it is not found by itself",
    )
    group.add_argument("--upstream-key-from", help="environment variable with the server's key")
