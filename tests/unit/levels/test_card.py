"""What the cards of this package claim, read back; and cards that claim nothing."""

import json

import pytest

from crt.errors import ConfigError, DataError
from crt.evaluation import score
from crt.evaluation.verify import Claim
from crt.levels.card import is_card, read_card
from crt.levels.export import model_card
from crt.levels.family import Family
from crt.recipes import config_of
from tests.support.levels import level, plain_family


@pytest.fixture
def family():
    plain = plain_family([level("concise", 57.0), level("full", 129.0)])
    return plain, Family.model_validate(plain)


def settings_of(family):
    measured = family.measured
    return {
        "data": ",".join(each["name"] for each in measured.data),
        "rollouts": measured.rollouts,
        "temperature": measured.temperature,
        "top_p": measured.top_p,
        "max_tokens": measured.max_tokens,
        "instruction": family.prompt.instruction,
    }


def test_a_model_card_claims_what_was_certified(family, tmp_path):
    _, read = family
    config = config_of({
        **{"name": "demo", "model": {"name": "pocket"}, "data": {"train": ["pocket:40"]}},
        **{"method": {"type": "crt"}, "schedule": {"steps": 20}},
    })  # fmt: skip
    (tmp_path / "README.md").write_text(model_card(read, read.levels[0], config))
    card = read_card(tmp_path / "README.md")
    base = round(read.levels[-1].acc.value / 100, 3)  # as it is printed
    assert card.claim == Claim(read.levels[0].certificate.tolerance, base)
    assert card.settings == settings_of(read) | {"instruction": config.prompt.instruction}


def test_the_base_s_card_claims_nothing(family, tmp_path):
    _, read = family
    config = config_of({
        **{"name": "demo", "model": {"name": "pocket"}, "data": {"train": ["pocket:40"]}},
        **{"method": {"type": "crt"}, "schedule": {"steps": 20}},
    })  # fmt: skip
    (tmp_path / "README.md").write_text(model_card(read, read.levels[-1], config))
    with pytest.raises(ConfigError, match="claims nothing that can be checked"):
        read_card(tmp_path / "README.md")


def test_a_family_claims_for_each_level(family, tmp_path):
    plain, read = family
    file = tmp_path / "family.json"
    file.write_text(json.dumps(plain))
    card = read_card(file, "concise")
    assert card.claim == Claim(read.tolerance, read.levels[-1].acc.value / 100)
    assert card.settings == settings_of(read)
    assert read_card(file) == card  # the default is the shortest that is certified
    with pytest.raises(ConfigError, match="nothing to claim"):
        read_card(file, "full")


def test_an_evaluation_claims_its_accuracy(tmp_path):
    (tmp_path / "one.jsonl").write_text('{"id": "p", "question": "1 + 1?", "answer": "2"}\n')
    (tmp_path / "mine.jsonl").write_text(
        '{"id": "p", "response": ["\\\\boxed{2}", "\\\\boxed{3}"], "tokens": 1}\n'
    )
    score(tmp_path / "mine.jsonl", [str(tmp_path / "one.jsonl")], tmp_path / "out", max_tokens=9)
    card = read_card(tmp_path / "out" / "figures.json")
    assert card.claim == Claim(0.01, 0.5)
    assert card.settings == {"rollouts": 2, "max_tokens": 9, "data": "one"}
    figures = tmp_path / "out" / "figures.json"  # whose own figures anybody can edit
    edited = json.loads(figures.read_text()) | {"averages": {"all": {"acc": {"value": "x"}}}}
    figures.write_text(json.dumps(edited))
    assert read_card(figures) == card
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    for rollouts in (10**9, "many"):
        manifest["sampling"]["rollouts"] = rollouts
        (tmp_path / "out" / "manifest.json").write_text(json.dumps(manifest))
        with pytest.raises(ConfigError, match="responses to each problem, more than 1024"):
            read_card(figures)


def test_what_is_a_card_is_told_by_its_name():
    assert all(map(is_card, ("README.md", "a/family.json", "b/figures.json", "card.md")))
    assert not is_card("accuracy >= base - 1pt")


def written(rollouts, base="80.0"):
    """A card as crt export writes it, as far as it is read."""
    return (
        f"| Accuracy | 1 % (1 – 1, n = 1) | {base} % (1 – 1, n = 1) |\n\n{rollouts} responses to "
        "each problem at temperature 1.0, top-p\n1.0, at most 9 tokens, on 1 problems of `one`. "
        "Measured on a day.\nthe tolerance is 1. \n"
    ).encode()


@pytest.mark.parametrize(
    ("name", "content", "error", "told"),
    [
        ("README.md", b"# Nothing", ConfigError, "claims nothing"),
        ("README.md", b"\xff" * 100, ConfigError, "claims nothing"),
        ("README.md", b"| Accuracy | x | 1 % (" * 100_000, ConfigError, "claims nothing"),
        ("README.md", written("9" * 5000), ConfigError, "is no number"),
        ("README.md", written("2000"), ConfigError, "claims 2000 responses to each problem"),
        ("README.md", written("4", base="9" * 5000), ConfigError, "the claim .* cannot be"),
        ("family.json", b"{}", DataError, "is not a family"),
        ("none.md", None, DataError, "cannot be read"),
    ],
)
def test_foreign_cards_are_refused_with_one_sentence(tmp_path, name, content, error, told):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(error, match=told):
        read_card(tmp_path / name)
