from dataclasses import replace
from pathlib import Path

import pytest

from crt.cli import main
from crt.plan import (
    PUBLISHED,
    Assumptions,
    Cost,
    Device,
    Plan,
    Shape,
    amount,
    concurrency,
    count_problems,
    decode_speed,
    decoder_shape,
    digits,
    duration,
    estimate,
    make_plan,
    memory,
    plans_by_base,
    shape_of,
    training_cost,
    typical_shape,
)
from crt.recipes import config_of, load_recipe, recipe_files

RECIPES = Path(__file__).parents[2] / "recipes"
CRT = RECIPES / "paper" / "deepseek-1.5b-crt.toml"
SHAPE = Shape(
    1e9,
    layers=20,
    hidden=1000,
    cache_bytes_per_token=20_000,
    vocabulary=100_000,
    linear_features=1e6,
)
DEVICE = Device(memory_gb=80, teraflops=1000, terabytes_per_second=2.0)
ASSUME = Assumptions(
    mean_tokens=1000, prompt_tokens=0, shortening=1.0, train_efficiency=0.5, decode_efficiency=1.0
)


def config(**changes):
    data = {
        "name": "t",
        "model": {"name": "m"},
        "data": {"train": ["gsm8k"]},
        "method": {"type": "crt_1s"},
        "schedule": {"steps": 100, "problems_per_step": 10},
        "sampling": {"group_size": 10, "max_tokens": 1000},
        "reference": {"rollouts": 4},
        "validation": {"problems": 50, "rollouts": 2, "final_rollouts": 8},
        "optim": {"kl": 0.0},
    }
    return config_of(data | changes)


def plan(config, devices=1, device=DEVICE, evaluated=0):
    return Plan(config, SHAPE, device, devices, problems=500, assume=ASSUME, evaluated=evaluated)


def training_gb(config, devices=1):
    return memory(plan(config, devices))[0]


def sampling_gb(config):
    return memory(plan(config))[1]


def test_tokens_are_rollouts_times_length():
    found = estimate(plan(config(), evaluated=7))
    assert found.policy.tokens == 100 * 10 * 10 * 1000
    # each training problem once, and each validation problem
    assert found.reference.tokens == (500 + 50) * 4 * 1000
    # 10 checkpoints × 50 × 2, and two of them again × 50 × 8
    assert found.validation.tokens == (10 * 50 * 2 + 2 * 50 * 8) * 1000
    assert found.base_evaluation.tokens == 7 * 16 * 1000
    assert found.evaluation.tokens == 2 * 7 * 16 * 1000  # the recommended one and the last
    assert found.second_reference == Cost()


def test_stage_two_has_a_reference_of_its_own():
    two = config(method={"type": "crt"})
    # at the latest at 70 % of 100 steps: 30 steps × 10 problems × 4 rollouts
    found = estimate(plan(two, 1))
    assert found.second_reference.tokens == pytest.approx(1200 * 1000)
    # measured again: two at the hand-over, two at the end
    assert found.validation.tokens == (10 * 50 * 2 + 4 * 50 * 8) * 1000


def test_a_fresh_reference_is_sampled_every_step():
    fresh = config(reference={"mode": "fresh", "rollouts": 4})
    # and each of the 50 validation problems once
    assert estimate(plan(fresh)).reference.tokens == (100 * 10 + 50) * 4 * 1000
    many = replace(plan(config()), problems=5000)  # 1000 of them are visited, none of them twice
    assert estimate(many).reference.tokens == (1000 + 50) * 4 * 1000


def test_a_token_budget_shortens_the_run():
    # a step is 10 × 10 responses of 1000 tokens: half of the 100 steps
    half = config(schedule={"steps": 100, "problems_per_step": 10, "tokens": 5_000_000})
    assert estimate(plan(half, 1)).policy.tokens == 5e6
    assert plan(half).steps == 50


def test_training_takes_six_operations_a_parameter_and_token():
    hours = training_cost(plan(config()), 1000).hours  # 1e6 tokens
    assert hours * 3600 == pytest.approx(6e15 / (1e15 * 0.5))
    with_kl = plan(config(optim={"kl": 1e-3}))  # the reference's pass takes two more
    assert training_cost(with_kl, 1000).hours == pytest.approx(hours * 8 / 6)
    found = estimate(plan(config(), 2))
    # 6e9 · 1e7 tokens / (1e15 · 0.5 · 2 devices) = 60 s
    assert found.training.hours * 3600 == pytest.approx(60)


