"""Every way of turning the dial, and which of them counts."""

import pytest

from crt.levels.family import Family
from crt.levels.requests import ApiError, Dial, choose_level, level_at, model_ids
from tests.support.levels import level, plain_family


def setting(family, **request):
    level, by = choose_level(family, Dial(**{"model": "demo", **request}), family.default)
    return level.name, by


@pytest.mark.parametrize(
    ("field", "names"),
    [
        ("model", {"demo:detailed": "detailed", "detailed": "detailed"}),
        ("reasoning_effort", {"none": "concise", "minimal": "concise", "low": "balanced"}),
        ("reasoning_effort", {"medium": "detailed", "high": "full", "xhigh": "full"}),
        ("verbosity", {"low": "concise", "medium": "balanced", "high": "full"}),
        # 57, 61, 113, 129: 59 is as near to 57 as to 61, then the shorter one is taken; 60 is
        # nearer to 61; 87 is in the middle of 61 and 113
        ("token_target", {1: "concise", 59: "concise", 60: "balanced", 88: "detailed"}),
        ("token_target", {10_000: "full"}),
    ],
)
def test_each_way_of_turning_it(four, field, names):
    for value, name in names.items():
        assert setting(four, **{field: value}) == (name, field)


def test_nothing_asked_is_the_shortest_certified(four):
    assert setting(four) == ("concise", "default")


def test_which_counts(four):
    assert setting(four, reasoning_effort="high", verbosity="low")[0] == "full"
    assert setting(four, token_target=60, reasoning_effort="high")[1] == "token_target"
    assert setting(four, model="demo:full", reasoning_effort="low") == ("full", "model")


def test_a_name_and_a_target_contradict_each_other(four):
    with pytest.raises(ApiError, match="names a level and token_target") as caught:
        setting(four, model="demo:full", token_target=60)
    assert (caught.value.status_code, caught.value.error["code"]) == (400, "dial_conflict")


@pytest.mark.parametrize(
    "model", ["demo:brief", "other", "other:concise", "demo:", ":concise", "brief"]
)
def test_an_unknown_model_is_not_found(four, model):
    with pytest.raises(ApiError, match="There is no model") as caught:
        setting(four, model=model)
    assert (caught.value.status_code, caught.value.error["code"]) == (404, "model_not_found")


def test_two_levels_between_which_the_shorter_is_taken():
    two = Family.model_validate(plain_family([level("concise", 57.0), level("full", 129.0)]))
    assert [level_at(two, share).name for share in (0, 1 / 3, 0.5, 2 / 3, 1)] == ["concise"] * 4 + [
        "full"
    ]
    assert setting(two, token_target=93)[0] == "concise"  # exactly between 57 and 129


def test_numbered_levels_still_know_the_words():
    sizes = [50.0, 60.0, 70.0, 80.0, 90.0, 100.0]
    made = [level(f"level-{i}", size) for i, size in enumerate(sizes, 1)]
    many = Family.model_validate(plain_family([*made, level("full", 129.0)]))
    # seven levels: the words stand at 0/3, 1/3 and 2/3 of the way
    result = [many.level(word).name for word in ("concise", "balanced", "detailed", "full")]
    assert result == ["level-1", "level-3", "level-5", "full"]


def test_what_is_listed(four):
    assert model_ids(four)[:2] == ["demo", "demo:concise"] and len(model_ids(four)) == 5
