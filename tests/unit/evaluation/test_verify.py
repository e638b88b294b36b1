"""Claims, where accuracies come from, and a whole verification of a model behind a server."""

import json

import pytest

from crt.config import EvaluationConfig, ModelConfig
from crt.errors import ConfigError, DataError
from crt.evaluation import score
from crt.evaluation.backends import Plan
from crt.evaluation.datasets import load_sets
from crt.evaluation.verify import (
    BATCH,
    Claim,
    describe,
    load_recorded,
    parse_claim,
    sampled,
    shuffled,
    verify,
)


@pytest.mark.parametrize(
    ("text", "claim"),
    [
        ("accuracy >= base - 1pt", Claim(0.01)),
        ("Accuracy≥base−0.5 points", Claim(0.005)),
        ("acc >= base", Claim(0.0)),
        ("accuracy >= 80 % - 2pts", Claim(0.02, 0.8)),
        ("accuracy >= 83.9%", Claim(0.0, 0.839)),
    ],
)
def test_claims_in_words(text, claim):
    assert parse_claim(text) == claim
    assert parse_claim(str(claim)) == claim


@pytest.mark.parametrize(
    "text", ["accuracy > base", "accuracy >= 0.8", "tokens <= base", "", "\x1b"]
)
def test_what_is_no_claim_is_refused_with_one_that_is(text):
    with pytest.raises(ConfigError, match="accuracy >= base - 1pt"):
        parse_claim(text)


@pytest.mark.parametrize("text", ["accuracy >= 120 %", "accuracy >= base - 100pt"])
def test_a_claim_that_cannot_be_is_refused(text):
    with pytest.raises(ConfigError, match="0 to 100 %"):
        parse_claim(text)


def keys(count, name="d"):
    return [(name, str(number)) for number in range(count)]


def always(value):
    return lambda batch: dict.fromkeys(batch, value)


def test_it_stops_asking_when_it_can_tell():
    asked = []

    def model(batch):
        asked.extend(batch)
        return dict.fromkeys(batch, 0.5)

    look = verify(Claim(0.01), model, always(1.0), keys(1000))
    assert look.state == "rejected" and look.mean == -0.5
    assert len(asked) == BATCH and look.problems <= BATCH


def test_a_base_that_is_a_number_is_taken_as_exact():
    look = verify(Claim(0.0, base=0.5), always(1.0), None, keys(100))
    assert look.state == "accepted" and look.mean == 0.5
    assert "+50.0 points against 50.0 %" in describe(Claim(0.0, 0.5), look, 0.95)


def test_problems_that_cannot_be_graded_are_left_out():
    def half(batch):
        return {key: 1.0 for key in batch if int(key[1]) % 2}

    look = verify(Claim(0.01), half, always(1.0), keys(100))
    assert look.state == "undecided" and look.problems == 50
    with pytest.raises(DataError, match="nothing to test"):
        verify(Claim(0.01), lambda batch: {}, always(1.0), keys(10))


def test_a_claim_about_a_base_needs_one():
    with pytest.raises(ConfigError, match="--base MODEL, or a number"):
        verify(Claim(0.01), always(1.0), None, keys(10))
    with pytest.raises(ConfigError, match="a number: leave out --base"):
        verify(Claim(0.0, 0.5), always(1.0), always(1.0), keys(10))


def test_problems_come_in_random_order_and_data_sets_in_equal_parts():
    order = shuffled([*keys(1000, "large"), *keys(50, "small")], seed=0)
    assert order == shuffled([*keys(1000, "large"), *keys(50, "small")], seed=0)
    assert order != shuffled([*keys(1000, "large"), *keys(50, "small")], seed=1)
    count = sum(name == "small" for name, _ in order)
    assert count == 50 and 80 <= len(order) <= 125  # until the small one has no more
    assert len(set(order)) == len(order)
    assert sorted(shuffled(keys(30), seed=3)) == sorted(keys(30))


@pytest.fixture
def scored(tmp_path, problems):
    def make(name, answers, **settings):
        rows = [
            {"id": f"p{place}", "response": f"\\boxed{{{answer}}}", "tokens": 1}
            for place, answer in enumerate(answers)
        ]
        file = tmp_path / f"{name}.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        score(file, [str(problems)], tmp_path / name, max_tokens=9, **settings)
        return str(tmp_path / name)

    return make


def test_two_evaluations_that_are_there(scored):
    model, base, order = load_recorded(scored("a", [1, 2, 0]), scored("b", [1, 0, 0]))
    assert base is not None and order == [("sums", f"p{place}") for place in range(3)]
    assert [model(order)[key] - base(order)[key] for key in order] == [0, 1, 0]


def test_evaluations_that_were_made_differently_are_refused(scored):
    with pytest.raises(DataError, match="differ in the treatment of truncated"):
        load_recorded(scored("a", [1]), scored("b", [1], truncated="grade"))


def test_a_server_is_asked_once_and_never_again(serve, problems, tmp_path):
    server = serve()
    plan = Plan(
        ModelConfig(name=server.url),
        EvaluationConfig(data=(str(problems),), rollouts=2, max_tokens=50),
    )
    sets = load_sets(plan.settings.data)
    order = [("sums", f"p{place}") for place in (4, 1, 3)]
    for _ in range(2):
        with sampled(plan, sets, tmp_path / "out") as accuracies:
            assert accuracies(order) == dict.fromkeys(order, 1.0)
    assert len(server.asked) == 2 * 3  # the second time it was there already
    with (
        pytest.raises(DataError, match="holds another evaluation"),
        sampled(Plan(plan.model, plan.settings, seed=1), sets, tmp_path / "out"),
    ):
        pass
