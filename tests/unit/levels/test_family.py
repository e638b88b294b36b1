"""A family.json is not trusted when it is read."""

import copy
import json

import pytest
from pydantic import ValidationError

from crt.errors import DataError
from crt.levels.family import Family, model_of, read_family
from tests.support.levels import certificate, level, plain_family

GOOD = plain_family([level("concise", 57.0), level("full", 129.0)])


def changed(path, value):
    """GOOD with one value replaced; `path` is keys and places."""
    result = copy.deepcopy(GOOD)
    *before, last = path
    at = result
    for key in before:
        at = at[key]
    at[last] = value
    return result


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (changed(["format"], 2), "format"),
        (changed(["surprise"], 1), "surprise"),
        (changed(["name"], "../x"), "name"),
        (changed(["levels"], []), "levels"),
        (changed(["levels", 0, "name"], "full"), "same name"),
        (changed(["levels", 0, "hash"], "abc"), "hash"),
        (changed(["levels", 0, "acc", "value"], float("nan")), "acc.value"),
        (changed(["levels", 0, "acc", "value"], "95"), "acc.value"),
        (changed(["levels", 0, "len", "value"], 200.0), "from the shortest to the longest"),
        (changed(["levels", 0, "certificate"], None), "no certificate"),
        (changed(["levels", 1, "certificate"], certificate()), "without certificate"),
        (changed(["levels", 0, "certificate", "lower_bound"], -0.5), "contradicts its own figures"),
        (changed(["levels", 0, "certificate", "problems"], 5), "contradicts its own figures"),
        (
            changed(["levels", 0, "certificate", "candidates"], 7),
            "fewer checkpoints than were measured",
        ),
        (changed(["prompt"], {"instruction": 7}), "prompt"),
    ],
)
def test_what_is_wrong_with_a_file_is_named(bad, why, tmp_path):
    file = tmp_path / "family.json"
    file.write_text(json.dumps(bad))
    with pytest.raises(DataError, match=why):
        read_family(file)


def test_damaged_or_huge_files(tmp_path):
    file = tmp_path / "family.json"
    with pytest.raises(DataError, match="cannot be read"):
        read_family(file)
    file.write_text("{" * 100_000)
    with pytest.raises(DataError, match="damaged"):
        read_family(file)
    file.write_bytes(b" " * (5 * 2**20))
    with pytest.raises(DataError, match="larger than 4 MB"):
        read_family(file)


@pytest.mark.parametrize(
    "bad",
    [
        {"model": "/etc", "folder": True},
        {"model": "../../x y", "folder": False},
        {"model": "--flag", "folder": False},
    ],
)
def test_models_are_relative_folders_or_plain_names(bad, tmp_path):
    family = Family.model_validate(plain_family([level("full", 129.0, **bad)]))
    with pytest.raises(DataError, match=r"not relative|no hub id"):
        model_of(family.levels[0], tmp_path / "family.json")


def test_frozen():
    with pytest.raises(ValidationError):
        Family.model_validate(GOOD).name = "other"