def test_few_responses_wait_for_memory_many_for_arithmetic():
    # one response: 2e9 bytes of weights and 500 · 20 kB of cache a token, at 2e12 bytes a second
    assert decode_speed(SHAPE, DEVICE, 1, ASSUME) == pytest.approx(2e12 / (2e9 + 1e7))
    # without a cache to read, 2e9 operations a token at 1e15 a second
    lean = Shape(1e9, 20, 1000, 0.0, 100_000)
    assert decode_speed(lean, DEVICE, 10_000, ASSUME) == pytest.approx(1e15 / 2e9)


def test_responses_at_once_are_limited_by_the_cache():
    # 0.3 · 80 GB over 1000 tokens of 20 kB = 1200
    assert concurrency(100, SHAPE, DEVICE, ASSUME) == 100
    assert concurrency(5000, SHAPE, DEVICE, ASSUME) == pytest.approx(1200)


def test_a_step_lasts_as_long_as_its_longest_response():
    # 100 responses on as many devices: each writes one, and the longest has 1000 tokens
    found = estimate(plan(config(), 100))
    alone = 1000 / decode_speed(SHAPE, DEVICE, 1, ASSUME)
    assert found.policy.hours * 3600 == pytest.approx(100 * alone)
    more = estimate(plan(config(), 200))
    assert more.policy.hours == found.policy.hours  # more devices do not help


def test_a_higher_cap_is_waited_for_where_it_holds():
    # on 500 devices every measurement waits for its longest response
    asked = {"problems": 50, "rollouts": 2, "final_rollouts": 0, "max_tokens": 3000}
    found = estimate(plan(config(validation=asked), 500))
    alone = 1 / decode_speed(SHAPE, DEVICE, 1, ASSUME)
    assert found.validation.hours * 3600 == pytest.approx(10 * 3000 * alone)
    assert found.policy.hours * 3600 == pytest.approx(100 * 1000 * alone)


def test_what_is_kept_is_drawn_at_once():
    # 500 problems × 4 in one go, 50 on each of 40 devices; fresh ones 40 a step, one on each
    kept = estimate(plan(config(), 40))
    fresh_config = config(reference={"mode": "fresh", "rollouts": 4})
    fresh = estimate(plan(fresh_config, 40))
    together = 50 * 1000 / decode_speed(SHAPE, DEVICE, 50, ASSUME)
    validation = 5 * 1000 / decode_speed(SHAPE, DEVICE, 5, ASSUME)  # 50 problems × 4
    alone = 1000 / decode_speed(SHAPE, DEVICE, 1, ASSUME)
    assert kept.reference.hours * 3600 == pytest.approx(together + validation)
    assert fresh.reference.hours * 3600 == pytest.approx(100 * alone + validation)
    assert fresh.guard_share > 0.3 > kept.guard_share


def test_devices_that_share_a_model_are_one_faster_device():
    two = config(cluster={"tensor_parallel": 2}, engine="verl")
    found = estimate(plan(two, 2))
    double = Device(160, 2000, 4.0)
    one = estimate(plan(config(engine="verl"), 1, double))
    assert found.policy.hours == pytest.approx(one.policy.hours)
    # 2 GB of weights on two devices, 24 GB cache, 12 GB of the trainer's on two
    assert found.sampling_gb == pytest.approx(1 + 24 + 6)


def test_training_memory_by_hand():
    # 16 GB state, 2 GB copy to sample from; 2 · 1000 tokens: activations
    # 2 · 2000 · 1000 · 40 = 0.16 GB, logits 8 · 2000 · 100000 = 1.6 GB
    assert training_gb(config(), 1) == pytest.approx(16 + 2 + 1.76)
    assert training_gb(config(), 4) == pytest.approx(4 + 2 + 1.76)
    with_kl = config(optim={"kl": 0.001})
    assert training_gb(with_kl, 1) == pytest.approx(16 + 2 + 2 + 1.76)
    plain = config(model={"name": "m", "dtype": "float32"})  # sampled from as it is
    assert training_gb(plain, 1) == pytest.approx(16 + 1.76)
    verl = config(engine="verl", optim={"kl": 0.001})
    assert training_gb(verl, 1) == pytest.approx(16 + 2 + 1.76)


