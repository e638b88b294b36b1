"""What a request is told depends on the request alone, whoever joins and leaves around it."""

import pytest
import torch
from small import END, gpt2, lively, llama, qwen, sliding

from crt.errors import EngineError
from crt.serve.slots import Ask, SlotBatch


def batch_of(model, slots=8, room=64, ends=(END,)):
    return SlotBatch(model, slots, room, frozenset(ends))


def run(batch, told=None):
    """Steps until all have left; tokens and log-probabilities by key."""
    found = {}
    for said in [*(told or []), *steps(batch)]:
        found.setdefault(said.key, []).append(said)
    return found


def steps(batch):
    while batch.live:
        yield from batch.step()


def tokens(found, key):
    return [said.token for said in found[key]]


def alone(model, ask, ends=(END,)):
    batch = batch_of(model, ends=ends)
    return tokens(run(batch, batch.admit([ask])), ask.key)


@pytest.mark.parametrize("maker", [qwen, llama, gpt2])
def test_alone_and_in_a_busy_batch_the_same(maker):
    model = lively(maker)
    asks = [Ask(i, [2 + i, 3, 4 + i][: 1 + i % 3], 10 + 3 * i, temperature=0) for i in range(6)]
    expected = {ask.key: alone(model, ask) for ask in asks}
    batch = batch_of(model, slots=4)
    told = batch.admit(asks[:2])
    told += batch.step()
    told += batch.admit(asks[2:4])  # these join while the first are under way
    told += batch.step()
    waiting = asks[4:]
    while batch.live or waiting:
        ready = [waiting.pop(0) for _ in range(min(batch.free, len(waiting)))]
        told += batch.admit(ready) if ready else []
        told += batch.step()
    found = run(batch, told)
    assert {key: tokens(found, key) for key in found} == expected
    assert len({len(said) for said in expected.values()}) > 1  # so some left before others


def test_log_probabilities_are_the_models_own():
    model = lively()
    prompt = [5, 9, 2]
    batch = batch_of(model)
    asks = [Ask("a", prompt, 12, 0.7, seed=3), Ask("b", [7], 20, 1.0, seed=4)]
    said = run(batch, batch.admit(asks))["a"]
    spoken = [each.token for each in said]
    with torch.inference_mode():
        logits = model(torch.tensor([prompt + spoken])).logits[0, len(prompt) - 1 : -1]
    own = torch.log_softmax(logits / 0.7, -1).gather(1, torch.tensor(spoken)[:, None])[:, 0]
    assert torch.allclose(torch.tensor([each.logprob for each in said]), own, atol=1e-4)


def test_a_seed_draws_the_same_whoever_else_is_there():
    model = lively()
    mine = Ask("mine", [4, 5], 20, temperature=1.0, top_p=0.9, seed=7)
    others = [Ask(i, [6, i + 2], 15, temperature=0.8, seed=i) for i in range(5)]
    batch = batch_of(model)
    assert tokens(run(batch, batch.admit([*others, mine])), "mine") == alone(model, mine)


def test_another_seed_draws_something_else():
    model = lively()
    said = {tuple(alone(model, Ask("x", [4, 5], 20, 1.5, seed=seed))) for seed in range(8)}
    assert len(said) > 1


def test_one_that_is_dropped_frees_its_place_and_the_others_go_on():
    model = lively()
    asks = [Ask(i, [3 + i, 8], 20, temperature=0) for i in range(3)]
    expected = {ask.key: alone(model, ask, ends=()) for ask in asks}
    batch = batch_of(model, slots=3, ends=())
    told = batch.admit(asks)
    assert batch.free == 0
    batch.drop({0})
    assert batch.free == 1
    found = run(batch, told)
    assert len(found[0]) == 1  # only what it said before it was dropped
    assert tokens(found, 1) == expected[1] and tokens(found, 2) == expected[2]


def test_the_cap_and_the_end():
    model = lively()
    with torch.no_grad():
        model.lm_head.weight[END] = model.lm_head.weight.mean(0)
    batch = batch_of(model)
    said = run(batch, batch.admit([Ask("x", [3], 5, temperature=0)]))["x"]
    assert len(said) <= 5 and [each.stop for each in said[:-1]] == [None] * (len(said) - 1)
    assert said[-1].stop == ("eos" if said[-1].token == END else "length")


def test_what_does_not_fit_is_refused():
    batch = batch_of(lively(), slots=1, room=10)
    with pytest.raises(EngineError, match="4 tokens and 7 more do not fit into 10"):
        batch.admit([Ask("x", [1, 2, 3, 4], 7)])
    with pytest.raises(EngineError, match="needs a prompt"):
        batch.admit([Ask("x", [], 7)])
    with pytest.raises(EngineError, match="2 requests for 1 free"):
        batch.admit([Ask("x", [3], 3), Ask("y", [3], 3)])


def test_sliding_windows_are_refused():
    with pytest.raises(EngineError, match="sliding_attention"):
        batch_of(lively(sliding))
