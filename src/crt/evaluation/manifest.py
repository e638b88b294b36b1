"""What an evaluation rests on, so that two people can get the same table or see why they don't."""

import importlib.metadata
import platform
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from crt.data.datasets import Loaded
from crt.data.prompts import PromptSettings
from crt.evaluation.tally import TruncatedIs
from crt.grading.grader import GRADER_VERSION
from crt.version import __version__

FORMAT = 1
IDENTITY = ("format", "model", "data", "prompt", "sampling", "grader", "truncated")
LIBRARIES = ("torch", "transformers", "vllm", "numpy", "math-verify", "sympy", "zstandard")
COMPARED = {  # what must be the same for figures to be comparable
    "cap (max_tokens)": ("sampling", "max_tokens"),
    "temperature": ("sampling", "temperature"),
    "top_p": ("sampling", "top_p"),
    "number of rollouts": ("sampling", "rollouts"),
    "grader": ("grader",),
    "treatment of truncated responses": ("truncated",),
    "prompt": ("prompt", "settings"),
    "stated token budget": ("prompt", "budget"),
    "chat template": ("prompt", "hash"),
}
MAY_BE_NONE = ("stated token budget",)  # none is a value here, elsewhere it is unknown
Manifest = dict[str, Any]


def manifest(
    name: str,
    model: Mapping[str, Any],
    sets: Sequence[Loaded],
    prompt: Mapping[str, Any],
    sampling: Mapping[str, Any],
    truncated: TruncatedIs,
    now: datetime,
) -> Manifest:
    """Everything that decides the figures, and what may matter besides."""
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
        "grader": GRADER_VERSION,
        "truncated": truncated,
        "origins": {each.name: each.origin for each in sets},
        "versions": versions(),
        "started": now.isoformat(timespec="seconds"),
    }


def prompt_part(settings: PromptSettings | None, budget: int | None, hash: str | None) -> Manifest:
    """How questions were put; None where somebody else put them."""
    plain = None if settings is None else {**asdict(settings), "few_shot": _lists(settings)}
    if settings is not None and budget is None:
        budget = settings.budget_tokens
    return {"settings": plain, "budget": budget, "hash": hash}


def versions() -> dict[str, str]:
    """Of this package, Python and the libraries that figures may depend on."""
    found = {"crt": __version__, "python": platform.python_version()}
    for library in LIBRARIES:
        try:
            found[library] = importlib.metadata.version(library)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def check_manifest(value: Any) -> None:
    """Raises KeyError or TypeError unless it has the parts that a comparison reads."""
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        raise TypeError("manifest.json has another format")
    for key in ("name", "grader", "truncated"):
        if not isinstance(value[key], str):
            raise TypeError(f"{key} in manifest.json is not a text")
    for key in ("model", "prompt", "sampling"):
        value[key].keys()
    for each in value["data"]:
        if not (isinstance(each["name"], str) and isinstance(each["hash"], str)):
            raise TypeError("a data set in manifest.json has no name or no hash")


def other_identity(one: Manifest, other: Manifest) -> str | None:
    """Where two manifests differ in what decides the result, as `key: this, not that`."""
    ours, theirs = (dict(_flat(_identity(each))) for each in (one, other))
    for key in sorted({*ours, *theirs}):
        if ours.get(key) != theirs.get(key):
            return f"{key} is {_short(ours.get(key))}, not {_short(theirs.get(key))}"
    return None


def incomparable(one: Manifest, other: Manifest) -> tuple[list[str], list[str]]:
    """Differences that forbid a comparison, and what cannot be checked because it is unknown."""
    differences: list[str] = []
    unknown: list[str] = []
    for what, path in COMPARED.items():
        ours, theirs = _at(one, path), _at(other, path)
        absent = ours is None or theirs is None
        if absent and what not in MAY_BE_NONE:
            unknown.append(what)
        elif ours != theirs:
            differences.append(f"the {what}: {_short(ours)} and {_short(theirs)}")
    return differences + _data_differences(one, other), unknown


def short_name(model: str) -> str:
    """A model's name for a table or a folder."""
    return re.sub(r"[^\w.+-]+", "-", model.rstrip("/").rpartition("/")[2]).strip("-.") or "model"


def _data_differences(one: Manifest, other: Manifest) -> list[str]:
    ours = {each["name"]: each["hash"] for each in one["data"]}
    theirs = {each["name"]: each["hash"] for each in other["data"]}
    return [
        f"the problems of {name}: {ours[name][:12]} and {theirs[name][:12]}"
        for name in ours
        if name in theirs and ours[name] != theirs[name]
    ]


def _identity(manifest: Manifest) -> Manifest:
    """The parts that decide; weights that are known by their hash may have any name."""
    found = {key: manifest.get(key) for key in IDENTITY}
    model = dict(found["model"] or {})
    if model.get("hash"):
        model.pop("name", None)
    return {**found, "model": model}


def _lists(settings: PromptSettings) -> list[list[str]]:
    """As JSON gives it back, so that a manifest compares equal after reading."""
    return [list(pair) for pair in settings.few_shot]


def _at(value: Any, path: Sequence[str]) -> Any:
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _flat(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, below in value.items():
            yield from _flat(below, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list):
        for index, below in enumerate(value):
            yield from _flat(below, f"{path}[{index}]")
    else:
        yield path, value


def _short(value: Any) -> str:
    text = repr(value) if not isinstance(value, dict) else str(sorted(value.items()))
    return text if len(text) <= 60 else f"{text[:57]}…"
