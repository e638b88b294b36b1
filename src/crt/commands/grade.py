"""crt grade FILE.jsonl: one verdict per line."""

import argparse
import collections
import contextlib
import io
import json
import math
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from crt.data.formats import read_choices, select_fields
from crt.errors import DataError
from crt.io import written_whole

if TYPE_CHECKING:
    from crt.grading.grader import Grade, Grader, Item

CHUNK = 2048  # lines graded at a time: enough to keep the workers busy, little to hold
_PASSED_LENGTH = 200  # longer texts (prompts, solutions) do not identify a line
_ORDER = ("correct", "wrong", "no_answer", "ungraded")
_USED = {"response", "answer", "options", "choices", "tolerance", "question", "thinking_opened"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verb's arguments."""
    parser.epilog = (
        "Each line is a JSON object with `response` and `answer`. `tolerance`, `question`, "
        "`thinking_opened` and `options` or `choices` are used when they are there; with options "
        "the answer is a letter, an index from 0 or the words of one option, as in data files. "
        "Short fields such as `id` are passed along."
    )
    parser.add_argument("file", help="JSON lines with `response` and `answer`; - reads stdin")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write here, not to stdout")
    parser.add_argument(
        "--skip-bad", action="store_true", help="leave bad lines out and count them"
    )
    parser.add_argument(
        "--thinking-opened",
        action="store_true",
        help="the prompts ended inside <think>: a response without </think> has no answer",
    )
    parser.add_argument("--workers", type=int, default=2, help="processes for symbolic work (2)")
    parser.add_argument("--deadline", type=float, default=5.0, help="seconds an item may take (5)")
    parser.add_argument(
        "--memory-mb", type=int, default=2048, help="memory a worker may use (2048)"
    )


def run(args: argparse.Namespace) -> int:
    """Checks every line, then the grader, then writes the verdicts."""
    from crt.grading.grader import Grader

    with contextlib.ExitStack() as stack:
        source = stack.enter_context(_opened(args.file))
        name = "standard input" if args.file == "-" else args.file
        good, bad = _checked(source, name, args.skip_bad)
        grader = stack.enter_context(Grader(args.workers, args.deadline, args.memory_mb))
        grader.self_test()
        progress = stack.enter_context(_progress(good))
        out = stack.enter_context(_output(args.out))
        source.seek(0)
        counts = _write(source, out, grader, progress, args.thinking_opened)
    print(_summary(counts, bad), file=sys.stderr)
    return 0


@contextlib.contextmanager
def _opened(file: str) -> Iterator[IO[bytes]]:
    """The input, so that it can be read twice: standard input goes through a temporary file."""
    if file != "-":
        try:
            source = open(file, "rb")  # noqa: SIM115
            source.peek(1)
        except OSError as error:
            raise DataError(f"Cannot read {file}: {error.strerror}. Name a JSONL file.") from error
        with source:
            yield source
        return
    with tempfile.TemporaryFile() as spool:
        for piece in iter(lambda: sys.stdin.buffer.read(1 << 20), b""):
            spool.write(piece)
        spool.seek(0)
        yield spool


def _checked(source: IO[bytes], name: str, skip_bad: bool) -> tuple[int, int]:
    """How many lines can be graded and how many cannot; the first bad one ends it if it must."""
    good = bad = 0
    for number, line in enumerate(source, 1):
        if not line.strip():
            continue
        try:
            _record(line)
            good += 1
        except DataError as error:
            if not skip_bad:
                raise DataError(
                    f"{name}, line {number}: {error}. Mend the line, or leave such lines out "
                    "with --skip-bad."
                ) from error
            bad += 1
    if not good:
        raise DataError(f"{name} has no line to grade ({bad} bad). Each needs response and answer.")
    return good, bad


def _record(line: bytes) -> dict[str, Any]:
    """One line's object; DataError with the reason when it cannot be graded."""
    try:
        record = json.loads(line.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise DataError("it is not UTF-8") from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"it is not JSON ({error})") from error
    if not isinstance(record, dict):
        raise DataError(f"it is a {type(record).__name__}, not an object")
    _check(record)
    return record


def _check(record: dict[str, Any]) -> None:
    for field in ("response", "answer"):
        if field not in record:
            raise DataError(f"it has no {field!r}")
    if not isinstance(record["response"], str):
        raise DataError(f"its 'response' is {record['response']!r:.60}, not a text")
    _options, answer = _choices(record)
    if isinstance(answer, bool) or not isinstance(answer, str | int | float):
        raise DataError(f"its 'answer' is {answer!r:.60}, not a text or a number")
    tolerance = record.get("tolerance")
    if tolerance is None:
        return
    number = isinstance(tolerance, int | float) and not isinstance(tolerance, bool)
    if not number or not math.isfinite(tolerance) or tolerance < 0:
        raise DataError(f"its 'tolerance' is {tolerance!r:.60}, not a number from 0 up")


def _choices(record: dict[str, Any]) -> tuple[tuple[str, ...], Any]:
    """The options, and the answer: with options its letter, as the data loader reads both."""
    options = select_fields(record)["options"]
    return read_choices(options, record["answer"]) if options else ((), record["answer"])


def _item(record: dict[str, Any], thinking_opened: bool) -> "Item":
    from crt.grading.grader import Item

    options, answer = _choices(record)
    return Item(
        record["response"],
        str(answer),
        options,
        record.get("tolerance"),
        str(record.get("question") or ""),
        bool(record.get("thinking_opened", thinking_opened)),
    )


def _write(
    source: IO[bytes],
    out: IO[str],
    grader: "Grader",
    progress: Callable[[int], None],
    thinking_opened: bool,
) -> collections.Counter[str]:
    """Grades chunk by chunk, in the order of the lines."""
    counts: collections.Counter[str] = collections.Counter()
    for records in _chunks(source):
        grades = grader.grade_many([_item(r, thinking_opened) for r in records], progress)
        for record, grade in zip(records, grades, strict=True):
            counts[grade.verdict] += 1
            out.write(json.dumps(_row(record, grade)) + "\n")
    return counts


def _chunks(source: IO[bytes]) -> Iterator[list[dict[str, Any]]]:
    records: list[dict[str, Any]] = []
    for line in source:
        with contextlib.suppress(DataError):  # counted when the lines were checked
            records += [_record(line)] if line.strip() else []
        if len(records) == CHUNK:
            yield records
            records = []
    if records:
        yield records


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
    return passed | {"answer": record["answer"]} | verdict


@contextlib.contextmanager
def _output(path: Path | None) -> Iterator[IO[str]]:
    """Standard output, or a file that appears only when it is complete."""
    if path is None:
        yield sys.stdout
        return
    with written_whole(path) as file:
        out = io.TextIOWrapper(file, encoding="utf-8", write_through=True)
        yield out
        out.detach()  # the file is closed by its owner


@contextlib.contextmanager
def _progress(total: int) -> Iterator[Callable[[int], None]]:
    """A bar on a terminal, else nothing."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (TextColumn("grading"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("grading", total=total)
        yield lambda done: bar.advance(task, done)


def _summary(counts: collections.Counter[str], bad: int) -> str:
    total = counts.total()
    parts = [f"{counts[name]} {name.replace('_', ' ')}" for name in _ORDER]
    share = 100 * counts["correct"] / total
    skipped = f"; {bad} bad lines left out" if bad else ""
    return f"graded {total}: {', '.join(parts)} ({share:.1f} % correct){skipped}"
