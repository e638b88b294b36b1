"""One call for whoever draws: the fast sampler, vLLM, and the vLLM that TRL trains with."""

import re
import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from crt.data.prompts import Prompt
from crt.errors import ConfigError, install_command
from crt.sampling.base import (
    MOST_ROWS,
    Group,
    InProcess,
    Sampling,
    choose_engine,
    sample_groups,
)
from crt.sampling.hf import Sample
from crt.sampling.models import ModelFiles
from crt.sampling.vllm import TrainersVllm, VllmSampler
from crt.training.trl.rollouts import VllmRollouts

END = 1
PROMPTS = [[5, 6], [7, 8, 9], [4]]
FILES = ModelFiles("m", Path("folder"), None, (END,), 64, "hash", adapter=False)  # pyright: ignore


@pytest.fixture(scope="module")
def model() -> LlamaForCausalLM:
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1}
    return LlamaForCausalLM(LlamaConfig(vocab_size=12, eos_token_id=END, **sizes, **heads))  # pyright: ignore


@pytest.fixture
def vllm(monkeypatch):
    """Not vLLM itself, which needs a GPU, but its interface."""
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "support" / "fakes")
    monkeypatch.delitem(sys.modules, "vllm", raising=False)
    import vllm  # pyright: ignore[reportMissingImports]

    vllm.LLM.loaded.clear()
    yield vllm
    sys.modules.pop("vllm", None)


@pytest.fixture(params=["fast", "vllm"])
def sampler(request, model, vllm):
    how = Sampling(max_tokens=6)
    return InProcess(model, [END], how) if request.param == "fast" else VllmSampler(FILES, how)


def test_every_prompt_has_its_samples_with_their_ends(sampler):
    groups = sampler(PROMPTS, 5, 3)
    assert [len(group) for group in groups] == [5, 5, 5]
    for one in (one for group in groups for one in group):
        assert len(one.tokens) == len(one.logprobs) <= 6
        assert (one.stop == "eos") == (one.tokens[-1] == END)
        assert one.stop == "eos" or len(one.tokens) == 6


def test_the_seed_decides(sampler):
    said = [one.tokens for group in sampler(PROMPTS, 5, 3) for one in group]
    assert said == [one.tokens for group in sampler(PROMPTS, 5, 3) for one in group]
    assert said != [one.tokens for group in sampler(PROMPTS, 5, 4) for one in group]
    assert len({tuple(tokens) for tokens in said}) > 5  # and no sample is another's copy


def test_a_prompt_is_answered_the_same_in_any_company(sampler):
    together = sampler(PROMPTS, 5, 3)
    assert [sampler([prompt], 5, 3)[0] for prompt in PROMPTS] == [
        [Sample(one.tokens, pytest.approx(one.logprobs, abs=1e-5), one.stop) for one in group]
        for group in together
    ]


def test_equal_prompts_are_answered_apart(sampler):
    one, other = sampler([PROMPTS[0], PROMPTS[0]], 5, 3)
    assert [each.tokens for each in one] != [each.tokens for each in other]


@pytest.mark.parametrize("kind", ["fast", "vllm"])
def test_greedy_samples_are_all_alike(kind, model, vllm):
    how = Sampling(max_tokens=6, temperature=0.0)
    greedy = InProcess(model, [END], how) if kind == "fast" else VllmSampler(FILES, how)
    for group in greedy(PROMPTS, 3, 0):
        assert len(group) == 3 and len({tuple(one.tokens) for one in group}) == 1


def test_a_model_in_training_stays_in_training(model):
    model.train()
    InProcess(model, [END], Sampling(4))(PROMPTS, 1, 0)
    assert model.training
    model.eval()
    InProcess(model, [END], Sampling(4))(PROMPTS, 1, 0)
    assert not model.training


def test_rows_fit_the_memory_for_keys_and_values(model, monkeypatch):
    sampler = InProcess(model, [END], Sampling(max_tokens=90))
    assert sampler.batch_size(10) == MOST_ROWS
    # keys and values of 8 float32 each: 64 bytes a position, 100 positions a row
    monkeypatch.setattr("crt.sampling.base.CACHE_BYTES", 64 * 100 * 7)
    assert sampler.batch_size(10) == 7


def test_what_vllm_is_asked(vllm):
    sampler = VllmSampler(FILES, Sampling(9, 0.6, 0.95), positions=40, dtype="bfloat16")
    assert not vllm.LLM.loaded  # nothing is loaded before it is needed
    sampler(PROMPTS, 4, 7)
    sampler(PROMPTS, 4, 8)
    [engine] = vllm.LLM.loaded
    assert (engine.model, engine.dtype, engine.max_model_len) == ("folder", "bfloat16", 40)
    assert engine.logprobs_mode == "processed_logprobs"
    assert [asked["prompt_token_ids"] for asked, _ in engine.asked[:3]] == PROMPTS
    how = engine.asked[0][1]
    assert (how.n, how.temperature, how.top_p, how.max_tokens) == (4, 0.6, 0.95, 9)
    assert how.stop_token_ids == [END] and how.logprobs == 0
    seeds = [params.seed for _, params in engine.asked]
    assert len(set(seeds)) == 6 and all(0 <= seed < 2**31 for seed in seeds)


