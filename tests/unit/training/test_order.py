from crt.training.context import held_out
from crt.training.stage import problem_order
from crt.types import Problem

PROBLEMS = [Problem(str(i), "q", "a") for i in range(10)]


def ids(order):
    return [[problem.id for problem in step] for step in order]


def test_a_pass_uses_every_problem_once():
    order = ids(problem_order(PROBLEMS, per_step=5, steps=2, seed=0))
    assert sorted(order[0] + order[1]) == sorted(p.id for p in PROBLEMS)


def test_no_step_has_a_problem_twice():
    # 10 problems, 4 a step: two steps a pass, two problems wait for the next
    for step in ids(problem_order(PROBLEMS, per_step=4, steps=7, seed=0)):
        assert len(set(step)) == 4


def test_every_pass_is_shuffled_anew():
    order = ids(problem_order(PROBLEMS, per_step=10, steps=3, seed=0))
    assert len({tuple(step) for step in order}) == 3


def test_a_longer_run_begins_like_a_shorter_one():
    short = ids(problem_order(PROBLEMS, per_step=4, steps=3, seed=1))
    assert ids(problem_order(PROBLEMS, per_step=4, steps=9, seed=1))[:3] == short
    assert ids(problem_order(PROBLEMS, per_step=4, steps=3, seed=2)) != short


def test_held_out_problems_are_not_trained_on():
    train, validation = held_out(PROBLEMS, 3, seed=0)
    assert len(train) == 7 and len(validation) == 3
    assert not {p.id for p in train} & {p.id for p in validation}
