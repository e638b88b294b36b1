"""What is planned, what is refused, and what a directory remembers."""

import json
from pathlib import Path

import pytest

from crt.cli import main
from crt.errors import ConfigError, DataError
from crt.experiments.plan import (
    Job,
    Recipe,
    check_same_work,
    file_name,
    find_comparisons,
    flatten,
    make_jobs,
    model_folders,
    name_recipes,
    open_comparison,
    overrides,
    parse_grid,
    plan_comparison,
    read_grids,
    write_plan,
)
from crt.recipes import load_recipe

ROOT = Path(__file__).parents[3]


def named(recipes: dict[str, Path], *names: str) -> dict[str, Recipe]:
    return name_recipes([str(recipes[name]) for name in names], [], [])


def job(name: str, recipe: Path, *changes: str) -> Job:
    return Job(name, name, load_recipe(recipe, changes))


def test_a_grid_is_toml_or_bare_words():
    assert parse_grid(["method.alpha=0.1,2"]) == {"method.alpha": [0.1, 2]}
    assert parse_grid(["method.length_on=all,correct_only"]) == {
        "method.length_on": ["all", "correct_only"]
    }
    assert parse_grid(["method.slack=auto,0.01"]) == {"method.slack": ["auto", 0.01]}
    assert parse_grid(["method.limits=[3,2],[2,1]"]) == {"method.limits": [[3, 2], [2, 1]]}
    for wrong in ("method.alpha", "=1", "method.alpha="):
        with pytest.raises(ConfigError, match=r"section\.key=value"):
            parse_grid([wrong])
    with pytest.raises(ConfigError, match="twice"):
        parse_grid(["a.b=1", "a.b=2"])


def test_values_as_set_takes_them():
    assert overrides({"a.x": 1, "b.y": "u", "c": True, "d": [1, "z"]}) == [
        "a.x=1",
        'b.y="u"',
        "c=true",
        'd=[1, "z"]',
    ]


def test_tuning_tries_every_combination(recipes):
    grid = {"reference.rollouts": [2, 4], "optim.clip": [0.1, 0.2]}
    jobs = make_jobs("tune", named(recipes, "two"), {"two": grid}, [0])
    assert [list(job.values.values()) for job in jobs] == [[2, 0.1], [2, 0.2], [4, 0.1], [4, 0.2]]
    (whole,) = make_jobs("tune", named(recipes, "two"), {"two": {}}, [0])
    assert whole.method == "two" and not whole.values


def test_a_file_of_grids(tmp_path):
    path = tmp_path / "grids.toml"
    path.write_text('[grpo]\n"optim.learning_rate" = [1e-4, 2e-4]\n')
    assert read_grids(path) == {"grpo": {"optim.learning_rate": [1e-4, 2e-4]}}
    path.write_text('[grpo]\n"optim.learning_rate" = 1e-4\n')
    with pytest.raises(ConfigError, match=r"\[grpo\] is not a grid"):
        read_grids(path)


def test_recipes_times_seeds(recipes):
    jobs = make_jobs(
        "methods", name_recipes([str(p) for p in recipes.values()], [], []), {}, [1, 2]
    )
    assert [job.name for job in jobs] == [
        "two-seed1", "two-seed2", "grpo-seed1", "grpo-seed2", "short-seed1", "short-seed2",
    ]  # fmt: skip
    assert [job.config.seed for job in jobs] == [1, 2, 1, 2, 1, 2]
    assert jobs[0].type == "crt" and jobs[4].type == "length_only"


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ("reference.rollouts=2", "reference.rollouts: 4 and 2"),
        ("sampling.max_tokens=9", "sampling.max_tokens: 10 and 9"),
        ("schedule.tokens=300", "schedule.tokens: 400 and 300"),
        ("grading.truncated=grade", 'grading.truncated: "wrong" and "grade"'),
        ("prompt.system=Hello", 'prompt.system: null and "Hello"'),
    ],
)
def test_other_work_is_refused_by_its_first_difference(recipes, change, key):
    ours = job("two", recipes["two"])
    theirs = job("grpo", recipes["grpo"], change)
    with pytest.raises(ConfigError, match="two and grpo differ in") as refused:
        check_same_work([ours, theirs])
    assert key in str(refused.value)


def test_what_belongs_to_a_method_may_differ(recipes):
    ours = job("two", recipes["two"])
    changes = ("optim.learning_rate=0.5", "sampling.group_size=8")
    check_same_work([ours, job("grpo", recipes["grpo"], *changes)])
    stated = ("method.type=l1_max", "prompt.budget=l1-max", "prompt.budget_tokens=9")
    check_same_work([ours, job("l1", recipes["grpo"], *stated)])