def test_an_adapters_memory_by_hand():
    # rank 32 × 1e6 features in and out = 32e6 parameters: 0.512 GB; the base: 2 GB
    adapter = config(model={"name": "m", "lora": {"rank": 32}}, optim={"kl": 0.001})
    assert training_gb(adapter, 1) == pytest.approx(2 + 0.512 + 1.76)
    # sampling: the base, 12 · 32e6 = 0.384 GB, and 100 responses × 1000 tokens × 20 kB = 2 GB
    assert sampling_gb(adapter) == pytest.approx(2 + 0.384 + 2)
    served = config(model={"name": "m", "lora": {}}, trl={"use_vllm": True})
    # vLLM has a copy of its own and reserves 0.3 · 80 GB
    assert sampling_gb(served) == pytest.approx(2.384 + 2 + 24)


def test_an_adapters_size():
    # one layer: q 4 + 4, k and v 4 + 2 each, o 4 + 4, three of 4 and 8: 8 + 12 + 8 + 36 = 64
    keys = ("num_hidden_layers", "hidden_size", "num_attention_heads", "num_key_value_heads")
    model = dict(zip(keys, (1, 4, 2, 1), strict=True))
    shape = decoder_shape(model | {"intermediate_size": 8, "vocab_size": 10})
    assert shape.linear_features == 64


def test_data_is_counted_published_or_assumed(tmp_path):
    own = tmp_path / "own.jsonl"
    own.write_text('{"question": "1 + 1", "answer": "2"}\n' * 60)
    names = ["gsm8k", str(own), "owner/name", "math:200"]
    total, lines = count_problems(names, "train", None)
    assert total == 7473 + 60 + 1000 + 200
    assert lines == [
        "gsm8k 7,473 (published)",
        f"{own} 60 (counted)",
        "owner/name 1,000 (assumed; --problems says better)",
        "math:200 200 (the recipe's)",
    ]


def test_validation_problems_are_not_trained_on():
    found = make_plan(config(model={"name": "Qwen/Qwen3-4B"}), DEVICE, 1, tokens=100)
    assert found.problems == 7473 - 50
    assert "7,473 problems, less 50 for validation: gsm8k 7,473 (published)" in found.basis


def test_methods_on_one_base_share_its_rollouts():
    def on(name: str, **changes):
        return make_plan(config(name=name, model={"name": "my-1B"}, **changes), DEVICE, 1)

    stated = {"budget": "l1-max", "budget_tokens": 9}  # is not stated to the reference
    alike = [on("a"), on("b", method={"type": "l1_max"}, prompt=stated)]
    assert plans_by_base(alike) == [alike]
    other = on("c", reference={"rollouts": 8})
    fresh = [on(name, reference={"rollouts": 4, "mode": "fresh"}) for name in "de"]
    assert list(map(len, plans_by_base([*alike, other, *fresh]))) == [2, 1, 1, 1]


def test_published_shapes_have_the_published_sizes():
    sizes = {name: shape_of(name)[0].parameters / 1e9 for name in PUBLISHED}
    assert sizes["deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B"] == pytest.approx(1.78, abs=0.01)
    assert sizes["Qwen/Qwen3-4B"] == pytest.approx(4.02, abs=0.01)


def test_a_usual_shape_has_the_size_asked_for():
    shape = typical_shape(7e9)
    assert 12 * shape.layers * shape.hidden**2 == pytest.approx(7e9, rel=0.05)


def test_the_plan_says_what_it_rests_on(capsys):
    assert main(["plan", str(CRT), "--tokens", "3400", "--price", "2"]) == 0
    shown = capsys.readouterr().out
    assert "14,973 problems, less 1,000 for validation" in shown and ": published" in shown
    assert "3,400 tokens (given)" in shown and "cost" in shown
    assert main(["plan", str(CRT)]) == 0
    assert "3,428 tokens (the paper's" in capsys.readouterr().out


