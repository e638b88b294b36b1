"""crt export: one level as a model folder or an adapter, with its card, on disk or on the hub."""

import argparse
import re
import tempfile
from pathlib import Path

from crt.errors import ConfigError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("run", type=Path, help="a run's folder")
    add("--family", type=Path, help="the family (RUN/family.json)")
    add("--level", required=True, help="concise, balanced, …, full")
    add("--to", type=Path, help="a folder that is not there yet")
    add("--adapter", action="store_true", help="the LoRA adapter itself, not merged into its base")
    add("--push", metavar="OWNER/NAME", help="upload it to the Hugging Face hub with your login")
    add("--private", action="store_true", help="with --push: a private repository")


def run(args: argparse.Namespace) -> int:
    from crt.levels.export import export_level, push_folder
    from crt.levels.family import family_file, read_family
    from crt.run import Run
    from crt.sampling.models import HUB_ID

    if args.to is None and args.push is None:
        raise ConfigError("give a folder to write (--to DIR), or a repository (--push OWNER/NAME)")
    if args.push is not None and not re.fullmatch(HUB_ID, args.push):
        raise ConfigError(f"--push {args.push!r} is not OWNER/NAME")
    run = Run.open(args.run)
    file = family_file(args.family or args.run).absolute()
    family = read_family(file)
    with tempfile.TemporaryDirectory() as temporary:
        to = args.to or Path(temporary) / "level"
        level = export_level(run, family, file, args.level, to, as_adapter=args.adapter)
        places = [str(to)] if args.to else []
        if args.push:
            places.append(push_folder(to, args.push, private=args.private))
    certified = "certified" if level.certified else "without certificate"
    print(
        f"{' and '.join(places)}: {family.name}:{level.name}, {level.acc.value:.1f} % right with "
        f"{level.len.value:.1f} tokens, {certified}; the card is README.md."
    )
    return 0
