"""What a response is depends on its request alone, whoever joins and leaves around it."""

import asyncio
import time

import pytest
import torch

from crt.errors import EngineError
from crt.levels.local import (
    BatchLoop,
    ContinuousBatch,
    Generation,
    fit_tokens,
    refuse_sliding_windows,
)
from crt.levels.requests import ApiError
from crt.sampling.models import load_model
from tests.support.levels import PROMPT, make_endless


@pytest.fixture(scope="module")
def endless(tmp_path_factory):
    folder = tmp_path_factory.mktemp("endless") / "model"
    make_endless(folder)
    return load_model(str(folder))


@pytest.fixture(scope="module")
def pocket():
    return load_model("pocket")


def batch_of(loaded, batch_size=4, capacity=512):
    return ContinuousBatch(
        loaded.model, batch_size, capacity, frozenset(loaded.files.eos_token_ids)
    )


def finish(batch, waiting=()):
    """Steps until all have ended; those who wait join as soon as there is a row."""
    waiting = list(waiting)
    while batch.rows or waiting:
        free = batch.batch_size - len(batch.rows)
        if waiting and free:
            batch.admit(waiting[:free])
            waiting = waiting[free:]
            batch.remove_finished()
        if batch.rows:
            batch.step()
            batch.remove_finished()


def requests(pocket):
    """Six prompts of different length, each with its own limit, temperature and seed."""
    ids = pocket.tokenizer.encode(PROMPT)
    return [
        Generation(ids[: 10 + 2 * i], 10 + 5 * i, temperature=0.3 * i, top_p=0.9, seed=i)
        for i in range(6)
    ]


def test_alone_and_in_a_busy_batch_the_same(pocket):
    alone, together = requests(pocket), requests(pocket)
    for generation in alone:
        finish(batch_of(pocket), [generation])
    finish(batch_of(pocket, batch_size=4), together)  # the last two join when others have ended
    assert [g.tokens for g in together] == [g.tokens for g in alone]
    assert [g.finish_reason for g in together] == [g.finish_reason for g in alone]
    assert len({tuple(g.tokens) for g in alone}) == 6


def test_greedy_is_the_models_own(pocket):
    ids = pocket.tokenizer.encode(PROMPT)
    generation = Generation(ids, 20, temperature=0.0)
    finish(batch_of(pocket), [Generation(ids[:5], 30, seed=1), generation])
    expected = pocket.model.generate(torch.tensor([ids]), do_sample=False, max_new_tokens=20)
    assert generation.tokens == expected[0, len(ids) :].tolist()


def test_another_seed_draws_something_else(pocket):
    made = [Generation(pocket.tokenizer.encode("Tom has"), 20, 1.5, seed=i) for i in range(4)]
    finish(batch_of(pocket), made)
    assert len({tuple(g.tokens) for g in made}) > 1


def test_one_that_is_cancelled_frees_its_row_and_the_others_go_on(pocket):
    expected, made = requests(pocket)[:3], requests(pocket)[:3]
    finish(batch_of(pocket), expected)
    batch = batch_of(pocket)
    batch.admit(made)
    made[0].cancel()
    batch.remove_finished()
    assert len(batch.rows) == 2 and len(made[0].tokens) == 1
    finish(batch)
    assert [g.tokens for g in made[1:]] == [g.tokens for g in expected[1:]]


def test_sliding_windows_are_refused():
    class Config:
        layer_types = ("full_attention", "sliding_attention")

    with pytest.raises(EngineError, match="layers of type sliding_attention"):
        refuse_sliding_windows("Mistral", Config, 512)


# ---- the loop around it


def generation(prompt, max_tokens, temperature=0.0):
    return Generation(prompt, max_tokens, temperature)


async def tokens_of(made):
    tokens = []
    while True:
        _, token_ids, finish_reason = await made.events.get()
        tokens += token_ids
        if finish_reason:
            return tokens, finish_reason


async def happens(true):
    end = time.monotonic() + 60
    while not true():
        assert time.monotonic() < end, "it did not happen"
        await asyncio.sleep(0.001)


def with_batches(endless, act, batch_size=1, queue=2):
    """What `act(batches)` returns, in an event loop of its own."""

    async def run():
        return await act(BatchLoop(batch_of(endless, batch_size, 8192), queue))

    return asyncio.run(run())


def test_the_queue_is_bounded_and_all_or_none_are_taken(endless):
    async def act(batches):
        with pytest.raises(ApiError) as caught:
            batches.submit([generation([5], 4) for _ in range(4)])  # one row and a queue of two
        assert caught.value.status_code == 429 and batches.load == (0, 0)
        three = [generation([5], 4) for _ in range(3)]
        batches.submit(three)
        return [await tokens_of(item) for item in three]

    answers = with_batches(endless, act)
    assert [(len(tokens), finish_reason) for tokens, finish_reason in answers] == [
        (4, "length")
    ] * 3


def test_who_is_cancelled_while_waiting_or_running_leaves(endless):
    async def act(batches):
        running, waiting, last = generation([5], 8000), generation([5], 8000), generation([5], 3)
        batches.submit([running, waiting, last])
        await happens(lambda: running.tokens)
        waiting.cancel()
        assert batches.load == (1, 1)
        running.cancel()
        assert len((await tokens_of(last))[0]) == 3
        return len(running.tokens), waiting.tokens

    generated, never_begun = with_batches(endless, act)
    assert generated < 8000 and never_begun == []


def test_tokens_that_fit():
    assert fit_tokens(10, None, 64, usual=256) == 54  # what is left of the context
    assert fit_tokens(10, None, 512, usual=256) == 256  # as measured
    assert fit_tokens(10, 20, 512, usual=256) == 20
    with pytest.raises(ApiError, match="room for 64 tokens; the prompt takes 60 and 20 more"):
        fit_tokens(60, 20, 64, usual=256)
