import tomllib
from pathlib import Path

import pytest

from crt.algorithm.objectives import PrimalDual, Shorten
from crt.algorithm.registry import METHODS, TwoStage
from crt.config import RunConfig
from crt.describe import as_toml, what_would_run
from crt.errors import ConfigError
from crt.recipes import config_of, load_recipe

ROOT = Path(__file__).parents[2] / "recipes"
BASES = sorted((ROOT / "paper" / "base").glob("*.toml"))  # what recipes share is no recipe
RECIPES = sorted(path for path in ROOT.rglob("*.toml") if path not in BASES)
PAPER = sorted((ROOT / "paper").glob("*.toml"))
ROWS = {  # row of the paper's Tables 1 to 3 and of its ablation → the end of the recipe's name
    "DeepSeek-1.5B": {
        "ThinkPrune-500": "thinkprune-500",
        "ThinkPrune-1k": "thinkprune-1k",
        "L1": "l1",
        "O1-Pruner-1.0": "o1-pruner-1",
        "O1-Pruner-4.0": "o1-pruner-4",
        "ShorterBetter": "shorter-better",
        "ACPO": "acpo",
        "CRT (ours)": "crt",
        "CRT (1s)": "crt-1s",
        "PD": "primal-dual",
    },
    "Qwen3-4B": {
        "ThinkPrune-500": "thinkprune-500",
        "ThinkPrune-1k": "thinkprune-1k",
        "O1-Pruner-4.0": "o1-pruner-4",
        "ShorterBetter": "shorter-better",
        "ACPO": "acpo",
        "CRT (ours)": "crt",
    },
}


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


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_every_recipe_in_the_repository_loads(path):
    config = load_recipe(path)
    assert config.name == path.stem
    assert what_would_run(config)


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_what_is_shown_loads_as_the_same_configuration(path, tmp_path):
    config = load_recipe(path)
    (tmp_path / "shown.toml").write_text(as_toml(config))
    (tmp_path / "config.json").write_text(config.model_dump_json())
    assert load_recipe(tmp_path / "shown.toml") == config
    assert load_recipe(tmp_path / "config.json") == config


def test_the_demo_runs_the_recipe_that_is_shown():
    from crt.commands.demo import RECIPE

    shown = load_recipe(next(path for path in RECIPES if path.stem == "pocket"))
    assert load_recipe(RECIPE) == shown.model_copy(update={"name": "demo"})


def test_every_row_of_the_papers_tables_has_a_recipe():
    wanted = {f"{model.lower()}-{end}" for model, rows in ROWS.items() for end in rows.values()}
    assert {path.stem for path in PAPER} == wanted


@pytest.mark.parametrize("path", PAPER, ids=lambda path: path.stem)
def test_the_papers_settings_are_the_papers(path):
    config = load_recipe(path)
    assert config.engine == "verl"
    assert config.schedule.problems_per_step == 128
    assert config.sampling.group_size == config.evaluation.rollouts == 16
    assert config.data.train == ("gsm8k", "math")
    assert len(config.evaluation.data) == 6


def test_the_papers_crt_is_the_papers():
    crt = load_recipe(ROOT / "paper" / "deepseek-1.5b-crt.toml").method
    assert isinstance(crt, TwoStage)
    alone = load_recipe(ROOT / "paper" / "deepseek-1.5b-crt-1s.toml").method
    assert alone == crt.shorten  # the ablation differs in Stage II alone
    assert crt.shorten == Shorten(tolerance=0.0, slack=0.01, length_on="all", guard="batch")


@pytest.mark.parametrize("path", PAPER, ids=lambda path: path.stem)
def test_the_papers_checkpoints_are_chosen_by_more_than_noise(path):
    config = load_recipe(path)
    asked, cap = config.validation, config.evaluation.max_tokens
    # two equal policies of accuracy A: sqrt(A (1 − A) (1/R + 1/r) / problems), A = 0.85
    each = 1 / config.reference.rollouts + 1 / asked.final_rollouts
    assert (0.85 * 0.15 * each / asked.problems) ** 0.5 < 0.5 * 0.01  # half of the slack
    assert (asked.temperature, asked.max_tokens) == (config.evaluation.temperature, cap)
    assert config.reference.max_tokens == cap
    assert config.preflight.max_truncated == 0.05


def test_every_base_is_used():
    used = {path.parent / tomllib.loads(path.read_text()).get("base", "") for path in PAPER + BASES}
    assert {path.resolve() for path in BASES} <= {path.resolve() for path in used}


@pytest.mark.parametrize("name", METHODS)
def test_every_method_can_be_named(name):
    prompt = {"budget": name.replace("_", "-"), "budget_tokens": 500} if "l1" in name else {}
    config = config_of(table(method={"type": name}, prompt=prompt))
    assert type(config.method) is METHODS[name]
    assert what_would_run(config)


def test_method_settings_arrive():
    config = config_of(table(method={"type": "primal_dual", "multiplier": 2.5}))
    assert config.method == PrimalDual(multiplier=2.5)
    config = config_of(table(method={"type": "crt", "shorten": {"slack": "auto"}}))
    assert isinstance(config.method, TwoStage) and config.method.shorten.slack == "auto"