def test_without_a_budget_steps_and_batches_must_agree(recipes):
    def plain(name: str, *changes: str) -> Job:
        config = load_recipe(recipes["grpo"], changes)
        schedule = config.schedule.model_copy(update={"tokens": None})
        return Job(name, name, config.model_copy(update={"schedule": schedule}))

    check_same_work([plain("a"), plain("b")])
    with pytest.raises(ConfigError, match=r"schedule\.problems_per_step: 4 and 2"):
        check_same_work([plain("a"), plain("b", "schedule.problems_per_step=2")])


def test_a_grid_goes_over_what_it_varies(recipes):
    found = named(recipes, "two")
    jobs = make_jobs("tune", found, {"two": {"reference.rollouts": [2, 4]}}, [0])
    assert [job.method for job in jobs] == ["two reference.rollouts=2", "two reference.rollouts=4"]
    assert {job.recipe for job in jobs} == {"two"} and {job.seed for job in jobs} == {0}
    assert [job.config.reference.rollouts for job in jobs] == [2, 4]


def test_the_recipes_own_value_is_run_once(recipes):
    found = named(recipes, "two")
    grid = {"reference.rollouts": [2, 4], "method.shorten.tolerance": [0.0, 0.1]}
    jobs = make_jobs("methods", found, {"two": grid}, [1])  # 4 and 0.0 are the recipe's own
    assert [dict(job.values) for job in jobs] == [
        {},
        {"reference.rollouts": 2},
        {"method.shorten.tolerance": 0.1},
    ]
    assert flatten(jobs[0].config.model_dump())["method.shorten.slack"] == 0.01


def test_settings_may_be_turned_together(recipes):
    key = "method.shorten.slack+method.refine.length_slack"
    found = named(recipes, "two")
    own, both = make_jobs("methods", found, {"two": {key: [0.01, 0.05]}}, [1])
    assert overrides(both.values) == [f"{each}=0.05" for each in key.split("+")]
    method = both.config.model_dump()["method"]
    assert method["shorten"]["slack"] == method["refine"]["length_slack"] == 0.05
    assert (
        flatten(own.config.model_dump())[key.split("+")[0]] == 0.01
    )  # the recipe's own is run once


def test_the_grid_of_the_repository(capsys):
    """Its settings exist, and the recipe's own value of each is among them."""
    words = ["bench-methods", str(ROOT / "recipes/methods/crt.toml"), "--dry-run"]
    grids = ["--grids", str(ROOT / "benchmarks/sensitivity.toml"), "--seeds", "1"]
    budget = ["--set", "schedule.tokens=1000", "--out", "nowhere"]
    assert main([*words, *grids, *budget]) == 0
    # 4 + 3 + 3 + 3 + 2 values, less the recipe's own five, plus the recipe once
    assert "11 runs" in capsys.readouterr().out


def test_tuned_settings_go_to_their_recipe(recipes, tmp_path):
    path = tmp_path / "tuned.json"
    path.write_text(json.dumps({"recipes": {"grpo": {"chosen": {"optim.learning_rate": 0.5}}}}))
    both = name_recipes([str(recipes["two"]), str(recipes["grpo"])], [], [path])
    jobs = make_jobs("methods", both, {}, [1])
    assert [job.config.optim.learning_rate for job in jobs] == [0.01, 0.5]
    with pytest.raises(ConfigError, match="settings for grpo, which is no recipe here"):
        name_recipes([str(recipes["two"])], [], [path])


def test_a_directory_is_added_to_and_never_changed(recipes, tmp_path):
    two = make_jobs("methods", named(recipes, "two"), {}, [1])
    write_plan(plan_comparison(tmp_path, "methods", two))
    both = make_jobs(
        "methods", name_recipes([str(recipes[n]) for n in ("two", "grpo")], [], []), {}, [1, 2]
    )
    merged = plan_comparison(tmp_path, "methods", both)
    assert [job.name for job in merged.jobs] == [
        "two-seed1", "two-seed2", "grpo-seed1", "grpo-seed2",
    ]  # fmt: skip
    write_plan(merged)
    assert [(j.method, j.config) for j in open_comparison(tmp_path).jobs] == [
        (j.method, j.config) for j in merged.jobs
    ]
    other = make_jobs(
        "methods", name_recipes([str(recipes["two"])], ["optim.clip=0.3"], []), {}, [1]
    )
    with pytest.raises(ConfigError, match=r"has two-seed1 with optim\.clip = 0\.2, now it is 0\.3"):
        plan_comparison(tmp_path, "methods", other)
    with pytest.raises(ConfigError, match="another kind"):
        plan_comparison(tmp_path, "tune", two)


