"""Files that are whole or absent: written aside, flushed to disk, then moved into place."""

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from crt.errors import DataError

UNFINISHED = ".unfinished-"
LOCK = ".lock"


@contextlib.contextmanager
def written_whole(path: Path) -> Iterator[IO[bytes]]:
    """A file to write to, which appears under its name only when the block ends well."""
    aside = path.with_name(f"{UNFINISHED}{os.getpid()}-{path.name}")
    try:
        with aside.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
        _flush_folder(path.parent)
    except OSError as error:
        raise DataError(f"{path} cannot be written: {error.strerror or error}.") from error
    finally:
        with contextlib.suppress(OSError):
            aside.unlink(missing_ok=True)


@contextlib.contextmanager
def held(folder: Path, by_another: str) -> Iterator[None]:
    """The folder is this process's until the block ends, however it ends; or says `by_another`."""
    try:
        import fcntl
    except ImportError:  # no such locks here; two processes on one folder are then not noticed
        yield
        return
    with _lock_file(folder) as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise DataError(by_another) from None
        yield


def _lock_file(folder: Path) -> IO[str]:
    try:
        return (folder / LOCK).open("a")
    except OSError as error:
        raise DataError(f"{folder} cannot be written to: {error.strerror}.") from None


def write_text(path: Path, text: str) -> None:
    """The file holds the new text, or still the old one."""
    with written_whole(path) as file:
        file.write(text.encode("utf-8"))


def write_json(path: Path, value: Any) -> None:
    """Readable JSON; NaN and infinity are refused because JSON has none."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def read_json(path: Path) -> Any:
    """What the file holds, or a sentence that says what is wrong with it."""
    try:
        return json.loads(path.read_bytes().decode("utf-8"))
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}.") from None
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is damaged, it is not JSON: {error}.") from None


def append_row(path: Path, row: Mapping[str, Any]) -> None:
    """One JSON line at the end, on disk when this returns."""
    line = json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n"
    try:
        with path.open("ab") as file:
            file.write(line.encode("utf-8"))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise DataError(f"{path} cannot be written: {error.strerror}.") from error


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a JSONL file; a last line that was cut off in the middle does not count."""
    if not path.exists():
        return []
    whole, _, _ = path.read_bytes().rpartition(b"\n")
    rows: list[dict[str, Any]] = []
    for number, line in enumerate(whole.split(b"\n") if whole else [], start=1):
        try:
            rows.append(json.loads(line.decode("utf-8")))
        except (ValueError, RecursionError) as error:
            raise DataError(f"{path}, line {number} is damaged: {error}.") from None
    return rows


def sha256(path: Path) -> str:
    """Checksum of a file, read in pieces."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _flush_folder(folder: Path) -> None:
    """The new name itself must be on disk too; not every file system can."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
