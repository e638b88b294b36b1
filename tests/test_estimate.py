from pathlib import Path

import pytest

from crt.cli import main
from crt.commands.plan import PUBLISHED, shape_from, typical
from crt.estimate import (
    Assumptions,
    Device,
    Shape,
    concurrency,
    decode_speed,
    estimate,
    memory,
    reference_rollouts,
    steps_of,
    train_flops,
)
from crt.recipes import config_of

RECIPES = Path(__file__).parent.parent / "recipes"
SHAPE = Shape(1e9, layers=20, hidden=1000, cache_bytes_per_token=20_000, vocabulary=100_000)
DEVICE = Device(memory_gb=80, teraflops=1000, terabytes_per_second=2.0)
ASSUME = Assumptions(
    mean_tokens=1000, prompt_tokens=0, shortening=1.0, train_efficiency=0.5, decode_efficiency=1.0
)


def config(**changes):
    data = {
        "name": "t",
        "model": {"name": "m"},
        "data": {"train": ["gsm8k"]},
        "method": {"type": "crt"},
        "schedule": {"steps": 100, "problems_per_step": 10},
        "sampling": {"group_size": 10, "max_tokens": 1000},
        "reference": {"rollouts": 4},
        "optim": {"kl": 0.0},
    }
    return config_of(data | changes)


def test_tokens_are_steps_times_rollouts_times_length():
    found = estimate(config(), SHAPE, DEVICE, 1, problems=500, assume=ASSUME)
    assert found.sampled_tokens == 100 * 10 * 10 * 1000
    assert found.reference_tokens == 500 * 4 * 1000  # each problem once


def test_a_fresh_reference_is_sampled_every_step():
    fresh = config(reference={"mode": "fresh", "rollouts": 4})
    assert reference_rollouts(fresh, problems=500, steps=100) == 100 * 10 * 4
    assert reference_rollouts(config(), problems=5000, steps=100) == 4000  # never visited twice


def test_a_token_budget_shortens_the_run():
    # a step is 10 × 10 responses of 1000 tokens: half of the 100 steps
    half = config(schedule={"steps": 100, "problems_per_step": 10, "tokens": 5_000_000})
    assert estimate(half, SHAPE, DEVICE, 1, problems=500, assume=ASSUME).sampled_tokens == 5e6
    assert steps_of(half, ASSUME) == 50


def test_training_takes_six_operations_a_parameter_and_token():
    assert train_flops(config(), SHAPE, 1e6) == 6e15
    assert train_flops(config(optim={"kl": 1e-3}), SHAPE, 1e6) == 8e15  # and the reference's
    found = estimate(config(), SHAPE, DEVICE, 2, problems=500, assume=ASSUME)
    # 6e9 · 1e7 tokens / (1e15 · 0.5 · 2 devices) = 60 s
    assert found.train_hours * 3600 == pytest.approx(60)


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
    found = estimate(config(), SHAPE, DEVICE, 100, problems=500, assume=ASSUME)
    alone = 1000 / decode_speed(SHAPE, DEVICE, 1, ASSUME)
    assert found.sample_hours * 3600 == pytest.approx(100 * alone)
    more = estimate(config(), SHAPE, DEVICE, 200, problems=500, assume=ASSUME)
    assert more.sample_hours == found.sample_hours  # more devices do not help


def test_what_is_kept_is_drawn_at_once():
    # 500 problems × 4 in one go, 50 on each of 40 devices; fresh ones 40 a step, one on each
    kept = estimate(config(), SHAPE, DEVICE, 40, problems=500, assume=ASSUME)
    fresh_config = config(reference={"mode": "fresh", "rollouts": 4})
    fresh = estimate(fresh_config, SHAPE, DEVICE, 40, problems=500, assume=ASSUME)
    together = 50 * 1000 / decode_speed(SHAPE, DEVICE, 50, ASSUME)
    alone = 1000 / decode_speed(SHAPE, DEVICE, 1, ASSUME)
    assert kept.reference_hours * 3600 == pytest.approx(together)
    assert fresh.reference_hours * 3600 == pytest.approx(100 * alone)
    assert fresh.guard_share > 0.3 > kept.guard_share


def test_devices_that_share_a_model_are_one_faster_device():
    two = config(cluster={"tensor_parallel": 2})
    found = estimate(two, SHAPE, DEVICE, 2, problems=500, assume=ASSUME)
    double = Device(160, 2000, 4.0)
    one = estimate(config(), SHAPE, double, 1, problems=500, assume=ASSUME)
    assert found.sample_hours == pytest.approx(one.sample_hours)
    # 2 GB of weights on two devices, 24 GB cache, 6 GB of the trainer's on two
    assert found.sampling_gigabytes == pytest.approx(1 + 24 + 3)


def test_memory_by_hand():
    # 8 GB state; 2 · 1000 tokens: activations 2 · 2000 · 1000 · 40 = 0.16 GB,
    # logits 8 · 2000 · 100000 = 1.6 GB
    assert memory(config(), SHAPE, 1, ASSUME) == pytest.approx(8 + 0.16 + 1.6)
    with_kl = config(optim={"kl": 0.001})
    assert memory(with_kl, SHAPE, 1, ASSUME) == pytest.approx(10 + 1.76)
    adapter = config(model={"name": "m", "lora": {}})
    assert memory(adapter, SHAPE, 1, ASSUME) == pytest.approx(2 + 1.76)
    assert memory(config(), SHAPE, 4, ASSUME) == pytest.approx(2 + 1.76)
    assert memory(config(engine="verl"), SHAPE, 1, ASSUME) == pytest.approx(16 + 1.76)


def test_published_shapes_have_the_published_sizes():
    sizes = {name: shape_from(shape).parameters / 1e9 for name, shape in PUBLISHED.items()}
    assert sizes["deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B"] == pytest.approx(1.78, abs=0.01)
    assert sizes["Qwen/Qwen3-4B"] == pytest.approx(4.02, abs=0.01)


def test_a_usual_shape_has_the_size_asked_for():
    shape = typical(7e9)
    assert 12 * shape.layers * shape.hidden**2 == pytest.approx(7e9, rel=0.05)


def test_the_plan_says_what_it_rests_on(capsys, tmp_path):
    recipe = str(RECIPES / "deepseek-r1-1.5b.toml")
    assert main(["plan", recipe, "--tokens", "3400", "--price", "2"]) == 0
    shown = capsys.readouterr().out
    assert "14,973 training problems" in shown and "published shape" in shown
    assert "3,400 tokens (given)" in shown and "cost" in shown


def test_the_table_of_sizes_says_what_does_not_fit(capsys):
    recipe = str(RECIPES / "deepseek-r1-1.5b.toml")
    assert main(["plan", recipe, "--scale", "--tokens", "3400", "--set", "engine=verl"]) == 0
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
        (["--set", "model.name=my-model"], "--billions"),
    ],
)
def test_what_is_not_known_is_asked_for(words, sentence, capsys):
    assert main(["plan", str(RECIPES / "qwen3-4b.toml"), *words]) == 2
    assert sentence in capsys.readouterr().err
