"""An evaluation's directory: manifest, parts that survive a kill, whole files with checksums."""

import codecs
import contextlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

import zstandard

from crt.data.datasets import Loaded
from crt.errors import DataError
from crt.evaluation.metrics import (
    DatasetCounts,
    TruncatedIs,
    all_metrics,
    count_rollouts,
    counts_by_dataset,
    nested_json,
    warnings,
)
from crt.grading.grader import GRADER_VERSION
from crt.io import (
    LOCK,
    lock_folder,
    make_folder,
    read_json,
    read_rows,
    sha256,
    sweep,
    write_json,
    write_text,
    written_whole,
)
from crt.run import versions
from crt.sampling.models import is_world
from crt.types import Rollout, Verdict

MANIFEST, ROLLOUTS, PROBLEMS = "manifest.json", "rollouts.jsonl.zst", "problems.jsonl"
COUNTS, FIGURES, PARTS = "by_problem.jsonl", "figures.json", "parts"
SERIES = "series.json"  # beside several evaluations
ROLLOUT_KEYS = (
    *("dataset", "problem_id", "index", "text", "length", "stop", "verdict"),
    *("extracted", "reason", "thinking"),
)
OLD_KEYS = {"data": "dataset", "rollout": "index", "response": "text", "tokens": "length"}
LEVEL = 10  # a tenth of the size of the text; faster than any sampler writes
CHUNK = 1 << 20
PACKED_CHUNK = 1 << 12  # unpacked it may be 128 MB, if somebody means harm
LONGEST_LINE = 1 << 28  # characters: lines with log-probabilities have some tens of millions

FORMAT = 1
IDENTITY = ("format", "model", "data", "prompt", "sampling", "grader", "truncated")
COMPARED = {  # what must be the same for metrics to be comparable
    "sampling.max_tokens": "cap (max_tokens)",
    "sampling.temperature": "temperature",
    "sampling.top_p": "top_p",
    "sampling.rollouts": "number of rollouts",
    "grader": "grader",
    "truncated": "treatment of truncated responses",
    "prompt.settings": "prompt",
    "prompt.budget": "stated token budget",
    "prompt.hash": "chat template",
}
MAY_BE_NONE = ("prompt.budget",)  # none is a value here, elsewhere it is unknown
Manifest = dict[str, Any]


# A finished evaluation


@dataclass(frozen=True, repr=False)
class Evaluation:
    """A finished evaluation: its manifest, its counts by problem, its metrics and doubts."""

    name: str
    manifest: Manifest
    counts: Mapping[str, DatasetCounts]
    metrics: Mapping[str, Any] = field(default_factory=dict[str, Any])  # as in figures.json
    folder: Path | None = None

    @property
    def warnings(self) -> tuple[str, ...]:
        """A sentence for every metric that should not be trusted as it stands."""
        return tuple(map(str, self.metrics.get("warnings", ())))

    def rollouts(self) -> Iterator[Rollout]:
        """Every response, read from the file, whose checksum must be right."""
        if self.folder is None:
            raise DataError(f"the evaluation {self.name!r} was not written: give it a folder")
        _check_sum(self.folder / ROLLOUTS, self.metrics["files"])
        yield from read_rollouts(self.folder / ROLLOUTS)

    def problems(self) -> list[dict[str, Any]]:
        """Questions, answers and prompts, one row per problem."""
        return read_rows(self.folder / PROBLEMS) if self.folder else []

    def __repr__(self) -> str:
        sets = ", ".join(f"{name} ({len(each.ids)})" for name, each in self.counts.items())
        return f"Evaluation({self.name!r}, problems of {sets}, folder={str(self.folder)!r})"


def is_evaluation(source: str) -> bool:
    """Whether it is the folder of an evaluation, and no address or name of a model."""
    return "://" not in source and not is_world(source) and (Path(source) / MANIFEST).is_file()


