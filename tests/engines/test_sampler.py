"""The sampler says what the model says, in the same proportions, whoever else is in the batch."""

from types import SimpleNamespace

import pytest
import torch
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from crt.engines import sampler
from crt.engines.sampler import Sample, choose, draw, nucleus, sample
from crt.engines.shared_prompt import can_share
from crt.errors import EngineError

WORDS, END = 12, 1
SHAPE = {
    "vocab_size": WORDS,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "eos_token_id": END,
}
PROMPTS = [[3, 4, 5, 6, 7], [8], [9, 2, 5]]


def qwen() -> PreTrainedModel:
    return Qwen2ForCausalLM(Qwen2Config(**SHAPE))


def sliding() -> PreTrainedModel:
    """Layers that see three positions back: the model's own mask has to do it."""
    return Qwen2ForCausalLM(
        Qwen2Config(**SHAPE, use_sliding_window=True, sliding_window=3, max_window_layers=1)
    )


def llama() -> PreTrainedModel:
    return LlamaForCausalLM(LlamaConfig(**SHAPE))


def gpt2() -> PreTrainedModel:
    return GPT2LMHeadModel(GPT2Config(vocab_size=WORDS, n_embd=32, n_layer=2, n_head=4))


MAKERS = [qwen, sliding, llama, gpt2]


def lively(maker=qwen) -> PreTrainedModel:
    """An untrained model with weights large enough that it is far from indifferent."""
    torch.manual_seed(0)
    model = maker().eval()
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim == 2:
                weight.mul_(8)
    return model


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def flat(groups: list[list[Sample]]) -> list[Sample]:
    return [said for group in groups for said in group]


def own_logprobs(model: PreTrainedModel, prompt: list[int], said: Sample, temperature=1.0):
    """What one plain forward over prompt and answer gives."""
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([prompt + said.tokens])).logits[0]
    logprobs = torch.log_softmax(logits[len(prompt) - 1 : -1].float() / temperature, -1)
    return logprobs.gather(1, torch.tensor(said.tokens)[:, None])[:, 0]


@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_logprobs_are_the_models_own(maker, temperature):
    model = lively(maker)
    groups = sample(model, PROMPTS, 6, 20, [END], generator=seeded(), temperature=temperature)
    lengths = {len(said.tokens) for group in groups for said in group}
    assert len(lengths) > 3  # rows did leave the batch at different times
    for prompt, group in zip(PROMPTS, groups, strict=True):
        for said in group:
            expected = own_logprobs(model, prompt, said, temperature)
            torch.testing.assert_close(torch.tensor(said.logprobs), expected, atol=1e-5, rtol=0)


def test_same_seed_same_rollouts_and_another_seed_others():
    model = lively()
    first = sample(model, PROMPTS, 4, 20, [END], generator=seeded(1))
    assert sample(model, PROMPTS, 4, 20, [END], generator=seeded(1)) == first
    assert sample(model, PROMPTS, 4, 20, [END], generator=seeded(2)) != first


def test_rows_that_leave_change_nothing_for_the_others(monkeypatch):
    model = lively()
    dropping = sample(model, PROMPTS, 8, 20, [END], generator=seeded())
    nobody = torch.empty(0, dtype=torch.long)
    monkeypatch.setattr(sampler, "compaction", lambda over: (nobody, nobody, len(over)))
    staying = sample(model, PROMPTS, 8, 20, [END], generator=seeded())
    for few, all_rows in zip(flat(dropping), flat(staying), strict=True):
        assert few.tokens == all_rows.tokens[: len(few.tokens)]


@pytest.mark.parametrize("maker", MAKERS)
def test_a_shared_prompt_changes_nothing(maker):
    model = lively(maker)
    assert can_share(model) == (maker is not sliding)
    apart = sample(model, PROMPTS, 8, 20, [END], generator=seeded(), share_prompts=False)
    shared = sample(model, PROMPTS, 8, 20, [END], generator=seeded())
    assert model.config._attn_implementation == "sdpa"  # as it was
    for one, other in zip(flat(apart), flat(shared), strict=True):
        assert one.tokens == other.tokens
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-5)


def test_a_prompt_has_its_own_stream():
    model = lively()
    streams = [seeded(seed) for seed in (5, 6, 7)]
    together = sample(model, PROMPTS, 4, 20, [END], generator=streams)
    for prompt, seed, group in zip(PROMPTS, (5, 6, 7), together, strict=True):
        [alone] = sample(model, [prompt], 4, 20, [END], generator=seeded(seed))
        assert [one.tokens for one in alone] == [one.tokens for one in group]


