"""Work is counted, not timed: arithmetic of the sampler, and answers that need a worker."""

import torch
from grader import rollouts
from limits import attended, body, head, needed
from llamas import VOCABULARY, Shape, llama
from made_up_answers import records
from torch.utils.flop_counter import FlopCounterMode

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
    # 4·32·32 + 3·32·48 weights in each of 2 layers, twice that many operations
    assert body(SMALL) == 2 * 2 * (4 * 1024 + 3 * 1536)
    assert head(SMALL) == 2 * 32 * VOCABULARY
    # tokens 1, 2, 3 after none see 1 + 2 + 3 positions; two products of 32 each, two layers
    assert attended(SMALL, 0, 3) == 4 * 2 * 32 * 6
    # one prompt of 2 tokens, one rollout of 3: the third is said, not read
    expected = 4 * body(SMALL) + 3 * head(SMALL) + attended(SMALL, 0, 2) + attended(SMALL, 2, 2)
    assert needed(SMALL, [2], [[3]]) == expected


def test_torch_counts_the_same_operations_in_one_pass():
    ids = torch.tensor([[1, 2, 3, 4, 5, 6]])
    counted, _ = linear_work(lambda: llama(SMALL)(input_ids=ids))
    assert counted == 6 * (body(SMALL) + head(SMALL))


def test_a_prompt_is_read_once_and_a_finished_rollout_is_not_computed():
    model = llama(SMALL)

    def run():
        generator = torch.Generator().manual_seed(0)
        return sample(model, PROMPTS, 8, SMALL.cap, SMALL.ends, generator=generator)

    counted, groups = linear_work(run)
    lengths = [len(one.tokens) for group in groups for one in group]
    read = sum(lengths) - len(lengths)
    allowed = (10 + read) * body(SMALL) + (2 + read) * head(SMALL)
    assert len(set(lengths)) > 4  # they left at different times
    assert 0 < counted <= 1.01 * allowed


def test_generate_computes_what_ours_does_not():
    model = llama(SMALL)
    ids = torch.tensor(PROMPTS)
    counted, said = linear_work(
        lambda: model.generate(
            ids, do_sample=True, top_k=0, max_new_tokens=SMALL.cap, num_return_sequences=8,
            eos_token_id=SMALL.ends, pad_token_id=0,
        )
    )  # fmt: skip
    # every row reads the prompt, and all go on until the last one has ended
    steps = said.shape[1] - ids.shape[1]
    assert counted == 16 * ((5 + steps - 1) * body(SMALL) + steps * head(SMALL))


def test_few_rollout_like_answers_need_a_worker():
    data = rollouts({"made up": records(300)}, count=1600, group=16)
    tasks = [prepare(item) for item, _ in data]
    with Grader(workers=1) as grader:
        undecided = {t for t in tasks if isinstance(t, Task) and grader.grade_fast(t) is None}
        grades = grader.grade_many([item for item, _ in data])
    assert len(undecided) < 0.05 * len(data)
    right = [grade.verdict is Verdict.CORRECT for grade in grades]
    assert right == [expected for _, expected in data]