def load(folder: Path | str, name: str | None = None) -> Evaluation:
    """A finished evaluation, read back; what is damaged or unfinished is named."""
    path = Path(folder)
    manifest = read_json(path / MANIFEST)
    if not (path / FIGURES).is_file():
        raise DataError(f"{path} is not finished: the command that began it goes on from there.")
    metrics = read_json(path / FIGURES)
    try:
        _check_manifest(manifest)
        _check_sum(path / COUNTS, metrics["files"])
        counts = counts_by_dataset(read_rows(path / COUNTS))
        iter(metrics["warnings"])
        return Evaluation(str(name or manifest["name"]), manifest, counts, metrics, path)
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
        raise DataError(f"{path} is not an evaluation of this version: {error!r}.") from None


def evaluation_of(manifest: Manifest, rollouts: Iterable[Rollout]) -> Evaluation:
    """An evaluation that is not written anywhere."""
    counts = counts_by_dataset(_count(rollouts, manifest))
    return Evaluation(manifest["name"], manifest, counts, _metrics(counts, manifest))


# Rollouts in files


def pack(rollouts: Iterable[Rollout]) -> bytes:
    """A zstd frame with a checksum; frames one after the other are again a valid file.

    Half a surrogate pair, which no file can hold, becomes `?`.
    """
    rows = ({key: getattr(rollout, key) for key in ROLLOUT_KEYS} for rollout in rollouts)
    lines = "".join(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n" for row in rows)
    compressor = zstandard.ZstdCompressor(level=LEVEL, write_checksum=True)
    return compressor.compress(lines.encode("utf-8", errors="replace"))


def read_rollouts(path: Path) -> Iterator[Rollout]:
    """The rollouts of a file; a damaged or cut-off file is named."""
    for number, line in enumerate(read_lines(path), start=1):
        try:
            values = {OLD_KEYS.get(key, key): value for key, value in json.loads(line).items()}
            values = {"thinking": None} | values  # evaluations of earlier versions lack it
            values = {key: values[key] for key in ROLLOUT_KEYS}
            yield Rollout(**{**values, "verdict": Verdict(values["verdict"])})
        except (ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
            raise DataError(f"{path}, line {number} is not a rollout: {error}.") from None


def read_lines(path: Path) -> Iterator[str]:
    """Lines of a text file, packed (.zst) or plain."""
    try:
        with path.open("rb") as file:
            packed = path.suffix == ".zst"
            chunks = iter(lambda: file.read(PACKED_CHUNK if packed else CHUNK), b"")
            content = _decompress(chunks) if packed else chunks
            parts: list[str] = []  # of a line
            length = 0
            for text in codecs.iterdecode(content, "utf-8-sig"):
                first, *rest = text.split("\n")
                parts.append(first)
                length += len(first)
                for start in rest:
                    yield "".join(parts)
                    parts, length = [start], len(start)
                if length > LONGEST_LINE:
                    raise DataError(f"{path} has a line of over {LONGEST_LINE >> 20} MB.")
            if line := "".join(parts):
                yield line
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}.") from None
    except zstandard.ZstdError as error:
        raise DataError(f"{path} is damaged: {error}.") from None
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 text: {error.reason}.") from None


def _decompress(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The content of zstd frames; unlike the library's reader it takes no cut for the end."""
    frame = None
    for chunk in chunks:
        while chunk:
            frame = frame or zstandard.ZstdDecompressor().decompressobj()
            yield frame.decompress(chunk)
            chunk = frame.unused_data
            frame = None if frame.eof else frame
    if frame is not None:
        raise zstandard.ZstdError("it ends in the middle")


# An evaluation under way


@contextlib.contextmanager
def open_store(folder: Path, manifest: Manifest) -> Iterator["Store"]:
    """The directory for this manifest, new or begun, locked against other processes."""
    make_folder(folder)
    with lock_folder(folder, f"{folder} is in use by another process that evaluates."):
        for place in (folder, folder / PARTS):
            sweep(place)
        _claim(folder, manifest)
        yield Store(folder)


def _claim(folder: Path, manifest: Manifest) -> None:
    """Writes the manifest, or finds the same one there; another evaluation is left alone."""
    path = folder / MANIFEST
    if not path.exists():
        if any(name != LOCK for name in os.listdir(folder)):
            raise DataError(f"{folder} holds other files: give another folder, --out.")
        write_json(path, manifest)
    elif difference := identity_difference(read_json(path), manifest):
        raise DataError(
            f"{folder} holds another evaluation, whose {difference}: give another folder, --out."
        )


@dataclass(frozen=True)
class Store:
    folder: Path

    @property
    def finished(self) -> bool:
        """The metrics are there too."""
        return (self.folder / FIGURES).is_file()

    @property
    def has_rollouts(self) -> bool:
        """Every response is there."""
        return (self.folder / ROLLOUTS).is_file()

    def part(self, name: str) -> Path:
        return self.folder / PARTS / f"{name}.jsonl.zst"

    def write_part(self, name: str, rollouts: Sequence[Rollout]) -> None:
        """Writes a part, whole or not at all."""
        (self.folder / PARTS).mkdir(exist_ok=True)
        with written_whole(self.part(name)) as file:
            file.write(pack(rollouts))

    def join_parts(self, sizes: Mapping[str, int]) -> None:
        """All parts as one file: packed frames one after the other are a packed file."""
        with written_whole(self.folder / ROLLOUTS) as file:
            for path, size in ((self.part(name), size) for name, size in sizes.items()):
                with contextlib.suppress(DataError):
                    if sum(1 for _ in read_lines(path)) == size:  # reading checks the checksums
                        file.write(path.read_bytes())
                        continue
                raise DataError(f"{path} is damaged: delete it, and the same command goes on.")

    def write_rollouts(self, rollouts: Iterable[Rollout]) -> None:
        """All rollouts at once, for those that were not sampled here."""
        rest = iter(rollouts)
        with written_whole(self.folder / ROLLOUTS) as file:
            while batch := list(islice(rest, 1000)):
                file.write(pack(batch))

    def write_problems(self, problems: Iterable[Mapping[str, Any]]) -> None:
        """Questions, answers and prompts beside the responses."""
        _write_rows(self.folder / PROBLEMS, problems)

    def finish(self, manifest: Manifest) -> Evaluation:
        """Counts and metrics from the responses; then the parts can go."""
        rows = _count(read_rollouts(self.folder / ROLLOUTS), manifest)
        _write_rows(self.folder / COUNTS, rows)
        files = {name: sha256(self.folder / name) for name in (ROLLOUTS, COUNTS, PROBLEMS)}
        metrics = _metrics(counts_by_dataset(rows), manifest)
        write_json(self.folder / FIGURES, {**metrics, "files": files})
        return self.result()

    def result(self) -> Evaluation:
        """The finished evaluation; the parts are not needed any more."""
        evaluation = load(self.folder)
        shutil.rmtree(self.folder / PARTS, ignore_errors=True)
        return evaluation


def _count(rollouts: Iterable[Rollout], manifest: Manifest) -> list[dict[str, Any]]:
    """Counts by problem, data sets in the order in which they were asked for."""
    place = {data["name"]: i for i, data in enumerate(manifest["data"])}
    rows = count_rollouts(rollouts, manifest["truncated"])
    return sorted(rows, key=lambda row: place[row["data"]])


def _metrics(counts: Mapping[str, DatasetCounts], manifest: Manifest) -> dict[str, Any]:
    """Metrics of every set and average as plain values, and the doubts about them."""
    cap, wrong = manifest["sampling"].get("max_tokens"), manifest["truncated"] == "wrong"
    return {**nested_json(all_metrics(counts)), "warnings": warnings(counts, cap, wrong=wrong)}


def _write_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    write_text(path, "".join(json.dumps(row, allow_nan=False) + "\n" for row in rows))


def _check_sum(path: Path, files: Mapping[str, str]) -> None:
    if not path.is_file():
        raise DataError(f"{path} is missing.")
    if sha256(path) != files[path.name]:
        raise DataError(f"{path} is damaged: its checksum is not the one in {FIGURES}.")


# The manifest: two people get the same table, or see why they don't


def make_manifest(
    name: str,
    model: Mapping[str, Any],
    sets: Sequence[Loaded],
    prompt: Mapping[str, Any],
    sampling: Mapping[str, Any],
    truncated: TruncatedIs,
    grader: str = GRADER_VERSION,
) -> Manifest:
    """Everything that decides the metrics, and what may matter besides."""
    return {
        "format": FORMAT,
        "name": name,
        "model": dict(model),
        "data": [
            {"name": each.name, "hash": each.hash, "problems": len(each), "skipped": each.skipped}
            for each in sets
        ],
        "prompt": dict(prompt),
        "sampling": dict(sampling),
        "grader": grader,
        "truncated": truncated,
        "origins": {each.name: each.origin for each in sets},
        "versions": versions(),
        "started": timestamp(),
    }


def timestamp() -> str:
    """The time to the second, in UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def identity_difference(one: Manifest, other: Manifest) -> str | None:
    """Where two manifests differ in what decides the result, as `key: this, not that`."""
    ours, theirs = (_flatten(_identity(each)) for each in (one, other))
    for key in sorted({*ours, *theirs}):
        if ours.get(key) != theirs.get(key):
            return f"{key} is {_short(ours.get(key))}, not {_short(theirs.get(key))}"
    return None


def incomparable(one: Evaluation, other: Evaluation) -> tuple[list[str], list[str]]:
    """Differences that forbid a comparison, and what cannot be checked because it is unknown."""
    differences: list[str] = []
    unknown: list[str] = []
    for key, what in COMPARED.items():
        ours, theirs = (_at(each.manifest, key) for each in (one, other))
        if (ours is None or theirs is None) and key not in MAY_BE_NONE:
            unknown.append(what)
        elif ours != theirs:
            differences.append(f"the {what}: {_short(ours)} and {_short(theirs)}")
    ours, theirs = (
        {data["name"]: data["hash"] for data in each.manifest["data"]} for each in (one, other)
    )
    for name in (name for name in ours if theirs.get(name, ours[name]) != ours[name]):
        differences.append(f"the problems of {name}: {ours[name][:12]} and {theirs[name][:12]}")
    for name, counts in one.counts.items():  # somebody's completions may be of some problems
        ids = other.counts.get(name, counts).ids
        if set(counts.ids) != set(ids):
            sizes = f"{len(counts.ids)} and {len(ids)}"
            differences.append(f"the problems of {name} that were answered: {sizes}")
    return differences, unknown


def _check_manifest(manifest: Any) -> None:
    """Raises KeyError or TypeError unless it has the parts that a comparison reads."""
    texts = [manifest[key] for key in ("name", "grader", "truncated")]
    texts += [data[key] for data in manifest["data"] for key in ("name", "hash")]
    tables = [manifest[key] for key in ("model", "prompt", "sampling")]
    right = all(isinstance(text, str) for text in texts)
    right = right and all(isinstance(table, dict) for table in tables)
    if not right or manifest["format"] != FORMAT:
        raise TypeError("manifest.json has another format")


def _identity(manifest: Manifest) -> Manifest:
    """The parts that decide; weights that are known by their hash may have any name."""
    parts = {key: manifest.get(key) for key in IDENTITY}
    model = dict(parts["model"] or {})
    if model.get("hash"):
        model.pop("name", None)
    return {**parts, "model": model}


def _at(manifest: Manifest, key: str) -> Any:
    value: Any = manifest
    for part in key.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _flatten(value: Any, path: str = "") -> dict[str, Any]:
    """Every value in it by its place, as `sampling.seed`."""
    if not isinstance(value, dict | list):
        return {path: value}
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    flat: dict[str, Any] = {}
    for key, below in pairs:
        flat |= _flatten(below, f"{path}.{key}" if path else str(key))
    return flat


def _short(value: Any) -> str:
    text = repr(value) if not isinstance(value, dict) else str(sorted(value.items()))
    return text if len(text) <= 60 else f"{text[:57]}…"
