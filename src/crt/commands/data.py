"""crt data: list, show, check and export data sets."""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crt.commands import column_names
from crt.errors import DataError
from crt.io import written_whole

if TYPE_CHECKING:
    from crt.data.datasets import Loaded


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="<action>", required=True)
    listing = actions.add_parser("list", help="names, splits, sizes, sources and licences")
    show = actions.add_parser("show", help="print a few problems")
    show.add_argument("name", help="NAME[/SPLIT][:COUNT], owner/name on the hub, or a file")
    show.add_argument("-n", type=_count, default=5, help="how many to print (5)")
    check = actions.add_parser("check", help="find duplicates and overlaps")
    check.add_argument("names", nargs="+", metavar="name", help="such as gsm8k/train math500")
    check.add_argument("--strict", action="store_true", help="exit with 1 if anything is found")
    export = actions.add_parser("export", help="write problems as JSONL")
    export.add_argument("name", help="NAME[/SPLIT][:COUNT], owner/name on the hub, or a file")
    export.add_argument("--out", type=Path, required=True, help="the file to write")
    export.add_argument("--force", action="store_true", help="overwrite a file that is there")
    for action in (listing, show, check, export):
        action.add_argument("--folder", type=Path, help="where data files are (or CRT_DATA)")
    for action in (show, check, export):
        _loading(action.add_argument)


def run(args: argparse.Namespace) -> int:
    actions = {"list": list_sets, "show": show, "check": check, "export": export}
    return actions[args.action](args)


def list_sets(args: argparse.Namespace) -> int:
    """One row per split: where it is, and how many problems it has if it is in the folder."""
    from crt.data.datasets import DATASETS, POCKET_SPLITS, find, load

    rows: list[tuple[str, ...]] = []
    for name, dataset in DATASETS.items():
        for split, hub in dataset.hub.items():
            path = find(name, split, args.folder).path
            size = str(len(load(name, split, args.folder, skip_bad=True))) if path else "-"
            rows.append((name, split, size, str(path or hub.id), dataset.licence))
        if dataset.generator:
            rows.append((name, ", ".join(POCKET_SPLITS), "endless", "made up", dataset.licence))
    _table(("name", "split", "problems", "source", "licence"), rows)
    return 0


def show(args: argparse.Namespace) -> int:
    """A few problems, readable."""
    loaded = _load(args.name, args)
    for problem in loaded.problems[: args.n]:
        within = f", within {problem.tolerance:g}" if problem.tolerance else ""
        print(f"{problem.id}\n{problem.question}\nanswer: {problem.answer}{within}\n")
    print(f"{len(loaded)} problems from {loaded.origin}, hash {loaded.hash[:16]}")
    return 0


def check(args: argparse.Namespace) -> int:
    """Duplicates inside each set and overlaps between every two of them."""
    from crt.data.overlap import compare, disagree

    rows: list[tuple[str, ...]] = []
    examples: list[str] = []
    for where, same, near in compare({name: _load(name, args).problems for name in args.names}):
        rows.append((where, str(len(same)), str(sum(map(disagree, same))), str(len(near))))
        kinds = (("same question", " = ", same), ("nearly the same", " ~ ", near))
        for kind, sign, groups in kinds:
            ids = (sign.join(problem.id for problem in group) for group in groups[:3])
            examples += [f"{where}: {kind}: {group}" for group in ids]
    _table(("where", "same question", "of these, golds differ", "nearly the same"), rows)
    for example in examples:
        print(example)
    return 1 if examples and args.strict else 0


def export(args: argparse.Namespace) -> int:
    """Problems as JSONL that `crt` reads again; the file appears whole or not at all."""
    if args.out.exists() and not args.force:
        raise DataError(f"{args.out} is there already: choose another name, or --force")
    if not args.out.parent.is_dir():
        raise DataError(f"{args.out.parent} is not a folder: make it first")
    loaded = _load(args.name, args)
    with written_whole(args.out) as file:
        for problem in loaded:
            present = {k: v for k, v in asdict(problem).items() if v not in (None, "", ())}
            if problem.accepted:
                present["answer"] = [problem.answer, *present.pop("accepted")]
            file.write((json.dumps(present, ensure_ascii=False) + "\n").encode())
    print(f"{len(loaded)} problems in {args.out}, hash {loaded.hash[:16]}")
    return 0


def _load(name: str, args: argparse.Namespace) -> "Loaded":
    from crt.data.datasets import load

    options = ("columns", "config", "revision", "seed", "skip_bad")
    loaded = load(name, args.split, args.folder, **{key: getattr(args, key) for key in options})
    if loaded.skipped:
        print(f"{name}: {loaded.skipped} bad rows left out, such as", file=sys.stderr)
        print(*(f"  {fault}" for fault in loaded.faults), sep="\n", file=sys.stderr)
    return loaded


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table on a terminal, tab-separated lines in a pipe."""
    if not sys.stdout.isatty():
        print(*("\t".join(row) for row in (head, *rows)), sep="\n")
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(*head)
    for row in rows:
        table.add_row(*row)
    Console().print(table)


def _loading(add: Callable[..., Any]) -> None:
    add("--split", help="train or test")
    add("--seed", type=int, default=0, help="of a subset NAME:COUNT (0)")
    add("--skip-bad", action="store_true", help="leave out bad rows, count them")
    add("--columns", type=column_names, default={}, help="question=…,answer=…")
    add("--config", help="a hub id's config")
    add("--revision", help="a hub id's commit, branch or tag")


def _count(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)
