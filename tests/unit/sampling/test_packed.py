"""Weights laid out beforehand give what the model gives, and leave no trace behind."""

import pytest
import torch
from peft import LoraConfig, get_peft_model

from crt.sampling.hf import sample
from crt.sampling.packed import WORTH_IT, packed_weights
from tests.support.small_models import END, lively, qwen, seeded

IDS = torch.tensor([[3, 4, 5, 6, 7], [9, 2, 5, 8, 1]])
supported = torch.ops.mkldnn._is_mkldnn_bf16_supported()
needs_bfloat16 = pytest.mark.skipif(not supported, reason="this processor has no bfloat16")


def replaced(model: torch.nn.Module) -> list[str]:
    return [name for name, layer in model.named_modules() if "forward" in vars(layer)]


@needs_bfloat16
def test_products_are_the_same_and_the_layers_are_as_before():
    model = lively(qwen).to(torch.bfloat16).eval()
    with torch.no_grad():
        plain = model(IDS).logits
        with packed_weights(model, WORTH_IT):
            assert "lm_head" in replaced(model)
            torch.testing.assert_close(model(IDS).logits, plain, atol=2e-2, rtol=2e-2)
    assert replaced(model) == []


@needs_bfloat16
def test_an_adapter_stays_on_top_of_the_packed_layers():
    adapted = get_peft_model(lively(qwen).to(torch.bfloat16), LoraConfig(r=4)).eval()
    with torch.no_grad():
        for name, weight in adapted.named_parameters():
            if "lora_B" in name:
                weight.normal_(generator=seeded())
        plain = adapted(IDS).logits
        with packed_weights(adapted, WORTH_IT):
            torch.testing.assert_close(adapted(IDS).logits, plain, atol=3e-2, rtol=3e-2)


@needs_bfloat16
def test_a_failure_within_leaves_the_layers_as_they_were():
    model = lively(qwen).to(torch.bfloat16)
    with pytest.raises(KeyError), packed_weights(model, WORTH_IT):
        raise KeyError
    assert replaced(model) == []


@needs_bfloat16
def test_the_sampler_lays_weights_out_and_its_tokens_are_the_models_own():
    model = lively(qwen).to(torch.bfloat16).eval()
    seen: list[int] = []
    groups = sample(
        model, IDS.tolist(), 4, WORTH_IT, [END], generator=seeded(),
        on_token=lambda rollout, token: seen.append(len(replaced(model))),
    )  # fmt: skip
    assert min(seen) > 0
    for prompt, group in zip(IDS.tolist(), groups, strict=True):
        for said in group:
            with torch.no_grad():
                logits = model(torch.tensor([prompt + said.tokens])).logits[0]
            logprobs = logits[len(prompt) - 1 : -1].float().log_softmax(-1)
            expected = logprobs.gather(1, torch.tensor(said.tokens)[:, None])[:, 0]
            torch.testing.assert_close(torch.tensor(said.logprobs), expected, atol=0.1, rtol=0)


def test_a_forward_that_somebody_else_put_there_stays():
    model = lively(qwen).to(torch.bfloat16)
    own = model.lm_head.forward = model.lm_head.forward  # what accelerate's hooks do
    with packed_weights(model, WORTH_IT):
        assert model.lm_head.forward is own
    assert replaced(model) == ["lm_head"]


def test_a_build_without_mkldnn_is_left_alone(monkeypatch):
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    model = lively(qwen).to(torch.bfloat16)
    with packed_weights(model, WORTH_IT):
        assert replaced(model) == []


def test_float32_and_short_calls_are_left_alone():
    model = lively(qwen)
    with packed_weights(model, WORTH_IT):
        assert replaced(model) == []
    with packed_weights(model.to(torch.bfloat16), WORTH_IT - 1):
        assert replaced(model) == []