def test_an_unknown_key_is_refused_with_the_nearest_one():
    assert refused(sede=1) == "my.toml: sede is not a setting. Did you mean `seed`?"
    message = refused(method={"type": "crt", "shorten": {"tolerence": 0.1}})
    assert message == (
        "my.toml: method: shorten.tolerence is not a setting. Did you mean `tolerance`?"
    )
    assert "There are: steps, tokens, problems_per_step" in refused(schedule={"steps": 9, "zzz": 1})


def test_an_objectives_memory_is_no_setting():
    assert "average_gap is not a setting" in refused(method={"type": "crt_1s", "average_gap": 0.1})


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
            "shorten.slack = \"wide\" should be a valid number or 'auto'.",
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


def test_overrides(tmp_path):
    path = tmp_path / "r.toml"
    path.write_text(as_toml(config_of(table())))
    config = load_recipe(
        path, ["schedule.steps=50", "method.shorten.slack=auto", 'data.train=["a", "b"]']
    )
    assert config.schedule.steps == 50
    assert isinstance(config.method, TwoStage) and config.method.shorten.slack == "auto"
    assert config.data.train == ("a", "b")
    for wrong in ("schedule.steps", "=3", "name.x=3"):
        with pytest.raises(ConfigError, match="--set"):
            load_recipe(path, [wrong])


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("r.toml", b"name = "),
        ("r.toml", b"\xff\xfe"),
        ("r.json", b"[1, 2]"),
        ("r.json", b"{"),
        ("r.json", b"[" * 100_000),
        ("r.toml", b"\x00"),
    ],
)
def test_a_broken_file_is_named(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=name):
        load_recipe(path)


def test_defaults_need_five_lines():
    assert RunConfig.model_validate(table()).sampling.group_size == 16


BASE = """
name = "base"
[model]
name = "pocket"
[data]
train = ["pocket"]
[method]
type = "crt_1s"
slack = "auto"
[schedule]
steps = 100
save_every = 20
"""


def based_on(tmp_path, text: str, base: str = BASE) -> Path:
    (tmp_path / "below").mkdir(exist_ok=True)
    (tmp_path / "base.toml").write_text(base)
    path = tmp_path / "below" / "mine.toml"
    path.write_text(f'base = "../base.toml"\nname = "mine"\n{text}')
    return path


def test_a_recipe_says_what_it_changes_of_its_base(tmp_path):
    config = load_recipe(based_on(tmp_path, "[schedule]\nsteps = 60\n"))
    assert (config.name, config.schedule.steps, config.schedule.save_every) == ("mine", 60, 20)
    assert config.method == load_recipe(tmp_path / "base.toml").method


def test_another_method_has_its_own_settings(tmp_path):
    config = load_recipe(based_on(tmp_path, '[method]\ntype = "kimi"\n'))
    assert type(config.method) is METHODS["kimi"]  # `slack` of the base is not one of its settings


def test_a_base_is_checked_as_a_recipe_is(tmp_path):
    with pytest.raises(ConfigError, match="stepz is not a setting"):
        load_recipe(based_on(tmp_path, "[schedule]\nstepz = 60\n"))
    with pytest.raises(ConfigError, match="savings is not a setting"):
        load_recipe(based_on(tmp_path, "", BASE + "savings = 1\n"))


@pytest.mark.parametrize("base", ["7", '"other.json"', '"../nowhere.toml"', "[]"])
def test_a_base_that_is_none_is_named(tmp_path, base):
    path = tmp_path / "mine.toml"
    path.write_text(f'base = {base}\nname = "mine"')
    with pytest.raises(ConfigError, match=r"base|nowhere"):
        load_recipe(path)


def test_a_base_may_have_a_base(tmp_path):
    (tmp_path / "common.toml").write_text("[schedule]\nsteps = 80\nsave_every = 40\n")
    model = 'base = "common.toml"\n' + BASE.replace("steps = 100\n", "")
    config = load_recipe(based_on(tmp_path, "[optim]\nkl = 0.0\n", model))
    assert (config.schedule.steps, config.schedule.save_every) == (80, 20)
    assert config.optim.kl == 0


@pytest.mark.parametrize("circle", ["base.toml", "below/mine.toml"])
def test_bases_in_a_circle_are_refused(tmp_path, circle):
    with pytest.raises(ConfigError, match="is based on it in turn"):
        load_recipe(based_on(tmp_path, "", f'base = "{circle}"\n' + BASE))


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


def test_what_a_method_asks_for_besides_its_reward_is_shown():
    methods = Path(__file__).parents[2] / "recipes" / "methods"
    budget = " ".join(what_would_run(load_recipe(methods / "l1_max.toml")))
    assert "states a token budget (number)" in budget and "measured with 68" in budget
    offline = " ".join(what_would_run(load_recipe(methods / "o1_pruner_offline.toml")))
    assert "Offline" in offline and "estimator whitened" in offline
