"""An evaluation's directory: parts that survive a kill, then whole files with checksums."""

import contextlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from crt.errors import DataError
from crt.evaluation.figures import all_figures, warnings
from crt.evaluation.manifest import Manifest, check_manifest, other_identity
from crt.evaluation.records import Record, packed, read_records
from crt.evaluation.tally import Count, Tally, count_of, counts, tallies
from crt.io import (
    LOCK,
    lock_folder,
    read_json,
    read_rows,
    sha256,
    sweep,
    write_json,
    write_text,
    written_whole,
)

MANIFEST, ROLLOUTS, PROBLEMS = "manifest.json", "rollouts.jsonl.zst", "problems.jsonl"
COUNTS, FIGURES, PARTS = "by_problem.jsonl", "figures.json", "parts"


@dataclass(frozen=True)
class Evaluation:
    """A finished evaluation: its manifest, its counts by problem, its doubts."""

    name: str
    manifest: Manifest
    tallies: Mapping[str, Tally]
    warnings: tuple[str, ...] = ()
    folder: Path | None = None
    figures: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def rollouts(self) -> Iterator[Record]:
        """Every response, read from the file, whose checksum must hold."""
        if self.folder is None:
            raise DataError(f"the evaluation {self.name!r} was not written: give it a folder")
        _check(self.folder, ROLLOUTS, self.figures["files"])
        yield from read_records(self.folder / ROLLOUTS)

    def problems(self) -> list[dict[str, Any]]:
        """Questions, answers and prompts, one row a problem."""
        return read_rows(self.folder / PROBLEMS) if self.folder else []


def load(folder: Path | str, name: str | None = None) -> Evaluation:
    """A finished evaluation, read back; what is damaged or unfinished is named."""
    path = Path(folder)
    manifest = read_json(path / MANIFEST)
    if not (path / FIGURES).is_file():
        raise DataError(f"{path} is not finished: the command that began it goes on from there.")
    figures = read_json(path / FIGURES)
    try:
        check_manifest(manifest)
        _check(path, COUNTS, figures["files"])
        rows = [count_of(row, f"{path / COUNTS}") for row in read_rows(path / COUNTS)]
        found = (str(name or manifest["name"]), manifest, tallies(rows))
        doubts = tuple(map(str, figures["warnings"]))
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise DataError(f"{path} is not an evaluation of this version: {error!r}.") from None
    return Evaluation(*found, doubts, path, figures)


@contextlib.contextmanager
def opened(folder: Path, manifest: Manifest) -> Iterator["Store"]:
    """The directory for this manifest, new or begun, held against other processes."""
    _make(folder)
    with lock_folder(folder, f"{folder} is in use by another process that evaluates."):
        for place in (folder, folder / PARTS):
            sweep(place)
        _claim(folder, manifest)
        yield Store(folder)


