"""A token is drawn in the proportions of its distribution, or of the nucleus of it."""

import pytest
import torch

from crt.sampling.hf import choose_tokens, draw_tokens, keep_top_p


def test_top_p_keeps_the_smallest_set_that_reaches_it():
    probability = torch.tensor([[0.1, 0.5, 0.15, 0.25]])
    # 0.5 + 0.25 reach 0.7, so 0.15 and 0.1 go
    assert keep_top_p(probability, 0.7)[0].tolist() == pytest.approx([0.0, 0.5, 0.0, 0.25])
    assert (keep_top_p(probability, 0.5) > 0).tolist() == [[False, True, False, False]]


def test_top_p_in_a_large_vocabulary_with_sharp_and_flat_rows():
    torch.manual_seed(0)
    sharp, flat = torch.randn(3, 500) * 8, torch.randn(3, 500) / 8
    probability = torch.cat([sharp, flat])[[0, 3, 1, 4, 2, 5]].softmax(-1)
    for share in (0.5, 0.95, torch.linspace(0.3, 0.99, 6)[:, None]):
        ordered, index = probability.sort(dim=-1, descending=True)
        ordered[ordered.cumsum(-1) - ordered >= share] = 0
        kept = keep_top_p(probability, share)
        assert torch.equal(kept, torch.zeros_like(kept).scatter(-1, index, ordered))
        alone = [keep_top_p(row[None], share if isinstance(share, float) else share[i : i + 1])
                 for i, row in enumerate(probability)]  # fmt: skip
        assert torch.equal(kept, torch.cat(alone))


def test_top_p_logprobs_are_of_the_whole_distribution():
    logits = torch.tensor([[0.5, 0.3, 0.2]]).log()
    token, logprob = choose_tokens(logits, torch.tensor([0]), torch.tensor([0.99]), 1.0, 0.4)
    assert token.item() == 0  # only the first is left
    assert logprob.exp().item() == pytest.approx(0.5)


def test_rollouts_of_one_row_draw_each_with_their_own_number():
    logits = torch.tensor([[0.9, 0.1], [0.2, 0.8]]).log()
    row, uniform = torch.tensor([0, 0, 1, 1]), torch.tensor([0.5, 0.95, 0.1, 0.5])
    token, logprob = choose_tokens(logits, row, uniform, 1.0, 1.0)
    assert token.tolist() == [0, 1, 0, 1]
    assert logprob.exp().tolist() == pytest.approx([0.9, 0.1, 0.2, 0.8])


def test_draw_never_takes_what_has_no_probability():
    probability = torch.tensor([[0.0, 0.25, 0.0, 0.75, 0.0]]).expand(4, -1)
    # 0 falls in the first that has any; 0.25 is where the second one begins
    assert draw_tokens(probability, torch.tensor([0.0, 0.249, 0.25, 1.0])).tolist() == [1, 1, 3, 3]


def test_draw_stays_in_the_vocabulary_when_the_model_is_broken():
    assert draw_tokens(torch.full((1, 5), torch.nan), torch.tensor([0.5])).item() < 5