def test_each_model_has_a_comparison_of_its_own(recipes, tmp_path, capsys):
    assert model_folders(tmp_path, ["a/one"]) == {"a/one": tmp_path}
    both = {"a/one": tmp_path / "one", "b/two": tmp_path / "two"}
    assert model_folders(tmp_path, list(both)) == both
    assert (
        model_folders(tmp_path, ["a/one", "b/one"])["b/one"] == tmp_path / "b-one"
    )  # not to be mixed
    jobs = make_jobs("methods", named(recipes, "two"), {}, [1])
    for name in ("one", "two"):
        write_plan(plan_comparison(tmp_path / name, "methods", jobs))
    assert find_comparisons(tmp_path) == [tmp_path / "one", tmp_path / "two"]
    assert model_folders(tmp_path, ["a/one"]) == {"a/one": tmp_path / "one"}  # goes on where it was
    assert main(["bench-methods", str(tmp_path), "--table", "json"]) == 2
    assert "takes one model's comparison" in capsys.readouterr().err


def test_several_models_do_not_go_into_a_comparison_of_one(recipes, tmp_path):
    write_plan(
        plan_comparison(
            tmp_path,
            "methods",
            make_jobs("methods", named(recipes, "two"), {}, [1]),
        )
    )
    with pytest.raises(ConfigError, match="holds the comparison of one model"):
        model_folders(tmp_path, ["a/one", "b/two"])


def test_the_papers_recipes_are_two_comparisons(tmp_path, capsys):
    words = [str(path) for path in sorted((ROOT / "recipes" / "paper").glob("*.toml"))]
    out = tmp_path / "paper"
    assert main(["bench-methods", *words, "--seeds", "1", "--dry-run", "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "DeepSeek-R1-Distill-Qwen-1.5B: 10 methods × seeds 1: 10 runs" in printed
    assert "Qwen/Qwen3-4B: 6 methods × seeds 1: 6 runs" in printed


@pytest.mark.parametrize("content", ["{}", "[]", '{"kind": "tune", "jobs": [{"name": 3}]}'])
def test_a_damaged_list_of_runs_is_one_sentence(content, tmp_path):
    (tmp_path / "comparison.json").write_text(content)
    with pytest.raises(DataError, match="not a comparison of this version"):
        open_comparison(tmp_path)


def test_names_are_safe_in_paths():
    assert file_name("crt method.slack=auto") == "crt-method.slack=auto"
    assert file_name("../../etc") == "etc"


def test_a_dry_run_writes_nothing(recipes, tmp_path, capsys):
    words = [str(recipes["two"]), str(recipes["grpo"]), "--out", str(tmp_path / "new"), "--dry-run"]
    assert main(["bench-methods", *words, "--seeds", "1", "2"]) == 0
    printed = capsys.readouterr().out
    assert "2 methods × seeds 1, 2: 4 runs" in printed
    assert "1,600 tokens at most" in printed and "not known" in printed
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["nowhere.toml"], "nowhere.toml cannot be read"),
        (["tune"], "tune needs a recipe"),
        (["two", "--grid", "a.b=1"], "a is not a setting"),
        (["two", "two"], "two recipes are called 'two'"),
        (["two", "--jobs", "0"], "--jobs 0"),
    ],
)
def test_wrong_words_are_one_sentence(recipes, words, sentence, tmp_path, capsys):
    words = [str(recipes[word]) if word in recipes else word for word in words]
    assert main(["bench-methods", *words, "--out", str(tmp_path / "out")]) == 2
    assert sentence in capsys.readouterr().err


@pytest.mark.parametrize(
    "path", sorted((ROOT / "benchmarks").glob("*grids*.toml")), ids=lambda p: p.name
)
def test_grids_of_the_repository_have_each_recipes_own_value(path):
    found = name_recipes(
        [str(p) for p in sorted((ROOT / "recipes" / "methods").glob("*.toml"))], [], []
    )
    grids = read_grids(path)
    own = {job.method: job.config for job in make_jobs("methods", found, {}, [0])}
    for name, grid in grids.items():
        for key, values in grid.items():
            ours = flatten(own[name].model_dump(mode="json"))[key]
            near = pytest.approx(ours, rel=1e-3) if isinstance(ours, float) else ours
            assert any(value == near for value in values), f"{name}: {key}"
    tried = make_jobs("tune", found, grids, [0])  # each is a valid recipe
    assert {job.recipe for job in tried} == set(found)
