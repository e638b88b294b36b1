"""An update from the sampler's tape learns what it would by going forwards again."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import torch
from small import END, biased, gpt2, lively, llama, qwen, qwen3, seeded
from torch import Tensor
from transformers import PreTrainedModel

from crt.engines import lean, tape
from crt.engines.logprobs import logprobs_and_entropies
from crt.engines.sampler import Sample, sample
from crt.engines.tape import Tape

PROMPTS = [[3, 4, 5], [3, 4, 6, 7], [8]]
ROOM = 12  # tokens of a rollout


def told(model: PreTrainedModel, on: Tape | None, prompts=PROMPTS) -> list[list[Sample]]:
    return sample(model, prompts, 6, ROOM, [END], generator=seeded(), tape=on)


def rows_of(groups: list[list[Sample]], prompts=PROMPTS) -> list[list[int]]:
    return [p + one.tokens for p, of in zip(prompts, groups, strict=True) for one in of]


def learnt(
    model: PreTrainedModel, rows: list[list[int]], on: Tape | None, temperature: float = 1.0
) -> tuple[Tensor, list[Tensor]]:
    """Log-probabilities and the gradients of a weighted sum of them."""
    length = torch.tensor([len(row) for row in rows])
    ids = torch.zeros(len(rows), int(length.max()), dtype=torch.long)
    for k, row in enumerate(rows):
        ids[k, : len(row)] = torch.tensor(row)
    kept = ids.shape[1] - 1
    model.zero_grad()
    said, entropy = logprobs_and_entropies(model, ids, length, kept, temperature, on)
    weight = torch.randn(said.shape, generator=seeded())
    weight[torch.arange(kept) >= (length - 1)[:, None]] = 0
    (said * weight).sum().backward()
    known = weight != 0
    gradients = [parameter.grad.clone() for parameter in model.parameters()]
    return torch.cat([said[known], entropy[known]]).detach(), gradients


@contextmanager
def no_forward(model: PreTrainedModel) -> Iterator[None]:
    def fail(*_):
        pytest.fail("the model went forwards")

    hook = model.register_forward_pre_hook(fail)
    yield
    hook.remove()


@contextmanager
def forwards(model: PreTrainedModel, times: int) -> Iterator[None]:
    seen: list[int] = []
    hook = model.register_forward_pre_hook(lambda *_: seen.append(1))
    yield
    hook.remove()
    assert len(seen) == times


@pytest.mark.parametrize("maker", [llama, qwen, qwen3, biased])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_gradients_are_the_models_own(
    maker: Callable[[], PreTrainedModel], temperature: float, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(lean, "PIECE", 7)  # so that nodes go backwards in several
    model, on = lively(maker), Tape()
    rows = rows_of(told(model, on))
    assert len({len(row) for row in rows}) > 3
    expected, own = learnt(model, rows, None, temperature)
    with no_forward(model):
        found, ours = learnt(model, rows, on, temperature)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    for (name, _), mine, theirs in zip(model.named_parameters(), ours, own, strict=True):
        largest = theirs.abs().max()
        assert (mine - theirs).abs().max() <= 1e-5 + 1e-4 * largest, name


def test_rollouts_are_the_same_with_a_tape():
    model = lively(llama)
    assert told(model, Tape()) == told(model, None)


def test_some_of_the_rows_and_of_their_beginnings_are_enough():
    """Micro-batches are some of the rows, and a masked completion leaves its prompt."""
    model, on = lively(llama), Tape()
    rows = rows_of(told(model, on))
    some = [rows[7], rows[1], rows[8][:6], PROMPTS[2] + rows[-1][1:2]]
    with no_forward(model):
        learnt(model, some, on)


def test_a_tape_is_used_again():
    model, on = lively(llama), Tape()
    told(model, on)
    room = on.layers[0].wide.data_ptr()
    rows = rows_of(sample(model, PROMPTS, 6, ROOM, [END], generator=seeded(9), tape=on))
    assert on.layers[0].wide.data_ptr() == room
    _, own = learnt(model, rows, None)
    with no_forward(model):
        _, ours = learnt(model, rows, on)
    for mine, theirs in zip(ours, own, strict=True):
        torch.testing.assert_close(mine, theirs, atol=1e-4, rtol=1e-4)


def test_what_was_not_sampled_is_computed():
    model, on = lively(llama), Tape()
    rows = rows_of(told(model, on))
    other = [*rows[:3], [*PROMPTS[0], 11, 11, 11, 11]]
    with forwards(model, 1):
        found, _ = learnt(model, other, on)
    torch.testing.assert_close(found, learnt(model, other, None)[0])


@pytest.mark.parametrize("optimiser", ["adamw_torch", "adamw_torch_fused", "by hand"])
def test_after_a_step_it_tells_of_another_policy(optimiser: str):
    model, on = lively(llama), Tape()
    rows = rows_of(told(model, on))
    learnt(model, rows, on)
    if optimiser == "by hand":
        with torch.no_grad():
            model.model.layers[0].mlp.down_proj.weight.mul_(0.5)
    else:
        fused = optimiser == "adamw_torch_fused"
        torch.optim.AdamW(model.parameters(), 1e-2, fused=fused).step()
    with forwards(model, 1):
        learnt(model, rows, on)


def test_it_is_of_one_model():
    model, on = lively(llama), Tape()
    rows = rows_of(told(model, on))
    other = lively(llama)
    with forwards(other, 1):
        learnt(other, rows, on)


def test_a_full_tape_is_no_tape(monkeypatch: pytest.MonkeyPatch):
    model, on = lively(llama), Tape()
    monkeypatch.setattr(tape, "ROOM", 40_000)
    groups = told(model, on)
    assert groups == told(model, None)
    assert 0 < len(on.layers[-1].hidden) < sum(map(len, rows_of(groups)))
    with forwards(model, 1):
        learnt(model, rows_of(groups), on)


def test_what_it_may_take_is_bounded():
    """Bytes of a node times nodes, whatever the batch."""
    model, on = lively(llama), Tape()
    on.begin(model, lean.Lean(model), 10**12)
    kept = [each for layer in on.layers for each in layer if each is not None]
    assert 0.9 * tape.ROOM < sum(each.nbytes for each in kept) <= tape.ROOM


@pytest.mark.parametrize("words", [0, 2])
def test_the_same_question_twice_and_one_that_an_answer_begins(words: int):
    """Two groups, or an answer and a question, may begin alike: they are the same nodes."""
    model, on = lively(llama), Tape()
    prompts = [[3], [3, *told(model, None, [[3]])[0][0].tokens[:words]]]
    rows = rows_of(told(model, on, prompts), prompts)
    assert rows[0][: 1 + words] == prompts[1]
    expected, own = learnt(model, rows, None)
    with no_forward(model):
        found, ours = learnt(model, rows, on)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    for mine, theirs in zip(ours, own, strict=True):
        torch.testing.assert_close(mine, theirs, atol=1e-4, rtol=1e-4)


def test_frozen_layers_stay_without_a_gradient():
    model, on = lively(llama), Tape()
    rows = rows_of(told(model, on))
    frozen = model.model.layers[0].mlp.down_proj.weight.requires_grad_(False)
    ids = torch.tensor([rows[0]])
    with no_forward(model):
        said, _ = logprobs_and_entropies(
            model, ids, torch.tensor([len(rows[0])]), ids.shape[1] - 1, 1.0, on
        )
        said.sum().backward()
    assert frozen.grad is None
    assert model.model.layers[0].mlp.up_proj.weight.grad.abs().max() > 0


def test_other_models_leave_it_empty():
    model, on = lively(llama), Tape()
    rows = rows_of(told(model, on))
    told(lively(gpt2), on)
    assert on.model is None
    with forwards(model, 1):
        learnt(model, rows, on)
