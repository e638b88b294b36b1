"""A model that is written out says what it says by its own forward, and only such a model is."""

import math
from collections.abc import Callable

import pytest
import torch
from peft import LoraConfig, get_peft_model
from small import (
    END,
    SHAPE,
    WORDS,
    biased,
    gpt2,
    latent,
    lively,
    llama,
    qwen,
    qwen3,
    seeded,
    sliding,
)
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel

from crt.engines import lean, reading, shared_prompt
from crt.engines.reading import LeanReader, layers_for, reader_of
from crt.engines.sampler import sample

PROMPTS = [[3, 4], [5], [2, 6, 7]]


def written_out(model: PreTrainedModel, share: bool = True) -> bool:
    layers = layers_for(model, torch.ones(2, 3, dtype=torch.long), 2, 5, share)
    return isinstance(reader_of(model, layers, None, 0), LeanReader)


@pytest.mark.parametrize("maker", [llama, qwen, qwen3, biased])
@pytest.mark.parametrize("top_p", [1.0, 0.9])
def test_it_says_what_the_model_says(
    maker: Callable[[], PreTrainedModel], top_p: float, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(shared_prompt, "BLOCK", 4)  # so that rollouts fill several
    model, steps = lively(maker), 0
    forward = reading.forward

    def counted(*args):
        nonlocal steps
        steps += 1
        return forward(*args)

    monkeypatch.setattr(reading, "forward", counted)
    ours = sample(model, PROMPTS, 6, 20, [END], generator=seeded(), top_p=top_p)
    assert steps == 0
    monkeypatch.setattr(reading, "may_be_lean", lambda _: False)
    theirs = sample(model, PROMPTS, 6, 20, [END], generator=seeded(), top_p=top_p)
    assert steps > 10
    for mine, own in zip(ours, theirs, strict=True):
        assert [said.tokens for said in mine] == [said.tokens for said in own]
        for said, other in zip(mine, own, strict=True):
            expected = torch.tensor(other.logprobs)
            torch.testing.assert_close(torch.tensor(said.logprobs), expected, atol=1e-5, rtol=0)


def test_prompts_that_begin_alike_and_end_within_each_other():
    """What they have in common is read once, and each is at its own place."""
    model = lively(llama)
    prompts = [[3, 4], [3, 4, 5, 6], [3, 4, 5, 2], [7]]
    groups = sample(model, prompts, 4, 8, [END], generator=seeded())
    for prompt, group in zip(prompts, groups, strict=True):
        for said in group:
            with torch.no_grad():
                logits = model(input_ids=torch.tensor([prompt + said.tokens])).logits[0]
            expected = logits[len(prompt) - 1 : -1].log_softmax(-1)
            own = expected.gather(1, torch.tensor(said.tokens)[:, None])[:, 0]
            torch.testing.assert_close(torch.tensor(said.logprobs), own, atol=1e-5, rtol=0)


def test_an_activation_of_its_own_is_not():
    def relu() -> PreTrainedModel:
        return LlamaForCausalLM(LlamaConfig(**SHAPE, hidden_act="relu"))

    assert not written_out(lively(relu))


def test_its_weights_are_those_of_now():
    model = lively(llama)
    before = sample(model, PROMPTS, 4, 20, [END], generator=seeded())
    with torch.no_grad():
        model.model.norm.weight.mul_(0.3)
    assert sample(model, PROMPTS, 4, 20, [END], generator=seeded()) != before


def test_only_its_families_are_written_out():
    assert all(written_out(lively(maker)) for maker in (llama, qwen, qwen3))
    assert not any(written_out(lively(maker)) for maker in (gpt2, sliding, latent))
    assert not written_out(lively(llama), share=False)
    assert not written_out(lively(llama).to(torch.bfloat16))


def test_a_large_model_is_not(monkeypatch: pytest.MonkeyPatch):
    model = lively(llama)
    monkeypatch.setattr(lean, "SMALL", model.num_parameters() - 1)
    assert not written_out(model)


def test_who_listens_inside_hears_the_model():
    model = lively(llama)
    heard: list[int] = []
    hook = model.model.layers[0].register_forward_hook(lambda *_: heard.append(1))
    assert not written_out(model)
    sample(model, PROMPTS, 2, 5, [END], generator=seeded())
    assert len(heard) > 1
    hook.remove()
    assert written_out(model)


def test_what_was_put_in_the_place_of_a_part_is_asked():
    model = lively(llama)
    norm = model.model.norm
    norm.forward = lambda values: 0 * values
    assert not written_out(model)
    said = sample(model, PROMPTS, 2, 5, [], generator=seeded())[0][0]
    torch.testing.assert_close(torch.tensor(said.logprobs), torch.full((5,), -math.log(WORDS)))


def test_lora_is_not():
    model = lively(llama)
    adapted = get_peft_model(model, LoraConfig(target_modules=["q_proj"]))
    assert not written_out(adapted.get_base_model())


def test_nor_a_model_in_mixed_precision():
    model = lively(llama)
    model._original_forward = model.forward  # as accelerate leaves it
    assert not written_out(model)