@dataclass(frozen=True)
class Store:
    """An evaluation under way."""

    folder: Path

    def sampled(self, responses: int) -> bool:
        """Whether every response is there and whole; reading them checks the checksums."""
        path = self.folder / ROLLOUTS
        if not path.is_file():
            return False
        try:
            found = sum(1 for _ in read_records(path))
            if found != responses:
                raise DataError(f"{path} is damaged: it has {found} records, not {responses}.")
        except DataError as error:
            if (self.folder / PARTS).is_dir():
                return False  # it can be put together again
            raise DataError(f"{error} Delete it, and the same command samples again.") from None
        return True

    @property
    def finished(self) -> bool:
        """The figures are there too."""
        return (self.folder / FIGURES).is_file()

    def done(self, sizes: Mapping[str, int]) -> tuple[set[str], list[str]]:
        """Names of the parts that are whole, and a sentence about each that is not."""
        whole: set[str] = set()
        damaged: list[str] = []
        for part, size in sizes.items():
            path = self.folder / PARTS / f"{part}.jsonl.zst"
            try:
                if path.is_file() and (found := sum(1 for _ in read_records(path))) != size:
                    raise DataError(f"{path} is damaged: it has {found} records, not {size}.")
            except DataError as error:
                damaged.append(f"{error} It is sampled again.")
            else:
                whole |= {part} if path.is_file() else set()
        return whole, damaged

    def keep(self, part: str, records: Sequence[Record]) -> None:
        """Writes a part, whole or not at all."""
        _make(self.folder / PARTS)
        with written_whole(self.folder / PARTS / f"{part}.jsonl.zst") as file:
            file.write(packed(records))

    def records(self, part: str) -> list[Record]:
        """A part's records."""
        return list(read_records(self.folder / PARTS / f"{part}.jsonl.zst"))

    def join(self, parts: Sequence[str]) -> None:
        """All parts as one file: packed frames one after the other are a packed file."""
        with written_whole(self.folder / ROLLOUTS) as file:
            for part in parts:
                file.write((self.folder / PARTS / f"{part}.jsonl.zst").read_bytes())

    def write(self, records: Iterable[Record]) -> None:
        """All records at once, for those that were not sampled here."""
        with written_whole(self.folder / ROLLOUTS) as file:
            batch: list[Record] = []
            for record in records:
                batch.append(record)
                if len(batch) == 1000:
                    file.write(packed(batch))
                    batch = []
            file.write(packed(batch))

    def describe(self, problems: Iterable[Mapping[str, Any]]) -> None:
        """Questions, answers and prompts beside the responses."""
        lines = (json.dumps(row, allow_nan=False) + "\n" for row in problems)
        write_text(self.folder / PROBLEMS, "".join(lines))

    def finish(self, manifest: Manifest) -> Evaluation:
        """Counts and figures from the responses; then the parts can go."""
        rows = _counts(read_records(self.folder / ROLLOUTS), manifest)
        _write_figures(self.folder, rows, manifest)
        return self.result()

    def result(self) -> Evaluation:
        """The finished evaluation; the parts are not needed any more."""
        found = load(self.folder)
        shutil.rmtree(self.folder / PARTS, ignore_errors=True)
        return found


def evaluation_of(manifest: Manifest, records: Iterable[Record]) -> Evaluation:
    """An evaluation that is not written anywhere."""
    found = tallies(_counts(records, manifest))
    figures = _figures(found, manifest)
    return Evaluation(manifest["name"], manifest, found, tuple(figures["warnings"]), None, figures)


def _counts(records: Iterable[Record], manifest: Manifest) -> list[Count]:
    """Counts by problem, data sets in the order in which they were asked for."""
    place = {each["name"]: i for i, each in enumerate(manifest["data"])}
    return sorted(counts(records, manifest["truncated"]), key=lambda count: place[count.data])


def _write_figures(folder: Path, rows: Sequence[Count], manifest: Manifest) -> None:
    lines = (json.dumps(asdict(row), allow_nan=False) + "\n" for row in rows)
    write_text(folder / COUNTS, "".join(lines))
    files = {name: sha256(folder / name) for name in (ROLLOUTS, COUNTS, PROBLEMS)}
    write_json(folder / FIGURES, {**_figures(tallies(rows), manifest), "files": files})


def _figures(found: Mapping[str, Tally], manifest: Manifest) -> dict[str, Any]:
    """Figures of every set and average as plain values, and the doubts about them."""
    cap = manifest["sampling"].get("max_tokens")
    plain = {
        kind: {name: each.as_json() for name, each in part.items()}
        for kind, part in all_figures(found).items()
    }
    return {**plain, "warnings": warnings(found, cap, wrong=manifest["truncated"] == "wrong")}


def _claim(folder: Path, manifest: Manifest) -> None:
    """Writes the manifest, or finds the same one there; another evaluation is left alone."""
    path = folder / MANIFEST
    if not path.exists():
        if any(name != LOCK for name in os.listdir(folder)):
            raise DataError(f"{folder} holds other files: give another folder, --out.")
        write_json(path, manifest)
        return
    difference = other_identity(read_json(path), manifest)
    if difference:
        raise DataError(
            f"{folder} holds another evaluation, whose {difference}: give another folder, --out."
        )


def _check(folder: Path, name: str, files: Mapping[str, str]) -> None:
    path = folder / name
    if not path.is_file():
        raise DataError(f"{path} is missing.")
    if sha256(path) != files[name]:
        raise DataError(f"{path} is damaged: its checksum is not the one in {FIGURES}.")


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{folder} cannot be made: {error.strerror}.") from None
