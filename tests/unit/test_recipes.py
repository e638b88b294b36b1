import tomllib
from pathlib import Path

import pytest

from crt.algorithm.objectives import Shorten
from crt.algorithm.registry import METHODS, TwoStage
from crt.cli import main
from crt.describe import what_would_run
from crt.errors import ConfigError
from crt.recipes import load_recipe, with_overrides

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
BASE = """
name = "base"
[model]
name = "pocket"
[data]
train = ["pocket"]
[method]
type = "crt_1s"
rule = "switch"
[schedule]
steps = 100
save_every = 20
"""


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_every_recipe_in_the_repository_loads(path):
    config = load_recipe(path)
    assert config.name == path.stem
    assert list(what_would_run(config))


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
    assert crt.shorten == Shorten(tolerance=0.0, slack=0.01, rule="switch")


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


def test_overrides(tmp_path):
    path = tmp_path / "r.toml"
    path.write_text(BASE)
    config = load_recipe(path, ["schedule.steps=50", "method.slack=0.2", 'data.train=["a", "b"]'])
    assert config.schedule.steps == 50
    assert config.method == Shorten(slack=0.2, rule="switch")
    assert config.data.train == ("a", "b")
    assert with_overrides(config, ["method.slack=0.5"]).method == Shorten(slack=0.5, rule="switch")
    for wrong in ("schedule.steps", "=3", "name.x=3"):
        with pytest.raises(ConfigError, match="--set"):
            load_recipe(path, [wrong])


def test_a_copied_recipe_means_the_same_anywhere(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in ("methods/kimi", "paper/qwen3-4b-crt", "pocket"):
        assert main(["recipe", "copy", name]) == 0
        file = Path(name).name + ".toml"
        assert (
            load_recipe(Path(file)) == load_recipe(Path(name)) == load_recipe(ROOT / f"{name}.toml")
        )
    assert main(["recipe", "copy", "pocket"]) == 2
    assert "pocket.toml is there already" in capsys.readouterr().err
    assert main(["recipe", "copy", "methods/kimmi", "--out", "x.toml"]) == 2
    assert "Did you mean `methods/kimi`?" in capsys.readouterr().err
    assert main(["recipe", "list"]) == 0
    listed = capsys.readouterr().out
    assert [line.split()[0] for line in listed.splitlines()] == [
        path.relative_to(ROOT).with_suffix("").as_posix() for path in RECIPES
    ]
    assert "Kimi k1.5's length reward" in listed


def test_a_recipe_inside_the_package_goes_by_its_name(tmp_path):
    assert load_recipe(Path("pocket")) == load_recipe(ROOT / "pocket.toml")
    (tmp_path / "mine.toml").write_text('base = "pocket"\nname = "mine"\nseed = 7\n')
    changes = {"name": "mine", "seed": 7}
    assert load_recipe(tmp_path / "mine.toml") == load_recipe(Path("pocket")).model_copy(
        update=changes
    )


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
