"""Shared beginnings say of each response what the model says of it alone, gradients and all."""

import pytest
import torch

from crt.training.trl.micro_batches import (
    can_share_prefixes,
    completion_logprobs,
    merge_prefixes,
)
from tests.support.small_models import END, gpt2, latent, lively, llama, qwen, seeded

ROWS = [
    [3, 4, 5, 6, 7, END],
    [3, 4, 5, 6, 8, 9, 2, END],
    [3, 4, 5, 6, 7, END],
    [3, 4, 5, 2],
    [8, 4, 5, END],
]
PROMPT = 2


def padded(rows: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    length = torch.tensor([len(row) for row in rows])
    ids = torch.zeros(len(rows), int(length.max()), dtype=torch.long)
    for k, row in enumerate(rows):
        ids[k, : len(row)] = torch.tensor(row)
    return ids, length


def test_every_beginning_is_there_once():
    # a b c | a b d | a b | e: in sorted order they end with a, b, c, d, e
    prefixes = merge_prefixes(*padded([[5, 6, 7], [5, 6, 8], [5, 6], [9]]))
    assert prefixes.token.tolist() == [5, 6, 7, 8, 9]
    assert prefixes.position.tolist() == [0, 1, 2, 2, 0]
    assert prefixes.index[:2].tolist() == [[0, 1, 2], [0, 1, 3]]
    assert prefixes.index[2, :2].tolist() == [0, 1] and prefixes.index[3, 0] == 4
    # a b stand first in the third row, which is the shortest and sorts before the others
    assert prefixes.place.tolist() == [6, 7, 2, 5, 9]


def test_prefixes_are_the_distinct_beginnings_of_any_rows():
    for seed in range(20):
        lengths = torch.randint(1, 8, (12,), generator=seeded(seed)).tolist()
        rows = [
            torch.randint(0, 3, (n,), generator=seeded(97 * seed + n)).tolist() for n in lengths
        ]
        ids, length = padded(rows)
        prefixes = merge_prefixes(ids, length)
        begun = {tuple(row[: at + 1]) for row in rows for at in range(len(row))}
        assert len(prefixes.token) == len(begun)
        assert torch.equal(ids.flatten()[prefixes.place], prefixes.token)
        for k, row in enumerate(rows):
            path = prefixes.index[k, : len(row)]
            assert prefixes.token[path].tolist() == row
            assert prefixes.position[path].tolist() == list(range(len(row)))


@pytest.mark.parametrize("maker", [qwen, llama, gpt2])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_the_same_as_row_by_row(maker, temperature):
    model = lively(maker)
    ids, length = padded(ROWS)
    kept = ids.shape[1] - PROMPT
    assert can_share_prefixes(model, ids.numel())
    weight = torch.randn(len(ROWS), kept, generator=seeded())
    weight[torch.arange(kept) >= (length - PROMPT)[:, None]] = 0

    mask = torch.arange(ids.shape[1]) < length[:, None]
    said, entropy = completion_logprobs(model, ids, mask.long(), kept, temperature)
    (said * weight).sum().backward()
    ours = [parameter.grad.clone() for parameter in model.parameters()]
    assert model.config._attn_implementation == "sdpa"  # as it was
    model.zero_grad()
    for k, row in enumerate(ROWS):
        logits = model(input_ids=torch.tensor([row])).logits[0, PROMPT - 1 : -1] / temperature
        expected = logits.log_softmax(-1)
        end = len(row) - PROMPT
        alone = expected.gather(1, torch.tensor(row[PROMPT:])[:, None])[:, 0]
        torch.testing.assert_close(said[k, :end], alone, atol=1e-5, rtol=0)
        alone_entropy = -(expected.exp() * expected).sum(-1)
        torch.testing.assert_close(entropy[k, :end], alone_entropy, atol=1e-5, rtol=1e-5)
        (alone * weight[k, :end]).sum().backward()
    for mine, parameter in zip(ours, model.parameters(), strict=True):
        torch.testing.assert_close(mine, parameter.grad, atol=1e-4, rtol=1e-4)


def test_what_rows_have_in_common_is_computed_once():
    model, computed = lively(), []
    hook = model.register_forward_pre_hook(
        lambda _, args, given: computed.append(given["input_ids"].numel()), with_kwargs=True
    )
    ids, length = padded(ROWS)
    mask = (torch.arange(ids.shape[1]) < length[:, None]).long()
    said, _ = completion_logprobs(model, ids, mask, ids.shape[1] - PROMPT, 1.0)
    hook.remove()
    # 5 of the first row, 3 more of the second and 3 of the last: their ends are not asked
    assert computed == [5 + 3 + 3]
    assert said.shape == (5, 6)


def test_with_dropout_rows_are_read_one_by_one():
    """What is in common would be dropped in common."""
    model = lively(gpt2)
    assert can_share_prefixes(model, 100)
    assert not can_share_prefixes(model.train(), 100)


def test_keys_and_values_of_two_sizes_go_row_by_row():
    model = lively(latent)
    ids, _ = padded(ROWS)
    assert not can_share_prefixes(model, ids.numel())


def test_gradient_checkpointing_goes_row_by_row():
    """It would attend once more when the tree is gone."""
    model = lively(llama).train()
    model.gradient_checkpointing_enable()
    assert not can_share_prefixes(model, 100)
