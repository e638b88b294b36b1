"""One record a rollout, and the compressed, checksummed files that records are kept in."""

import io
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import zstandard

from crt.errors import DataError
from crt.types import Verdict

Stop = Literal["eos", "length"]
STOPS = ("eos", "length")
LEVEL = 10  # a tenth of the size of the text; faster than any sampler writes


@dataclass(frozen=True, slots=True)
class Record:
    """One response with everything that was found out about it; None is unknown, never 0."""

    data: str
    problem_id: str
    rollout: int
    response: str
    tokens: int | None  # generated, EOS counted
    stop: Stop | None
    verdict: Verdict  # the grader's own, whatever the stop
    extracted: str | None
    reason: str
    zip_ratio: float | None  # None for an empty response


def packed(records: Sequence[Record]) -> bytes:
    """A zstd frame with a checksum; frames one after the other are again a valid file."""
    lines = "".join(json.dumps(asdict(record), allow_nan=False) + "\n" for record in records)
    return zstandard.ZstdCompressor(level=LEVEL, write_checksum=True).compress(lines.encode())


def read_records(path: Path) -> Iterator[Record]:
    """The records of a file; a damaged or cut-off file is named."""
    for number, line in enumerate(read_lines(path), start=1):
        try:
            row = json.loads(line)
            yield Record(**{**row, "verdict": Verdict(row["verdict"])})
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise DataError(f"{path}, line {number} is not a rollout: {error}.") from None


def read_lines(path: Path) -> Iterator[str]:
    """Lines of a text file, packed (.zst) or plain."""
    try:
        with path.open("rb") as file:
            yield from io.TextIOWrapper(_unpacked(path, file), encoding="utf-8-sig")
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}.") from None
    except zstandard.ZstdError as error:
        raise DataError(f"{path} is damaged: {error}.") from None
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 text: {error.reason}.") from None


def _unpacked(path: Path, file: Any) -> Any:
    if path.suffix != ".zst":
        return file
    return io.BufferedReader(_Whole(file))


class _Whole(io.RawIOBase):
    """A packed file's content; unlike the library's reader it does not take a cut for the end."""

    def __init__(self, file: io.BufferedReader) -> None:
        self._file, self._rest, self._inside = file, b"", False
        self._frame = zstandard.ZstdDecompressor().decompressobj()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._rest:
            piece = self._frame.unused_data or self._file.read(1 << 20)
            if not piece and self._inside:
                raise zstandard.ZstdError("it ends in the middle")
            if not piece:
                return 0
            if self._frame.eof:
                self._frame = zstandard.ZstdDecompressor().decompressobj()
            self._rest = self._frame.decompress(piece)
            self._inside = not self._frame.eof
        taken = self._rest[: len(buffer)]
        buffer[: len(taken)] = taken
        self._rest = self._rest[len(taken) :]
        return len(taken)


def clean(text: str) -> str:
    """The text as valid Unicode: half a surrogate pair, which no file can hold, becomes `?`."""
    return text.encode("utf-8", errors="replace").decode()


def tokens_of(records: Iterable[Record]) -> int:
    """Tokens generated, as far as they are known."""
    return sum(record.tokens or 0 for record in records)
