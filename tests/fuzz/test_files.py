"""Recipes, data, completions and families of any kind: used, or refused with a sentence."""

import contextlib
import json
import tempfile
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st
from trying import changed_json, changed_text, odd_values, told, tried

from crt.cli import main
from crt.data.datasets import load
from crt.errors import ConfigError, CrtError, DataError
from crt.evaluation.completions import Scoring, read_completions
from crt.evaluation.datasets import load_sets
from crt.grading.extract import extract
from crt.grading.grader import Grader, Item, Task
from crt.levels.family import model_of, read_family
from crt.recipes import config_of, load_recipe, packaged_recipes
from crt.types import Problem, Verdict
from tests.support import levels as made

ROOT = Path(__file__).parents[2]
RECIPES = sorted((ROOT / "recipes").rglob("*.toml"))
PLAIN = tomllib.loads(packaged_recipes()["pocket"].read_text())
ROWS = [{"id": f"p{i}", "question": f"{i} + 1 = ?", "answer": str(i + 1)} for i in range(3)]
JSONL = "".join(json.dumps(row) + "\n" for row in ROWS).encode()
SAID = [{"problem_id": f"p{i}", "response": f"\\boxed{{{i + 1}}}", "tokens": 5} for i in range(3)]
COMPLETIONS = "".join(json.dumps(row) + "\n" for row in SAID).encode()


def written(content: bytes, suffix: str) -> Path:
    """A file of this content, in a folder that is removed when the process ends."""
    path = Path(FOLDER.name) / f"fuzzed{suffix}"
    path.write_bytes(content)
    return path


FOLDER = tempfile.TemporaryDirectory()


@tried("recipe", 100, changed_json(PLAIN))
def test_settings_of_any_kind(plain: Any) -> None:
    try:
        config_of(plain)
    except ConfigError as error:
        told(error)


texts = st.sampled_from([path.read_bytes() for path in RECIPES]).flatmap(changed_text)


@tried("recipe", 50, texts)
def test_recipes_with_pieces_of_something_else(content: bytes) -> None:
    try:
        load_recipe(written(content, ".toml"))
    except ConfigError as error:
        told(error)


@tried("recipe by the command", 10, texts)
def test_the_command_ends_with_0_or_2(content: bytes) -> None:
    with contextlib.redirect_stdout(None), contextlib.redirect_stderr(None):
        assert main(["show", str(written(content, ".toml"))]) in (0, 2)


@tried("override", 50, st.text(max_size=20), odd_values)
def test_overrides(key: str, value: Any) -> None:
    try:
        load_recipe(ROOT / "recipes" / "pocket.toml", [f"{key}={value}", f"seed={value}"])
    except ConfigError as error:
        told(error)


kinds = st.sampled_from([".jsonl", ".json", ".csv", ".parquet"])
contents = st.one_of(st.binary(max_size=200), changed_text(JSONL), changed_text(b"a,b\n1,2\n"))


@tried("data file", 100, contents, kinds, st.booleans())
def test_data_files(content: bytes, suffix: str, skip_bad: bool) -> None:
    try:
        found = load(str(written(content, suffix)), skip_bad=skip_bad)
        assert all(problem.question and problem.answer for problem in found)
    except DataError as error:
        told(error)


rows = st.lists(changed_json(ROWS[0]), min_size=1, max_size=3)


@tried("data file", 100, rows)
def test_rows_of_data(plain: list[Any]) -> None:
    content = "".join(json.dumps(row) + "\n" for row in plain).encode()
    try:
        load(str(written(content, ".jsonl")))
    except DataError as error:
        told(error)


said = st.one_of(
    changed_text(COMPLETIONS),
    changed_json(SAID).map(lambda rows: "\n".join(map(json.dumps, rows)).encode()),
)


@tried("completions", 100, said, st.booleans())
def test_completions(content: bytes, skip_bad: bool) -> None:
    sets = load_sets([str(written(JSONL, ".jsonl"))])
    scoring = Scoring(("fuzzed",), skip_bad=skip_bad)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "said.jsonl"
        path.write_bytes(content)
        try:
            found, _ = read_completions(path, sets, scoring)
            assert all(isinstance(each.response.text, str) for each in found)
        except DataError as error:
            told(error)


pieces = st.sampled_from(
    [
        "\\boxed{",
        "}",
        "{",
        "<think>",
        "</think>",
        "\\frac",
        "1",
        "2^",
        "\x00",
        "\ud800",
        "🙂",
        "^{^{",
    ]
)
responses = st.one_of(st.text(max_size=200), st.lists(pieces, max_size=60).map("".join))


@tried("completion", 200, responses, st.sampled_from(["1", "\\frac{1}{2}", "(1,2)", "x=1"]))
def test_responses_have_a_verdict(text: str, gold: str) -> None:
    """Without a worker, in a moment; what is left to one is told as undecided here."""
    found = extract(text, False)
    assert found.answer is None or isinstance(found.answer, str)
    item = Item(text, Problem("", "", gold))
    with Grader(workers=1) as grader:
        task = grader.prepare(item)
        if isinstance(task, Task):
            grade = grader.grade_fast(task)
            assert grade is None or grade.verdict in (Verdict.CORRECT, Verdict.WRONG)


FAMILY = made.plain_family([made.level("concise", 57.0), made.level("full", 129.0)])
families = st.one_of(
    changed_json(FAMILY).map(lambda plain: json.dumps(plain).encode()),
    changed_text(json.dumps(FAMILY).encode()),
)


def test_the_family_is_right_before_it_is_changed() -> None:
    assert read_family(written(json.dumps(FAMILY).encode(), ".json")).name == "demo"


@tried("family.json", 100, families)
def test_families(content: bytes) -> None:
    path = written(content, ".json")
    try:
        family = read_family(path)
        for level in family.levels:
            model_of(level, path)
    except CrtError as error:
        told(error)


@tried("family.json by the command", 3, families.filter(lambda content: b'"demo"' not in content))
def test_a_bad_family_is_not_served(content: bytes) -> None:
    path = written(content, ".json")
    with contextlib.suppress(CrtError):
        read_family(path)
        return
    with contextlib.redirect_stderr(None):
        assert main(["serve", str(path), "--port", "0"]) == 2


def test_a_method_whose_type_is_no_word() -> None:
    with pytest.raises(ConfigError, match="is not a method"):
        config_of({**PLAIN, "method": {"type": []}})
