import pytest

from crt.algorithm.baselines import ShorterBetter
from crt.algorithm.objectives import Guarded, PrimalDual
from crt.algorithm.registry import METHODS, TwoStage
from crt.config import RunConfig
from crt.describe import what_would_run
from crt.errors import ConfigError
from crt.recipes import config_of


def table(**changes):
    data = {
        "name": "test",
        "model": {"name": "pocket"},
        "data": {"train": ["pocket"]},
        "method": {"type": "crt"},
        "schedule": {"steps": 100},
    }
    return data | changes


def refused(**changes) -> str:
    with pytest.raises(ConfigError) as error:
        config_of(table(**changes), where="my.toml")
    return str(error.value)


@pytest.mark.parametrize("name", METHODS)
def test_every_method_can_be_named(name):
    prompt = {"budget": name.replace("_", "-"), "budget_tokens": 500} if "l1" in name else {}
    config = config_of(table(method={"type": name}, prompt=prompt))
    assert type(config.method) is METHODS[name]
    assert list(what_would_run(config))


def test_method_settings_arrive():
    config = config_of(table(method={"type": "primal_dual", "multiplier": 2.5}))
    assert config.method == PrimalDual(multiplier=2.5)
    config = config_of(table(method={"type": "crt", "shorten": {"rule": "switch"}}))
    assert isinstance(config.method, TwoStage) and config.method.shorten.rule == "switch"


def test_an_unknown_key_is_refused_with_the_nearest_one():
    assert refused(sede=1) == "my.toml: sede is not a setting. Did you mean `seed`?"
    message = refused(method={"type": "crt", "shorten": {"tolerence": 0.1}})
    assert message == (
        "my.toml: method.shorten.tolerence is not a setting. Did you mean `tolerance`?"
    )
    assert "There are: steps, tokens, problems_per_step" in refused(schedule={"steps": 9, "zzz": 1})


def test_an_objectives_memory_is_no_setting():
    assert "multiplier is not a setting" in refused(method={"type": "crt_1s", "multiplier": 0.1})


@pytest.mark.parametrize(
    ("method", "sentence"),
    [
        ({"type": "crt_1s", "slack": "auto"}, 'slack = "auto" was removed: leave it out'),
        ({"type": "crt", "shorten": {"smoothing": 0.8}}, "shorten.smoothing was removed"),
        ({"type": "crt", "refine": {"solved": "shorten"}}, "refine.solved was removed"),
        ({"type": "crt_1s", "guard": "problem"}, "guard was removed"),
        ({"type": "length_only", "length_on": "all"}, "length_on was removed"),
        ({"type": "primal_dual", "multiplier_limit": 5.0}, "multiplier_limit was removed"),
    ],
)
def test_a_setting_of_an_older_recipe_is_named_with_what_took_its_place(method, sentence):
    assert sentence in refused(method=method)


def test_the_guard_goes_around_another_method():
    method = {"type": "guarded", "rate": 1.0, "inner": {"type": "shorter_better", "penalty": 0.03}}
    config = config_of(table(method=method))
    assert config.method == Guarded(ShorterBetter(penalty=0.03), rate=1.0)
    assert config_of(config.model_dump(mode="json")).method == config.method
    assert "shortest correct" in " ".join(what_would_run(config))
    assert "penalti is not a setting" in refused(
        method=method | {"inner": {"type": "kimi", "penalti": 1}}
    )
    assert 'inner.type = "crt"' in refused(method=method | {"inner": {"type": "crt"}})
    assert "a number of tokens" not in refused(method=method | {"inner": {"type": "l1_max"}})


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"method": {"type": "ctr"}}, "type = 'ctr' is not a method. Did you mean `crt`?"),
        ({"method": {}}, "type = None is not a method."),
        ({"method": 3}, "type = None is not a method."),
        ({"schedule": {}}, "schedule.steps is missing: give it a value."),
        ({"schedule": {"steps": "9"}}, 'schedule.steps = "9" should be a valid integer.'),
        ({"sampling": {"group_size": 1}}, "sampling.group_size = 1 should be greater than"),
        ({"optim": {"learning_rate": True}}, "optim.learning_rate = true should be a valid number"),
        ({"optim": {"kl": float("nan")}}, "optim.kl = NaN should be a finite number"),
        ({"data": {"train": []}}, "data.train = [] is refused"),
        ({"model": "pocket"}, 'model = "pocket" should be an object'),
        (
            {"method": {"type": "crt", "shorten": {"slack": "wide"}}},
            'shorten.slack = "wide" should be a valid number.',
        ),
        (
            {"method": {"type": "crt", "saturation": {"latest": 1.0}}},
            'set it below 1, or use type = "crt_1s"',
        ),
        ({"schedule": {"steps": 1, "save_every": 1}}, "leaves a stage without a step"),
        ({"schedule": {"steps": 5}}, "no checkpoint would be written"),
        ({"optim": {"warmup_steps": 100}}, "would never be reached"),
    ],
)
def test_what_cannot_work_is_refused_with_a_sentence(changes, sentence):
    assert sentence in refused(**changes)


def test_every_mistake_is_named_at_once():
    message = refused(schedule={"steps": 0}, sampling={"top_p": 2.0})
    assert "schedule.steps = 0" in message and "sampling.top_p = 2.0" in message


def test_a_configuration_cannot_be_changed():
    config = config_of(table())
    with pytest.raises(Exception, match="frozen"):
        config.seed = 4  # pyright: ignore


def test_defaults_need_five_lines():
    assert RunConfig.model_validate(table()).sampling.group_size == 16


def test_a_stated_budget_fits_the_method():
    exact = {"budget": "l1-exact", "budget_tokens": 50}
    assert 'set it to "none"' in refused(prompt=exact)
    assert 'set it to "l1-exact"' in refused(method={"type": "l1_exact"})
    assert "budget_tokens = None" in refused(
        method={"type": "l1_exact"}, prompt={"budget": "l1-exact"}
    )
    assert "budget_tokens = 50" in refused(prompt={"budget_tokens": 50})
    for prompt in ({}, {"budget": "thinkprune", "budget_tokens": 2000}):
        config_of(table(method={"type": "thinkprune"}, prompt=prompt))


def test_offline_samples_need_the_own_sampler():
    assert "trl.use_vllm" in refused(sampling={"source": "reference"}, trl={"use_vllm": True})
