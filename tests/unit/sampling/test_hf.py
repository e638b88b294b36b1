"""The sampler says what the model says, in the same proportions, whoever else is in the batch."""

from types import SimpleNamespace

import pytest
import torch
from transformers import PreTrainedModel

from crt.errors import EngineError
from crt.sampling import kv_cache
from crt.sampling.hf import Sample, sample, split_rows
from crt.sampling.kv_cache import cache_layers, has_plain_attention, row_layout
from tests.support.small_models import (
    END,
    WORDS,
    gpt2,
    latent,
    lively,
    llama,
    qwen,
    qwen3,
    seeded,
    sliding,
)

PROMPTS = [[3, 4, 5, 6, 7], [8], [9, 2, 5]]
MAKERS = [qwen, qwen3, sliding, llama, gpt2, latent]


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
def test_logprobs_are_the_models_own(maker, temperature, monkeypatch):
    monkeypatch.setattr(kv_cache, "BLOCK", 4)  # so that rollouts fill several
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


def test_a_rollout_says_the_same_in_any_company():
    model, room = lively(), 20
    uniform = torch.rand(len(PROMPTS) * 8, room, generator=seeded())
    together = flat(sample(model, PROMPTS, 8, room, [END], generator=seeded()))
    for k, said in enumerate(together):
        seen = list(PROMPTS[k // 8])
        for at, token in enumerate(said.tokens):
            with torch.no_grad():
                reached = model(input_ids=torch.tensor([seen])).logits[0, -1].softmax(-1).cumsum(0)
            assert token == int((reached <= uniform[k, at]).sum())
            seen.append(token)


@pytest.mark.parametrize("share", [True, False])
@pytest.mark.parametrize("temperature", [1.0, 0.0])
def test_what_rollouts_have_in_common_is_computed_once(share, temperature):
    model, rows = lively(), []
    hook = model.register_forward_pre_hook(
        lambda _, args, given: rows.append(len(given["input_ids"])), with_kwargs=True
    )
    groups = sample(
        model, PROMPTS, 8, 20, [END],
        generator=seeded(), temperature=temperature, share_prompts=share,
    )  # fmt: skip
    hook.remove()
    assert rows[0] == len(PROMPTS)
    for at, count in enumerate(
        rows[1:], 1
    ):  # one row for each beginning that somebody goes on from
        begun = {
            (k, *said.tokens[:at])
            for k, group in enumerate(groups)
            for said in group
            if len(said.tokens) > at
        }
        assert count == len(begun)
    if temperature == 0:
        assert max(rows) == len(PROMPTS)


def test_rows_part_where_rollouts_do_and_stand_together():
    # Five rollouts in rows 0, 0, 2, 2, 3 say 7, 8, 5, 5, 6: nobody goes on from row 1.
    row, token = torch.tensor([0, 0, 2, 2, 3]), torch.tensor([7, 8, 5, 5, 6])
    split = split_rows(row, token)
    assert split.origin.tolist() == [0, 0, 2, 3]
    assert split.token.tolist() == [7, 8, 5, 6]
    assert split.row.tolist() == [0, 1, 2, 2, 3]
    assert (split.source.tolist(), split.target.tolist()) == ([0], [1])


def test_rows_from_the_end_take_the_places_of_those_that_are_over():
    # Rollouts go on in rows 1, 3 and 4 only: rows 3 and 4 come to places 0 and 2.
    split = split_rows(torch.tensor([1, 3, 4]), torch.tensor([9, 9, 9]))
    assert split.origin.tolist() == [3, 1, 4]
    assert split.row.tolist() == [1, 0, 2]
    assert (split.source.tolist(), split.target.tolist()) == ([3, 4], [0, 2])


@pytest.mark.parametrize("maker", MAKERS)
def test_a_shared_prompt_changes_nothing(maker):
    model = lively(maker)
    assert has_plain_attention(model) == (maker not in (sliding, latent))
    apart = sample(model, PROMPTS, 8, 20, [END], generator=seeded(), share_prompts=False)
    shared = sample(model, PROMPTS, 8, 20, [END], generator=seeded())
    assert model.config._attn_implementation == "sdpa"  # as it was
    for one, other in zip(flat(apart), flat(shared), strict=True):
        assert one.tokens == other.tokens
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-5)


def test_a_prompt_has_its_own_stream():
    model = lively()
    uniform = torch.cat([torch.rand(4, 20, generator=seeded(seed)) for seed in (5, 6, 7)])
    together = sample(model, PROMPTS, 4, 20, [END], uniform=uniform)
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
        cache_layers(model, torch.ones(1, 1), 1, 1, True)  # pyright: ignore[reportArgumentType]


def test_rows_of_one_prompt_sit_together():
    # Rows 0, 2 and 3 ask prompt 1, row 1 asks prompt 0, nobody asks prompt 2: three slots each.
    layout = row_layout(torch.tensor([1, 0, 1, 1]), 3)
    assert layout.slots == 3 and layout.slot.tolist() == [3, 0, 4, 5]
    assert layout.row.tolist() == [1, 0, 0, 0, 2, 3, 0, 0, 0]