def test_frequencies_match_the_distribution():
    model = lively()
    prompt, copies = PROMPTS[0], 20_000
    [group] = sample(model, [prompt], copies, 1, [END], generator=seeded())
    with torch.no_grad():
        expected = model(input_ids=torch.tensor([prompt])).logits[0, -1].softmax(-1)
    counts = torch.bincount(torch.tensor([s.tokens[0] for s in group]), minlength=WORDS)
    error = (expected * (1 - expected) / copies).sqrt()
    assert ((counts / copies - expected).abs() <= 4.5 * error + 1e-6).all()


def test_stops_at_eos_or_at_the_cap():
    model = lively()
    told = flat(sample(model, PROMPTS, 16, 6, [END], generator=seeded()))
    ended = [s for s in told if s.stop == "eos"]
    cut = [s for s in told if s.stop == "length"]
    assert ended and cut
    assert all(s.tokens[-1] == END and END not in s.tokens[:-1] for s in ended)
    assert all(len(s.tokens) == 6 and END not in s.tokens for s in cut)


def test_eos_as_the_very_last_token_allowed_counts_as_an_end():
    model = lively()
    told = flat(sample(model, PROMPTS, 64, 2, [END], generator=seeded()))
    assert any(s.stop == "eos" and len(s.tokens) == 2 for s in told)


def test_greedy_takes_the_most_likely():
    model = lively()
    [[said]] = sample(model, [PROMPTS[0]], 1, 5, [END], generator=seeded(), temperature=0)
    seen = list(PROMPTS[0])
    for token in said.tokens:
        with torch.no_grad():
            assert token == model(input_ids=torch.tensor([seen])).logits[0, -1].argmax()
        seen.append(token)


def test_top_p_keeps_the_smallest_set_that_reaches_it():
    probability = torch.tensor([[0.1, 0.5, 0.15, 0.25]])
    # 0.5 + 0.25 reach 0.7, so 0.15 and 0.1 go
    assert nucleus(probability, 0.7)[0].tolist() == pytest.approx([0.0, 0.5, 0.0, 0.25])
    assert (nucleus(probability, 0.5) > 0).tolist() == [[False, True, False, False]]


def test_top_p_in_a_large_vocabulary_with_sharp_and_flat_rows():
    torch.manual_seed(0)
    sharp, flat = torch.randn(3, 500) * 8, torch.randn(3, 500) / 8
    probability = torch.cat([sharp, flat])[[0, 3, 1, 4, 2, 5]].softmax(-1)
    for share in (0.5, 0.95, torch.linspace(0.3, 0.99, 6)[:, None]):
        ordered, index = probability.sort(dim=-1, descending=True)
        ordered[ordered.cumsum(-1) - ordered >= share] = 0
        kept = nucleus(probability, share)
        assert torch.equal(kept, torch.zeros_like(kept).scatter(-1, index, ordered))
        alone = [nucleus(row[None], share if isinstance(share, float) else share[i : i + 1])
                 for i, row in enumerate(probability)]  # fmt: skip
        assert torch.equal(kept, torch.cat(alone))


def test_top_p_logprobs_are_of_the_whole_distribution():
    logits = torch.tensor([[0.5, 0.3, 0.2]]).log()
    token, logprob = choose(logits, torch.tensor([0.99]), 1.0, 0.4)
    assert token.item() == 0  # only the first is left
    assert logprob.exp().item() == pytest.approx(0.5)


def test_draw_never_takes_what_has_no_probability():
    probability = torch.tensor([[0.0, 0.25, 0.0, 0.75, 0.0]]).expand(4, -1)
    # 0 falls in the first that has any; 0.25 is where the second one begins
    assert draw(probability, torch.tensor([0.0, 0.249, 0.25, 1.0])).tolist() == [1, 1, 3, 3]


def test_draw_stays_in_the_vocabulary_when_the_model_is_broken():
    assert draw(torch.full((1, 5), torch.nan), torch.tensor([0.5])).item() < 5


def test_tokens_stream_in_order():
    model, seen = lively(), []
    [[said]] = sample(
        model,
        [PROMPTS[0]],
        1,
        10,
        [END],
        generator=seeded(3),
        on_token=lambda row, token: seen.append((row, token)),
    )
    assert seen == [(0, token) for token in said.tokens]


@pytest.mark.parametrize(("prompts", "copies", "room"), [([], 1, 1), ([[]], 1, 1), ([[3]], 0, 1)])
def test_refuses_what_cannot_be_sampled(prompts, copies, room):
    with pytest.raises(EngineError):
        sample(lively(), prompts, copies, room, [END], generator=seeded())


def test_refuses_layers_it_cannot_cache():
    config = SimpleNamespace(layer_types=["linear_attention"], num_hidden_layers=1)
    model = SimpleNamespace(config=SimpleNamespace(get_text_config=lambda decoder: config))
    with pytest.raises(EngineError, match="linear_attention"):
        sampler.layers_for(model, torch.ones(1, 1), 1, 1, True)  # pyright: ignore[reportArgumentType]
