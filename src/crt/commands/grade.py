"""crt grade FILE.jsonl: one verdict per line."""

import argparse
import contextlib
import json
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from crt.commands.eval import add_grading
from crt.errors import DataError
from crt.io import written_whole
from crt.types import Problem, Verdict

if TYPE_CHECKING:
    from crt.grading.grader import Grade, Item

CHUNK = 2048  # lines graded at a time: enough to keep the workers busy, little to hold
_PASSED_LENGTH = 200  # longer texts (prompts, solutions) do not identify a line
_USED = {"response", "answer", "options", "choices", "tolerance", "question", "thinking_opened"}
_USED |= {"verifier", "test_list", "test"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    parser.epilog = (
        "Each line is a JSON object with `response` and `answer`. `tolerance`, `question`, "
        "`verifier`, `thinking_opened` and `options` or `choices` are used when they are there; "
        "with options the answer is a letter, an index from 0 or the words of one option, as in "
        "data files. Short fields such as `id` are passed along."
    )
    add("file", help="JSON lines with `response` and `answer`; - reads stdin")
    add("--out", type=Path, metavar="FILE", help="write here, not to stdout")
    add("--skip-bad", action="store_true", help="leave bad lines out and count them")
    add(
        "--thinking-opened",
        action="store_true",
        help="the prompts ended inside <think>: a response without </think> has no answer",
    )
    add_grading(add)
    add("--workers", type=int, default=2, help="processes for symbolic work (2)")
    add("--deadline", type=float, default=5.0, help="seconds an item may take (5)")
    add("--memory-mb", type=int, default=2048, help="memory a worker may use (2048)")


def run(args: argparse.Namespace) -> int:
    """Checks every line, then the grader, then writes the verdicts."""
    from crt.grading.grader import Grader

    verifier, allow = args.verifier or "math", args.allow or ()
    chosen = {"verifier": verifier, "place": args.answer, "allow": allow}
    name = "standard input" if args.file == "-" else args.file
    verdicts: Counter[str] = Counter()
    with contextlib.ExitStack() as stack:
        source = stack.enter_context(_open_twice(args.file))
        grader = stack.enter_context(Grader(args.workers, args.deadline, args.memory_mb, **chosen))
        lines: Counter[bool] = Counter()
        verifiers: dict[str, Problem] = {}
        for line in _read(source, name, args):
            lines[line is not None] += 1
            if line is not None:
                verifiers.setdefault(line[1].problem.verifier, line[1].problem)
        if not lines[True]:
            raise DataError(f"{name} has no line to grade ({lines[False]} bad).")
        grader.self_test()
        grader.check(verifiers.values())
        progress = stack.enter_context(_progress(lines[True]))
        out = stack.enter_context(written_whole(args.out)) if args.out else sys.stdout.buffer
        good = (line for line in _read(source, name, args) if line is not None)
        while chunk := list(islice(good, CHUNK)):
            grades = grader.grade_many((item for _, item in chunk), progress)
            for (record, _), grade in zip(chunk, grades, strict=True):
                verdicts[grade.verdict] += 1
                out.write(json.dumps(_row(record, grade)).encode() + b"\n")
    counts = ", ".join(f"{verdicts[name]} {name.replace('_', ' ')}" for name in Verdict)
    share = 100 * verdicts[Verdict.CORRECT] / verdicts.total()
    skipped = f"; {lines[False]} bad lines left out" if lines[False] else ""
    print(f"graded {verdicts.total()}: {counts} ({share:.1f} % correct){skipped}", file=sys.stderr)
    return 0


@contextlib.contextmanager
def _open_twice(file: str) -> Iterator[IO[bytes]]:
    """The input, so that it can be read twice: standard input goes through a temporary file."""
    if file == "-":
        with tempfile.TemporaryFile() as spool:
            shutil.copyfileobj(sys.stdin.buffer, spool)
            yield spool
        return
    try:
        source = open(file, "rb")  # noqa: SIM115
    except OSError as error:
        raise DataError(f"Cannot read {file}: {error.strerror}. Name a JSONL file.") from None
    with source:
        yield source


def _read(
    source: IO[bytes], name: str, args: argparse.Namespace
) -> Iterator[tuple[dict[str, Any], "Item"] | None]:
    """Each line with what is graded, from the start; a bad one ends it, or is None if skipped."""
    from crt.data.formats import read_item
    from crt.data.sources import read_lines

    source.seek(0)
    for row in read_lines(source, name):
        try:
            if row.fault:
                raise DataError(row.fault)
            yield row.value, read_item(row.value, args.thinking_opened)
        except DataError as error:
            if not args.skip_bad:
                raise DataError(
                    f"{row.place}: {error}. Mend the line, or leave such lines out with --skip-bad."
                ) from None
            yield None


def _row(record: dict[str, Any], grade: "Grade") -> dict[str, Any]:
    """The verdict with the line's short fields, by which it is known again."""
    passed = {
        key: value
        for key, value in record.items()
        if key not in _USED
        and not isinstance(value, dict | list)
        and len(str(value)) <= _PASSED_LENGTH
    }
    verdict = {"verdict": str(grade.verdict), "extracted": grade.extracted, "reason": grade.reason}
    answer = {"answer": record["answer"]} if "answer" in record else {}
    return passed | answer | verdict


@contextlib.contextmanager
def _progress(total: int) -> Iterator[Callable[[int], None]]:
    """A bar on a terminal, else nothing."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("grading", total=total)
        yield lambda done: bar.advance(task, done)