def test_a_closed_engine_is_loaded_again(vllm):
    sampler = VllmSampler(FILES, Sampling(9), alone=False)
    first = sampler(PROMPTS, 2, 0)
    sampler.close()
    assert sampler(PROMPTS, 2, 0) == first
    assert len(vllm.LLM.loaded) == 2
    assert vllm.LLM.loaded[0].distributed_executor_backend == "external_launcher"


class Generation:
    """TRL's `VLLMGeneration` in the two calls that are made of it."""

    def __init__(self) -> None:
        self.synced = 0
        self.asked: list[tuple[list[list[int]], int]] = []
        self.temperature, self.top_p, self.max_completion_length = 1.0, 1.0, 8
        self.settings: list[tuple[float, float, int]] = []

    def sync_weights(self) -> None:
        self.synced += 1

    def generate(self, prompts, images, num_generations):
        self.asked.append((prompts, num_generations))
        self.settings.append((self.temperature, self.top_p, self.max_completion_length))
        tokens = [[4, END] if i % 2 else [4, 4, 4] for i in range(len(prompts))]
        return prompts, tokens, [[[-0.5]] * len(each) for each in tokens], None


def test_the_vllm_that_trains_draws_with_the_weights_of_the_step():
    generation = Generation()
    trainer = SimpleNamespace(
        vllm_generation=generation, state=SimpleNamespace(global_step=3), _last_loaded_step=2
    )
    sampler = TrainersVllm(trainer, [END], Sampling(32, 0.6, 0.95))  # pyright: ignore
    groups = sampler(PROMPTS, 2, 0)
    assert generation.asked == [([p for p in PROMPTS for _ in range(2)], 2)]
    assert [[one.stop for one in group] for group in groups] == [["length", "eos"]] * 3
    assert groups[0][1].tokens == [4, END] and groups[0][1].logprobs == [-0.5, -0.5]
    sampler(PROMPTS, 2, 0)
    assert generation.synced == 1 and trainer._last_loaded_step == 3  # once a step
    assert generation.settings == [(0.6, 0.95, 32)] * 2  # as the model will be used
    assert (generation.temperature, generation.max_completion_length) == (1.0, 8)  # then as before


def test_greedy_samples_are_drawn_once_per_prompt():
    """vLLM's server refuses several greedy samples of a prompt."""
    generation = Generation()
    state = SimpleNamespace(global_step=0)
    trainer = SimpleNamespace(vllm_generation=generation, state=state, _last_loaded_step=0)
    sampler = TrainersVllm(trainer, [END], Sampling(32, temperature=0.0))  # pyright: ignore
    groups = sampler(PROMPTS, 2, 0)
    assert generation.asked == [(PROMPTS, 1)]
    assert [len(group) for group in groups] == [2, 2, 2]


def test_vllm_in_training_continues_our_own_prompts():
    generation = Generation()
    trainer = SimpleNamespace(vllm_generation=generation, num_generations=2)
    turns = [({"role": "user", "content": text},) for text in ("a", "b")]
    prompts = [Prompt(turn[0]["content"], turn, "", (7, i), False) for i, turn in enumerate(turns)]
    asked = [list(turn) for turn in turns for _ in range(2)]
    told = VllmRollouts(prompts)(asked, trainer)  # pyright: ignore[reportArgumentType]
    assert generation.asked == [([[7, 0], [7, 0], [7, 1], [7, 1]], 2)]
    assert told["prompt_ids"] == [[7, 0], [7, 0], [7, 1], [7, 1]]
    assert told["completion_ids"][1] == [4, END] and told["logprobs"][1] == [-0.5, -0.5]


def test_the_engine_is_chosen(vllm, monkeypatch):
    adapter = ModelFiles("m", Path("folder"), None, (END,), 64, "hash", adapter=True)  # pyright: ignore
    assert choose_engine("vllm", FILES) == "vllm" and choose_engine("fast", FILES) == "fast"
    with pytest.raises(ConfigError, match="is an adapter: merge it first"):
        choose_engine("vllm", adapter)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert choose_engine("auto", FILES) == "vllm" and choose_engine("auto", adapter) == "fast"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert choose_engine("auto", FILES) == "fast"


@pytest.mark.skipif(find_spec("vllm") is not None, reason="vLLM is here")
def test_vllm_that_is_not_there_is_said():
    with pytest.raises(ConfigError, match=re.escape(install_command("vllm"))):
        choose_engine("vllm", FILES)


@pytest.mark.parametrize("cut", [4, 6, 8])
def test_what_is_drawn_does_not_depend_on_the_number_of_processes(model, cut):
    """Three groups of four, shared by two processes after a whole group or in the middle of one."""
    how = Sampling(12)

    def drawn(first: int, last: int) -> list[list[int]]:
        groups: list[Group] = []
        for number, prompt in enumerate(PROMPTS):
            begin, end = max(first, 4 * number), min(last, 4 * number + 4)
            if begin < end:
                groups.append(Group(prompt, number, end - begin, begin - 4 * number))
        samples = sample_groups(model, groups, [END], how)
        return [sample.tokens for group in samples for sample in group]

    assert drawn(0, cut) + drawn(cut, 12) == drawn(0, 12)
