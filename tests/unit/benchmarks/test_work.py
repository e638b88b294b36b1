"""Work is counted, not timed: arithmetic of the sampler, and answers that need a worker."""

import torch
from grader import rollouts
from limits import Machine, least_seconds, operations
from made_up_answers import records
from models import Shape, prompts_for, shape_of, write_llama
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoModelForCausalLM

from crt.grading.grader import Grader, Task, prepare
from crt.sampling.hf import sample
from crt.types import Verdict

SMALL = Shape(hidden=32, inner=48, layers=2, heads=2, cap=24)
PROMPTS = [[1, 2, 3, 4, 5], [6, 7, 8, 9, 10]]  # of one length: padding is not counted here


def linear_work(run) -> tuple[float, object]:
    """Operations in products with weights, and what was returned."""
    with FlopCounterMode(display=False) as counter:
        result = run()
    counts = counter.get_flop_counts()["Global"]
    return sum(n for op, n in counts.items() if str(op) in ("aten.mm", "aten.addmm")), result


def test_what_a_token_needs():
    # 4·32·32 + 3·32·48 weights in each of 2 layers; 32·512 in the head
    assert SMALL.layer_weights == 2 * (4 * 1024 + 3 * 1536)
    assert SMALL.head_weights == 32 * 512
    # a prompt of 2 tokens, a rollout of 3; a weight is a multiplication and an addition
    linear = 2 * (2 * SMALL.layer_weights + 3 * (SMALL.layer_weights + SMALL.head_weights))
    # prompt tokens see 1 + 2 positions, the rollout's 3 + 4 + 5; two products of 32, two layers
    attention = 4 * 2 * 32 * (1 + 2 + 3 + 4 + 5)
    assert operations(SMALL, [2], [[3]]) == linear + attention
    assert operations(SMALL, [2], [[3]], passes=4) == 4 * (linear + attention)


def test_keys_that_heads_share_are_computed_once():
    # queries and output 32·32, keys and values 32·16
    shared = Shape(hidden=32, inner=48, layers=2, heads=2, cap=24, kv_heads=1)
    assert shared.layer_weights == 2 * (2 * 1024 + 2 * 512 + 3 * 1536)


def test_the_least_time_is_arithmetic_or_reading_the_weights():
    needed = operations(SMALL, [2], [[3]])
    machine = Machine(operations=needed, bytes=1e9)
    assert least_seconds(machine, SMALL, [2], [[3]], weight_bytes=1e6) == 1.0
    # 3 tokens, 1 GB of weights for each at 1 GB/s
    assert least_seconds(machine, SMALL, [2], [[3]], weight_bytes=1e9) == 3.0


def test_torch_counts_the_same_operations_in_one_pass(tmp_path):
    folder = write_llama(SMALL, tmp_path)
    model = AutoModelForCausalLM.from_pretrained(folder)
    counted, _ = linear_work(lambda: model(input_ids=torch.tensor([[1, 2, 3, 4, 5, 6]])))
    assert counted == 2 * 6 * (SMALL.layer_weights + SMALL.head_weights)
    assert shape_of(folder, cap=24).layer_weights == SMALL.layer_weights


def test_a_prompt_is_read_once_and_a_finished_rollout_is_not_computed(tmp_path):
    model = AutoModelForCausalLM.from_pretrained(write_llama(SMALL, tmp_path))

    def run():
        generator = torch.Generator().manual_seed(0)
        stop_token_ids = SMALL.stop_token_ids
        return sample(model, PROMPTS, 8, SMALL.cap, stop_token_ids, generator=generator)

    counted, groups = linear_work(run)
    lengths = [len(one.tokens) for group in groups for one in group]
    read = sum(lengths) - len(lengths)
    body, head = 2 * SMALL.layer_weights, 2 * SMALL.head_weights
    assert len(set(lengths)) > 4  # they left at different times
    assert 0 < counted <= 1.01 * ((10 + read) * body + (2 + read) * head)


def test_prompts_are_a_third_of_an_answer_at_most():
    prompts = prompts_for(SMALL, 5)
    assert all(4 <= len(prompt) <= 8 for prompt in prompts)
    assert not {token for prompt in prompts for token in prompt} & set(SMALL.stop_token_ids)


def test_few_rollout_like_answers_need_a_worker():
    data = rollouts({"made up": records(300)}, count=1600, group=16)
    tasks = [prepare(item) for item, _ in data]
    with Grader(workers=1) as grader:
        undecided = {t for t in tasks if isinstance(t, Task) and grader.grade_fast(t) is None}
        grades = grader.grade_many([item for item, _ in data])
    assert len(undecided) < 0.05 * len(data)
    right = [grade.verdict is Verdict.CORRECT for grade in grades]
    assert right == [expected for _, expected in data]
