"""Sampling in several processes draws what one process draws."""

import pytest

from crt.errors import EngineError
from crt.sampling import workers
from crt.sampling.base import InProcess, Sampling
from crt.sampling.models import load_model
from crt.sampling.workers import MultiProcess, is_small, processes_for_model, sampler_on_all_cores
from tests.support.tiny_model import tiny  # noqa: F401

PROMPTS = [[3, 4], [5], [3, 4], [6, 7, 8], [5, 5]]


@pytest.fixture(scope="module")
def model(tiny):  # noqa: F811
    return load_model(str(tiny / "model"))


@pytest.fixture(scope="module")
def two(model):
    return MultiProcess(model.files, Sampling(6), "auto", False, 2)


def test_two_processes_draw_what_one_draws(model, two):
    one = InProcess(model.model, model.files.eos_token_ids, Sampling(6))
    expected, drawn = one(PROMPTS, 3, 7), two(PROMPTS, 3, 7)
    for ours, theirs in zip(expected, drawn, strict=True):
        assert [sample.tokens for sample in ours] == [sample.tokens for sample in theirs]
        assert [sample.stop for sample in ours] == [sample.stop for sample in theirs]
    assert two.dtype == "float32" and two.batch_size(10) == one.batch_size(10)


def test_fewer_prompts_than_processes(two):
    assert [len(group) for group in two([[3]], 4, 0)] == [4]


def test_a_process_that_dies_is_one_sentence_and_another_takes_its_place(model, two):
    two.workers[1].kill()
    two.workers[1].wait()
    with pytest.raises(EngineError, match="a process that samples has ended"):
        two(PROMPTS, 1, 0)
    again = MultiProcess(model.files, Sampling(6), "auto", False, 2)
    assert len(again(PROMPTS, 1, 0)) == len(PROMPTS)


def test_the_number_goes_by_size_and_machine(tiny, model, monkeypatch):  # noqa: F811
    folder = str(tiny / "model")
    monkeypatch.setenv("CRT_PROCESSES", "3")
    monkeypatch.setattr(workers, "has_gpu", lambda: False)
    assert is_small("pocket") and is_small(folder) and processes_for_model(folder) == 3
    monkeypatch.setattr(workers, "SMALL_MODEL", 100)
    assert processes_for_model(folder) == 1  # large: a thread per core
    assert isinstance(sampler_on_all_cores(model.files, Sampling(6))[0], InProcess)
    monkeypatch.setattr(workers, "SMALL_MODEL", 10**9)
    monkeypatch.setenv("RANK", "0")
    assert processes_for_model(folder) == 1  # a launcher has shared the cores already
