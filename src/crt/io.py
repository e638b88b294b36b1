"""Files that are whole or absent: written aside, flushed to disk, then moved into place."""

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from crt.errors import DataError

UNFINISHED = ".unfinished-"
LOCK = ".lock"
CHECKSUM = "checksum"


@contextlib.contextmanager
def written_whole(path: Path) -> Iterator[IO[bytes]]:
    """A file to write to, which appears under its name only when the block ends well."""
    aside = path.with_name(f"{UNFINISHED}{os.getpid()}-{path.name}")
    try:
        if path.exists() and not path.is_file():  # a rename would put an end to /dev/null for all
            raise DataError(f"{path} is there and is no file: give another name.")
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
def lock_folder(folder: Path, message: str) -> Iterator[None]:
    """Keeps other processes out until the block ends; raises `message` if one is in already."""
    try:
        import fcntl
    except ImportError:  # no such locks here; two processes on one folder are then not noticed
        yield
        return
    try:
        lock = (folder / LOCK).open("a")
    except OSError as error:
        raise DataError(f"{folder} cannot be written to: {error.strerror}.") from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise DataError(message) from None
        yield


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


def write_sealed(path: Path, value: Mapping[str, Any]) -> None:
    """Readable JSON with a checksum in it, so that one changed letter is found."""
    plain = json.loads(json.dumps(value, allow_nan=False))  # as it will be read
    write_json(path, {**plain, CHECKSUM: _digest(plain)})


def read_sealed(path: Path) -> dict[str, Any]:
    """What was sealed, without the checksum; a file that never had one is taken as it is."""
    value = read_json(path)
    if not isinstance(value, dict):
        raise DataError(f"{path} is damaged: it holds {type(value).__name__}, not a table.")
    checksum = value.pop(CHECKSUM, None)
    if checksum not in (None, _digest(value)):
        raise DataError(f"{path} is damaged, or was edited: its checksum does not fit.")
    return value


def _digest(plain: Mapping[str, Any]) -> str:
    text = json.dumps(plain, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def append_row(path: Path, row: Mapping[str, Any]) -> None:
    """One JSON line at the end, on disk when this returns; a line that was cut off goes."""
    line = json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n"
    try:
        with path.open("a+b") as file:
            _drop_torn_line(file)
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
            row = json.loads(line.decode("utf-8"))
        except (ValueError, RecursionError) as error:
            raise DataError(f"{path}, line {number} is damaged: {error}.") from None
        if not isinstance(row, dict):
            raise DataError(f"{path}, line {number} is damaged: it is no row.")
        rows.append(row)
    return rows


def _drop_torn_line(file: IO[bytes]) -> None:
    """A killed writer's half of a line would swallow the next one."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - 1))
    if size and file.read(1) != b"\n":
        file.seek(0)
        file.truncate(file.read().rfind(b"\n") + 1)


def make_folder(path: Path) -> None:
    """The folder and those above it, or a sentence that says why it cannot be."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{path} cannot be made: {error.strerror}.") from None


def cache_folder(name: str) -> Path:
    """What can be made again is kept here: in CRT_CACHE, or in the user's cache."""
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.environ.get("CRT_CACHE") or caches / "crt") / name


def sha256(path: Path) -> str:
    """Checksum of a file, read in pieces."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}.") from None


def checked_sum(path: Path, sums: Mapping[str, str], root: Path | None = None) -> str:
    """A file's checksum, which must be the one in `sums` if it is listed there by its name."""
    name = path.relative_to(root or path.parent).as_posix()
    if name in sums and not path.is_file():
        raise DataError(f"{path} is missing.")
    checksum = sha256(path)
    if sums.get(name, checksum) != checksum:
        raise DataError(f"{path} is damaged: its checksum is not the one that was noted.")
    return checksum


def sweep(folder: Path) -> None:
    """Removes what a killed process left half-written; the folder must be locked."""
    for path in folder.glob(f"{UNFINISHED}*"):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _flush_folder(folder: Path) -> None:
    """The new name itself must be on disk too; not every file system can."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