def test_a_small_model_on_a_laptop_has_figures(capsys):
    assert main(["plan", str(RECIPES / "pocket.toml"), "--device", "laptop"]) == 0
    shown = capsys.readouterr().out
    assert "pocket on 1 × laptop, 979,000 parameters" in shown
    assert " 0 " not in shown and "0.00 " not in shown
    assert "(assumed: 0.4 × max_tokens; --tokens says better)" in shown


def test_the_papers_tables_are_planned_as_a_whole(capsys):
    """A row per recipe, what they share once per model, and the sum."""
    assert main(["plan", str(RECIPES / "paper"), "--evaluation", "--price", "2"]) == 0
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in capsys.readouterr().out.splitlines()
        if line.startswith("|")
    ]
    names = [row[0] for row in rows]
    recipes = recipe_files([RECIPES / "paper"])
    assert names[2 : 2 + len(recipes)] == [load_recipe(path).name for path in recipes]
    assert names[2 + len(recipes) :] == [
        "base DeepSeek-R1-Distill-Qwen-1.5B: reference rollouts, once for 10 runs",
        "base DeepSeek-R1-Distill-Qwen-1.5B: evaluation",
        "base Qwen3-4B: reference rollouts, once for 6 runs",
        "base Qwen3-4B: evaluation",
        "total",
    ]
    hours = [float(row[3]) for row in rows[2:]]
    assert sum(hours[:-1]) == pytest.approx(hours[-1], rel=0.01)  # rounded to three digits
    # the reference: (13,973 + 1,000) problems × 16 × 3,428 tokens
    assert rows[-5][1] == "821 million"
    # the policy 116 · 2048, checkpoints 12 · 8000, finals 2 · 16000, evaluations 2 · 1721 · 16:
    # 420,640 rollouts of 0.8 · 3,428 tokens
    acpo = next(row for row in rows if row[0] == "deepseek-1.5b-acpo")
    assert acpo[1] == "1.15 billion"


def test_the_table_of_sizes_says_what_does_not_fit(capsys):
    assert main(["plan", str(CRT), "--scale"]) == 0
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in capsys.readouterr().out.splitlines()
        if line.startswith("|") and "B |" in line
    ]
    assert [row[0] for row in rows] == ["1.5B"] * 3 + ["7B"] * 3 + ["32B"] * 3
    assert [row[1] for row in rows] == ["8", "64", "512"] * 3
    # 32B on 8 devices: 16 + 2 bytes × 32.8e9 / 8 = 74 GB of state before any activation
    assert [row[0] + " " + row[1] for row in rows if "does not fit" in row[-1]] == ["32B 8"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--device", "h1000"], "Did you mean `h100`?"),
        (["--devices", "0"], "at least 1"),
        (["--tokens", "nan"], "--tokens nan: a number above 0"),
        (["--problems", "0"], "--problems 0: a number above 0"),
        (["--billions", "-1"], "--billions -1: a number above 0"),
        (["--price", "inf"], "--price inf: a number from 0"),
        (["--set", "model.name=my-model"], "--billions"),
        (["--set", 'data.train=["nowhere.jsonl"]'], "nowhere.jsonl does not exist"),
        ([str(RECIPES / "pocket.toml"), "--scale"], "--scale takes one recipe"),
        ([str(RECIPES.parent / "docs")], "has no recipe"),
    ],
)
def test_what_is_not_known_is_asked_for(words, sentence, capsys):
    assert main(["plan", str(RECIPES / "paper" / "qwen3-4b-crt.toml"), *words]) == 2
    assert sentence in capsys.readouterr().err


def test_three_significant_digits():
    assert [digits(n) for n in (0, 0.01234, 1.5, 64.64, 123.4, 1454.0)] == [
        "0", "0.0123", "1.50", "64.6", "123", "1,450",
    ]  # fmt: skip
    assert [amount(n) for n in (629_000, 1.4e6, 1.45e9)] == [
        "629,000", "1.40 million", "1.45 billion",
    ]  # fmt: skip
    assert [duration(h) for h in (2.5, 0.5, 0.001)] == ["2.50 h", "30.0 min", "3.60 s"]
