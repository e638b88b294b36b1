"""crt serve: a family of levels behind an OpenAI-compatible server with a verbosity dial."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from crt.serve.app import Engine
    from crt.serve.family import Family, Level
    from crt.serve.metrics import Metrics


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What is served, where, and by which engine."""
    parser.add_argument("family", type=Path, help="a run with a family.json, or the file")
    parser.add_argument("--host", default="127.0.0.1", help="other than this machine needs a key")
    parser.add_argument("--port", type=int, default=8000, help="0 for any free one (8000)")
    parser.add_argument("--api-key", help="what clients must send (or CRT_API_KEY)")
    parser.add_argument("--default", help="level when nothing is asked (the shortest certified)")
    parser.add_argument(
        "--measured-prompt",
        action="store_true",
        help="put every single question as the levels were measured, with the run's instruction",
    )
    _limits(parser.add_argument_group("limits"))
    _engine(parser.add_argument_group("engine"))


def run(args: argparse.Namespace) -> int:
    """Loads, listens, and serves until it is told to stop; 0, or 143 if that is while it loads."""
    import signal
    import time

    from crt.processes import at_signal
    from crt.serve.app import Service, make_app
    from crt.serve.family import family_file, read_family
    from crt.serve.metrics import Metrics
    from crt.serve.server import Address, end_while_loading, key_from, listening
    from crt.serve.server import run as serve

    address = Address(args.host, args.port, key_from(args.api_key), args.drain)
    file = family_file(args.family).absolute()
    family = read_family(file)
    default = default_level(family, args.default)
    listening(address).close()  # a taken port is said before minutes of loading
    metrics = Metrics()
    with at_signal(end_while_loading, signal.SIGTERM):
        service = Service(
            family,
            engine_for(args, family, file, metrics),
            metrics,
            default,
            api_key=address.api_key,
            loopback_only=address.loopback,
            body_bytes=args.body_kb * 1024,
            started=int(time.time()),
        )
        return serve(make_app(service), address, lambda url: _ready(url, family, default))


def default_level(family: "Family", name: str | None) -> "Level":
    """The level that is served when a request does not turn the dial."""
    from crt.errors import ConfigError, did_you_mean

    if name is None:
        return family.default
    found = family.level(name)
    if found is None:
        names = [level.name for level in family.levels]
        raise ConfigError(f"--default {name!r} is not a level. {did_you_mean(name, names)}")
    return found


def engine_for(
    args: argparse.Namespace, family: "Family", file: Path, metrics: "Metrics"
) -> "Engine":
    """An existing server, vLLM, or the models in this process."""
    if args.upstream:
        from crt.serve.behind import upstream_engine
        from crt.serve.upstream import UpstreamSettings

        return upstream_engine(
            family, args.upstream, args.upstream_model, _upstream(args, UpstreamSettings), metrics
        )
    from crt.serve.vllm import chosen_engine

    if chosen_engine(args.engine) == "vllm":
        from crt.serve.upstream import UpstreamSettings
        from crt.serve.vllm import vllm_engine

        return vllm_engine(
            family, file, _words(args.vllm_args), _upstream(args, UpstreamSettings), metrics, _note
        )
    from crt.serve.local import LocalSettings, load_levels

    settings = LocalSettings(
        slots=args.slots,
        queue=args.queue,
        context=args.context,
        time_limit=args.time_limit,
        dtype=args.dtype,
        measured_prompt=args.measured_prompt,
    )
    return load_levels(family, file, settings, metrics, _note)


def _words(text: str) -> list[str]:
    """Options as a shell would part them."""
    import shlex

    from crt.errors import ConfigError

    try:
        return shlex.split(text)
    except ValueError as error:
        raise ConfigError(f"--vllm-args {text!r} cannot be read: {error}") from None


def _upstream(args: argparse.Namespace, kind: Any) -> Any:
    return kind(
        most=args.queue + (args.slots or 256),
        time_limit=args.time_limit,
        key_from=args.upstream_key_from,
        measured_prompt=args.measured_prompt,
    )


def _ready(url: str, family: "Family", default: "Level") -> None:
    doubt = {True: "", False: ", no certificate"}
    levels = ", ".join(
        f"{level.name} ({level.len.value:.0f} tokens{doubt[level.certified]})"
        for level in family.levels
    )
    print(f"{family.name}: {levels}; {default.name} when nothing is asked.")
    print(f"Playground: {url}/    OpenAI clients: {url}/v1    (Ctrl-C ends)", flush=True)


def _note(sentence: str) -> None:
    print(sentence, file=sys.stderr)


def _limits(group: Any) -> None:
    group.add_argument("--slots", type=int, help="responses at once, a level (what fits, 64)")
    group.add_argument("--queue", type=int, default=128, help="responses that may wait (128)")
    group.add_argument("--context", type=int, help="tokens of prompt and response (the model's)")
    group.add_argument("--time-limit", type=float, default=300, help="seconds a request (300)")
    group.add_argument("--body-kb", type=int, default=1024, help="largest body in KiB (1024)")
    group.add_argument("--drain", type=int, default=30, help="seconds for streams at the end (30)")


def _engine(group: Any) -> None:
    group.add_argument("--engine", choices=("auto", "local", "vllm"), default="auto")
    group.add_argument(
        "--dtype", choices=("auto", "float32", "bfloat16", "float16"), default="auto"
    )
    group.add_argument("--vllm-args", default="", help="passed on to every `vllm serve`")
    group.add_argument(
        "--upstream",
        action="append",
        metavar="[LEVEL=]URL",
        help="only the dial, in front of a server that is there (http://…/v1); again for others",
    )
    group.add_argument(
        "--upstream-model",
        action="append",
        default=[],
        metavar="LEVEL=NAME",
        help="what the server calls a level's model, if it is not found by itself",
    )
    group.add_argument("--upstream-key-from", help="environment variable with the server's key")
