"""What a recipe may promise; what cannot be kept is refused when it is read."""

import re
import tomllib
from pathlib import Path

import pytest

from crt.config import ContractConfig
from crt.describe import as_toml, what_would_run
from crt.errors import ConfigError
from crt.recipes import config_of, load_recipe

ACCURACY = {"metric": "accuracy", "at_least": "reference"}


def table(*lines, cost="tokens", **changes):
    data = {
        "name": "test",
        "model": {"name": "pocket"},
        "data": {"train": ["pocket@1:50", "pocket@4:50", "folder/own.jsonl"]},
        "method": {"type": "crt_1s"},
        "schedule": {"steps": 100},
        "contract": {"cost": cost, "lines": list(lines)},
    }
    return data | changes


def refused(*lines, **changes) -> str:
    with pytest.raises(ConfigError) as error:
        config_of(table(*lines, **changes), where="r")
    return str(error.value)


def test_a_contract_comes_back_from_toml(tmp_path):
    lines = (ACCURACY, {"metric": "answer", "at_most": 20, "data": "own", "tolerance": 1.5})
    config = config_of(table(*lines, cost="thinking"))
    (tmp_path / "shown.toml").write_text(as_toml(config))
    assert load_recipe(tmp_path / "shown.toml") == config
    assert "[[contract.lines]]" in as_toml(config)
    (said,) = (each for each in what_would_run(config) if "contract" in each)
    assert said == (
        "The contract: lower thinking while it keeps accuracy at least reference; answer of own at "
        "most 20.0 (tolerance 1.5)."
    )


def test_without_a_contract_nothing_is_measured_besides():
    config = config_of({k: v for k, v in table().items() if k != "contract"})
    assert config.contract == ContractConfig() and config.contract.measures().numbers == {}
    assert not any("contract" in each for each in what_would_run(config))


def test_a_cost_alone_leaves_the_methods_guard():
    for kind in ("kimi", "crt", "grpo"):
        config = config_of(table(cost="answer", method={"type": kind}))
        assert set(config.contract.measures().numbers) == {"answer", "tokens"}


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ({"metric": "acuracy", "at_least": 1}, "'acuracy' is not known. Did you mean `accuracy`?"),
        ({"metric": "accuracy"}, "accuracy: a line has either at_least or at_most."),
        ({**ACCURACY, "at_most": 1}, "accuracy: a line has either at_least or at_most."),
        ({"metric": "accuracy", "at_least": 1.2}, "accuracy is from 0 to 1."),
        ({"metric": "pass@4", "at_least": -0.1}, "pass@4 is from 0 to 1."),
        ({"metric": "tokens", "at_most": -3}, "no metric is below 0."),
        ({"metric": "accuracy", "at_least": "base"}, "'base' is neither a number nor a multiple"),
        ({**ACCURACY, "data": "gsm8k"}, "is about gsm8k, which is not in data.train = pocket@1:50"),
        ({**ACCURACY, "data": "pocket@2"}, "is about pocket@2, which is not in data.train"),
        ({**ACCURACY, "tolerence": 1}, "contract.lines 1: tolerence is not a setting. Did you"),
        ({"metric": "a.py:f", "at_least": 1}, "the file a.py cannot be found"),
        (
            {"metric": "pass@4", "at_least": 0.5},
            "needs validation.rollouts = 4 or more, which is 2",
        ),
        ({"metric": "pass@32", "at_least": 0.5}, "needs sampling.group_size = 32 or more"),
    ],
)
def test_a_line_that_cannot_be_kept_or_measured(line, sentence):
    assert sentence in refused(line)


def test_a_run_is_read_though_its_function_is_gone(tmp_path):
    own = tmp_path / "own.py"
    own.write_text("def words(rollout): return 1\n")
    config = config_of(table({"metric": f"{own}:words", "at_most": 9}, cost=f"{own}:words"))
    own.unlink()
    again = config_of(config.model_dump(mode="json"))
    assert again == config
    with pytest.raises(ConfigError, match=r"contract = .*own.py:words': the file .* cannot be fou"):
        again.contract.measures()


def test_lines_that_contradict():
    low, high = {"metric": "tokens", "at_least": 90}, {"metric": "tokens", "at_most": 80}
    assert "tokens at least 90.0 and tokens at most 80.0 cannot both be kept" in refused(low, high)
    config_of(table({**low, "tolerance": 10}, high))
    config_of(table({**low, "data": "pocket@1"}, high))  # of other problems
    more = {"metric": "answer", "at_least": "1.2 * reference"}
    assert "cannot both be kept" in refused(more, {"metric": "answer", "at_most": "reference"})
    assert "is there twice" in refused(ACCURACY, ACCURACY)


def test_a_method_that_keeps_no_line_says_which_do():
    assert '"kimi" keeps no contract: take crt or crt_1s, or guarded' in refused(
        ACCURACY, method={"type": "kimi"}
    )
    config_of(table(ACCURACY, method={"type": "guarded", "inner": {"type": "kimi"}}))


@pytest.mark.parametrize("cost", ["format", "answered", "accuracy"])
def test_what_is_better_the_more_there_is_of_it_is_no_cost(cost):
    assert f"contract.cost: '{cost}' is not known" in refused(cost=cost)


@pytest.mark.parametrize(
    ("method", "key"),
    [
        ({"type": "crt_1s", "tolerance": 0.02}, "method.tolerance"),
        ({"type": "crt", "shorten": {"tolerance": 0.02}}, "method.shorten.tolerance"),
        ({"type": "guarded", "inner": {"type": "kimi"}, "tolerance": 0.02}, "method.tolerance"),
    ],
)
def test_a_tolerance_that_would_do_nothing_is_refused(method, key):
    assert f"{key} = 0.02 does nothing beside contract.lines" in refused(ACCURACY, method=method)
    config_of(table(method=method))  # without lines it is the guard's


def test_an_evaluation_must_be_able_to_certify_every_line():
    more = {"validation": {"rollouts": 4}, "evaluation": {"rollouts": 2}}
    line = {"metric": "pass@4", "at_least": 0.5}
    assert "needs evaluation.rollouts = 4 or more, which is 2" in refused(line, **more)


def test_a_data_set_goes_by_its_name_whatever_its_split_and_count():
    config = config_of(table({**ACCURACY, "data": "own"}, {**ACCURACY, "data": "pocket"}))
    own, pocket = (config.contract.measures().datasets[name] for name in ("own", "pocket"))
    # sources of problems, and names of evaluations
    assert own("folder/own.jsonl") and own("own:20") and not own("other.jsonl")
    assert pocket("pocket/level-3") and pocket("pocket@2/test:9") and not pocket("pocket:chunks")
    config = config_of(table({**ACCURACY, "data": "pocket@4"}))
    level = config.contract.measures().datasets["pocket@4"]
    assert level("pocket/level-4") and level("pocket@4/test")
    assert not level("pocket/level-1") and not level("pocket/test")


def test_the_page_shows_the_recipe_that_runs(tmp_path):
    root = Path(__file__).parents[2]
    page = (root / "docs/guides/contract.md").read_text()
    shown, alone = re.findall(r"```toml\n(.*?)```", page, re.S)[:2]
    recipe = tomllib.loads((root / "recipes/contract.toml").read_text())
    assert tomllib.loads(shown) == recipe | {"base": "pocket"}
    (tmp_path / "alone.toml").write_text(alone)
    assert load_recipe(tmp_path / "alone.toml").contract == ContractConfig(cost="thinking")
