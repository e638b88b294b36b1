"""Two evaluations are comparable, or the sentence says why not."""

import json
from copy import deepcopy

import pytest

from crt.errors import ConfigError, DataError
from crt.evaluation.comparison import compare
from crt.evaluation.manifest import incomparable, other_identity, short_name
from crt.evaluation.store import Evaluation, load
from crt.evaluation.tally import Count, count_of, tallies

MANIFEST = {
    "format": 1,
    "name": "one",
    "model": {"name": "m", "hash": "abc", "kind": "local"},
    "data": [{"name": "gsm8k", "hash": "1" * 64, "problems": 2, "skipped": 0}],
    "prompt": {"settings": {"instruction": "{question}"}, "budget": None, "hash": "t"},
    "sampling": {"rollouts": 4, "temperature": 0.6, "top_p": 0.95, "max_tokens": 512, "seed": 0},
    "grader": "1.0",
    "truncated": "wrong",
}


def changed(**parts):
    made = deepcopy(MANIFEST)
    for path, value in parts.items():
        *outer, last = path.split("__")
        place = made
        for key in outer:
            place = place[key]
        place[last] = value
    return made


def evaluation(name, manifest, problems=("p", "q")):
    zips = {f"zip{k}_{v}": 1 for k in ("", "_correct", "_wrong") for v in ("sum", "n")}
    rows = [Count("gsm8k", p, 4, 4, 2, 0, 40, 0, **zips) for p in problems]
    return Evaluation(name, manifest, tallies(rows))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"sampling__max_tokens": 1024}, r"the cap \(max_tokens\): 512 and 1024"),
        ({"sampling__temperature": 1.0}, "the temperature: 0.6 and 1.0"),
        ({"sampling__rollouts": 16}, "number of rollouts: 4 and 16"),
        ({"grader": "2.0"}, "the grader: '1.0' and '2.0'"),
        ({"truncated": "grade"}, "truncated responses: 'wrong' and 'grade'"),
        ({"prompt__hash": "u"}, "chat template: 't' and 'u'"),
        ({"prompt__budget": 500}, "token budget: None and 500"),
        ({"data": [{"name": "gsm8k", "hash": "2" * 64}]}, "problems of gsm8k: 1{12} and 2{12}"),
    ],
)
def test_what_forbids_a_comparison_is_named(change, told):
    pair = [evaluation("one", MANIFEST), evaluation("two", changed(**change))]
    with pytest.raises(DataError, match=told):
        compare(pair)
    assert any("differ in" in warning for warning in compare(pair, anyway=True).warnings)


def test_answers_to_other_problems_are_refused_or_only_the_common_ones_compared():
    pair = [evaluation("one", MANIFEST), evaluation("two", MANIFEST, ("p",))]
    with pytest.raises(DataError, match="problems of gsm8k that were answered: 2 and 1"):
        compare(pair)
    certificate = compare(pair, anyway=True).tables[-1]
    change = dict(certificate.rows)["two"][0].interval
    assert change is not None and change.problems == 1


def test_the_seed_and_the_model_may_differ():
    other = changed(sampling__seed=1, model__hash="def")
    assert incomparable(MANIFEST, other) == ([], [])


def test_what_is_unknown_is_said_and_not_refused():
    pair = [evaluation("one", MANIFEST), evaluation("two", changed(sampling__max_tokens=None))]
    [warning] = compare(pair).warnings
    assert "not known" in warning and "cap" in warning


def test_identity_is_what_decides_the_result():
    assert other_identity(MANIFEST, changed(name="other")) is None
    assert other_identity(MANIFEST, changed(model__name="elsewhere/m")) is None  # same weights
    assert other_identity(MANIFEST, changed(sampling__seed=1)) == "sampling.seed is 0, not 1"
    endpoint = changed(model={"name": "m", "hash": None})
    assert other_identity(endpoint, changed(model={"name": "n", "hash": None})) == (
        "model.name is 'm', not 'n'"
    )


def test_names_and_base():
    one, two = evaluation("one", MANIFEST), evaluation("two", MANIFEST)
    assert [name for name, _ in compare([one, two], base="two").tables[0].rows] == ["two", "one"]
    with pytest.raises(ConfigError, match="Did you mean `two`"):
        compare([one, two], base="twoo")
    with pytest.raises(ConfigError, match="two evaluations are called 'one'"):
        compare([one, one])
    with pytest.raises(ConfigError, match="two evaluations or more"):
        compare([one])


def test_short_names():
    assert short_name("Qwen/Qwen3-4B") == "Qwen3-4B"
    assert short_name("runs/demo/checkpoints/step-0040/") == "step-0040"
    assert short_name("../..") == "model"


@pytest.mark.parametrize("value", [None, 3, "x", [], {}])
@pytest.mark.parametrize("key", ["format", "name", "model", "data", "prompt", "sampling", "grader"])
def test_a_manifest_that_is_not_one_is_one_sentence(tmp_path, key, value):
    folder = tmp_path / "e"
    folder.mkdir()
    (folder / "manifest.json").write_text(json.dumps({**MANIFEST, key: value}))
    (folder / "figures.json").write_text(json.dumps({"files": {}, "warnings": []}))
    with pytest.raises(DataError) as error:
        load(folder)
    assert str(folder) in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    "wrong", [{"correct": 9}, {"rollouts": 0}, {"tokens": -1}, {"tokens": 10**400}, {"data": 3}]
)
def test_counts_that_contradict_each_other(wrong):
    zips = {f"zip{k}_{v}": 1 for k in ("", "_correct", "_wrong") for v in ("sum", "n")}
    row = {"data": "a", "problem_id": "p", "rollouts": 4, "graded": 4, "correct": 2, **zips}
    whole = {**row, "no_answer": 0, "tokens": 4, "truncated": 0}
    assert count_of(whole, "file").correct == 2
    with pytest.raises(DataError, match="file"):
        count_of({**whole, **wrong}, "file")
