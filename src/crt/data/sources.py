"""Rows of a data file, one at a time, each with its place; what cannot be read says why."""

import csv
import importlib
import json
import os
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit
from urllib.request import getproxies

from crt.errors import DataError, first_line, install_command

LONGEST_LINE = 16 * 2**20  # bytes: the longest row of the known sets has 13 thousand
LARGEST_JSON = 512 * 2**20  # bytes: a JSON array is read whole


@dataclass(frozen=True, slots=True)
class Row:
    """One record and its place, or the reason why there is none."""

    place: str
    value: dict[str, Any] = field(default_factory=dict[str, Any])
    fault: str = ""


def read_file(path: Path) -> Iterator[Row]:
    if path.suffix not in READERS:
        suffixes = ", ".join(READERS)
        raise DataError(f"{path} is not a data file: its name must end in one of {suffixes}")
    try:
        yield from READERS[path.suffix](path)
    except FileNotFoundError:
        raise DataError(f"{path} does not exist") from None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from None


def _jsonl(path: Path) -> Iterator[Row]:
    with path.open("rb") as file:
        yield from read_lines(file, str(path))


def read_lines(file: IO[bytes], name: str) -> Iterator[Row]:
    """The rows of JSON lines; an overlong line is read to its end but not kept."""
    number = 0
    while line := file.readline(LONGEST_LINE + 1):
        number += 1
        if number == 1:
            _refuse_utf16(name, line)
        place, rest = f"{name}, line {number}", line
        while len(line) > LONGEST_LINE and rest and not rest.endswith(b"\n"):
            rest = file.readline(2**20)
        if len(line) > LONGEST_LINE:
            yield Row(place, fault=f"longer than {LONGEST_LINE >> 20} MB")
        elif b"\0" in line:
            yield Row(place, fault="contains a NUL byte")
        elif line.strip():
            try:
                yield _object_row(place, _parse_json(line.rstrip()))
            except DataError as error:
                yield Row(place, fault=str(error))


def _parse_json(content: bytes) -> Any:
    try:
        return json.loads(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise DataError(f"not UTF-8 at byte {error.start}") from None
    except json.JSONDecodeError as error:
        line = f"line {error.lineno}, " if error.lineno > 1 else ""
        raise DataError(f"not JSON: {error.msg} at {line}column {error.colno}") from None
    except (ValueError, RecursionError) as error:  # a huge integer, or nested too deeply
        raise DataError(f"not usable JSON: {str(error).split(';')[0]}") from None


def _object_row(place: str, value: Any) -> Row:
    if isinstance(value, dict):
        return Row(place, value)
    return Row(place, fault=f"a JSON {type(value).__name__}, not an object")


def _json(path: Path) -> Iterator[Row]:
    if path.stat().st_size > LARGEST_JSON:
        raise DataError(
            f"{path} is over {LARGEST_JSON >> 20} MB: write it as JSONL, one row per line"
        )
    content = path.read_bytes()
    _refuse_utf16(str(path), content)
    try:
        items = _parse_json(content)
    except DataError as error:
        raise DataError(f"{path}: {error}") from None
    if not isinstance(items, list):
        raise DataError(f"{path} must be a JSON array of objects, not a {type(items).__name__}")
    for number, item in enumerate(items, start=1):
        yield _object_row(f"{path}, item {number}", item)


def _csv(path: Path) -> Iterator[Row]:
    with path.open("rb") as file:
        _refuse_utf16(str(path), file.read(4))
    # Undecodable bytes become surrogates, so that one bad row is refused, not the whole file.
    with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
        reader = csv.DictReader(file, strict=True)
        previous = 1
        try:
            for record in reader:
                yield _csv_row(f"{path}, line {previous + 1}", record)
                previous = reader.line_num
        except csv.Error as error:  # where the next record starts is no longer known
            raise DataError(f"{path}, line {previous + 1}: not CSV: {error}") from None


def _csv_row(place: str, record: dict[Any, Any]) -> Row:
    if None in record:
        return Row(place, fault=f"{len(record[None])} more fields than the header has")
    if None in record.values():
        return Row(place, fault="fewer fields than the header has")
    return Row(place, {name: value or None for name, value in record.items()})


def _parquet(path: Path) -> Iterator[Row]:
    arrow = _require("pyarrow")
    try:
        with _require("pyarrow.parquet").ParquetFile(path) as file:
            batches = file.iter_batches(batch_size=1024)
            rows = (value for batch in batches for value in batch.to_pylist())
            for number, value in enumerate(rows, start=1):
                yield Row(f"{path}, row {number}", value)
    except arrow.ArrowException as error:
        raise DataError(f"{path} is not a readable Parquet file: {first_line(error)}") from None


def read_hub(
    hub_id: str,
    configs: tuple[str | None, ...],
    split: str,
    revision: str | None = None,
    load_dataset: Callable[..., Any] | None = None,
) -> Iterator[Row]:
    """The rows of a data set on the hub; a set that needs its own code to load is refused."""
    load = load_dataset or _hub_loader()
    for config in configs:
        what = f"{hub_id} ({config + ', ' if config else ''}{split})"
        try:
            loaded = load(hub_id, config, split=split, revision=revision)
        except Exception as error:  # whatever the hub client raises, the answer is the same
            raise DataError(
                f"{what} cannot be loaded from the hub: {first_line(error)}; without the hub, put "
                "the set's file in a folder and set CRT_DATA to it"
            ) from error
        for number, value in enumerate(loaded, start=1):
            yield Row(f"{what}, row {number}", dict(value))


def _hub_loader() -> Callable[..., Any]:
    """The hub client; where the hub's name is unknown it looks in its cache and does not retry."""
    hub = _require("huggingface_hub.constants")
    try:
        resolves = bool(getproxies()) or socket.getaddrinfo(urlsplit(hub.ENDPOINT).hostname, 443)
    except OSError:
        resolves = False
    if not resolves:
        os.environ["HF_HUB_OFFLINE"] = "1"  # for `datasets`, which is loaded after this
        hub.HF_HUB_OFFLINE = True
    return _require("datasets").load_dataset


def _require(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        package = module.partition(".")[0]
        raise DataError(f"this data needs {package}: {install_command('data')}") from None


def _refuse_utf16(name: str, start: bytes) -> None:
    if start.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise DataError(f"{name} is UTF-16, not UTF-8: convert it")


READERS: dict[str, Callable[[Path], Iterator[Row]]] = {
    ".jsonl": _jsonl,
    ".json": _json,
    ".csv": _csv,
    ".parquet": _parquet,
}
