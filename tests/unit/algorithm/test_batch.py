import numpy as np
import pytest

from crt.algorithm.batch import Batch, batch_of
from crt.errors import DataError
from crt.types import Rollout, Verdict


def rollout(problem_id: str, verdict: Verdict, stop="eos", length: int = 10) -> Rollout:
    return Rollout(problem_id, "text", length, stop, verdict)


def test_accuracy_and_length_are_means_over_all_rollouts():
    batch = Batch(("a", "b"), [[1, 0], [1, 1]], [[10, 20], [30, 40]])
    assert batch.accuracy == 0.75
    assert batch.accuracy_by_problem.tolist() == [0.5, 1.0]
    assert batch.mean_length == 25


def test_select_takes_problems_in_the_order_asked():
    batch = Batch(("a", "b", "c"), [[0], [1], [0]], [[1], [2], [3]])
    chosen = batch.select(["c", "b"])
    assert chosen.problem_ids == ("c", "b")
    assert chosen.length.tolist() == [[3], [2]]


def test_select_names_a_problem_without_reference():
    batch = Batch(("a",), [[1]], [[5]])
    with pytest.raises(DataError, match=r"1 of 2 problems have no reference rollouts.*'z'"):
        batch.select(["a", "z"])


@pytest.mark.parametrize(
    ("correct", "length"),
    [
        ([[1, np.nan]], [[1, 2]]),  # NaN is neither right nor wrong
        ([[1, 0.5]], [[1, 2]]),
        ([[1, 0]], [[1, np.nan]]),
        ([[1, 0]], [[1, np.inf]]),
        ([[1, 0]], [[1, -2]]),
        ([[1, 0]], [[1, 2, 3]]),
        ([1, 0], [1, 2]),
        ([[]], [[]]),
    ],
)
def test_what_is_not_a_batch_is_refused(correct, length):
    with pytest.raises(ValueError):
        Batch(("a",), correct, length)


def test_ids_are_unique():
    with pytest.raises(ValueError, match="each once"):
        Batch(("a", "a"), [[1], [1]], [[1], [1]])


def test_a_batch_cannot_be_changed():
    batch = Batch(("a",), [[1]], [[5]])
    with pytest.raises(ValueError):
        batch.length[0, 0] = 6


def test_a_batch_does_not_share_memory_with_its_caller():
    length = np.array([[5.0]])
    batch = Batch(("a",), [[1]], length)
    length[0, 0] = 6
    assert batch.length[0, 0] == 5


def test_a_problem_that_could_not_be_graded_is_left_out_not_wrong():
    batch, left_out = batch_of(
        [
            rollout("a", Verdict.CORRECT),
            rollout("a", Verdict.NO_ANSWER),
            rollout("b", Verdict.CORRECT),
            rollout("b", Verdict.UNGRADED),
        ]
    )
    assert batch is not None
    assert batch.problem_ids == ("a",)
    assert batch.correct.tolist() == [[True, False]]
    assert left_out == ("b",)


def test_nothing_graded_gives_no_batch():
    assert batch_of([rollout("a", Verdict.UNGRADED)]) == (None, ("a",))


def test_truncated_is_wrong_unless_it_is_to_be_graded():
    cut = [rollout("a", Verdict.CORRECT, stop="length"), rollout("a", Verdict.CORRECT)]
    expected = {
        "wrong": ([[False, True]], [[False, False]]),
        "grade": ([[True, True]], [[False, False]]),
        "mask": ([[False, True]], [[True, False]]),  # counted as wrong, out of the gradient
    }
    for policy, (correct, muted) in expected.items():
        batch, _ = batch_of(cut, policy)
        assert batch is not None
        assert (batch.correct.tolist(), batch.muted.tolist()) == (correct, muted)
        assert batch.truncated.tolist() == [[True, False]]


def test_a_truncated_response_needs_no_grader():
    # it is wrong whatever the grader would say, so an ungraded one leaves nothing open
    batch, left_out = batch_of([rollout("a", Verdict.UNGRADED, stop="length")])
    assert batch is not None and not batch.correct.any() and left_out == ()
    assert batch_of([rollout("a", Verdict.UNGRADED, stop="length")], "grade") == (None, ("a",))


def test_groups_must_be_of_one_size():
    with pytest.raises(ValueError, match="as many rollouts"):
        batch_of([rollout("a", Verdict.WRONG), *[rollout("b", Verdict.WRONG)] * 2])


def test_a_budget_goes_with_its_problem():
    said = [
        Rollout(name, "", 5, "eos", Verdict.CORRECT, None, n) for name, n in (("a", 7), ("b", 9))
    ]
    batch, _ = batch_of(said)
    assert batch is not None
    assert batch.select(["b", "a"]).budget.tolist() == [9, 7]
    unasked, _ = batch_of([rollout("a", Verdict.CORRECT), rollout("b", Verdict.WRONG)])
    assert unasked is not None
    assert unasked.select(["b"]).budget.size == 0


@pytest.mark.parametrize("budget", [[5], [5, 0], [5, float("nan")], [[5, 5]]])
def test_a_budget_is_one_positive_number_a_problem(budget):
    with pytest.raises(ValueError, match="budget is tokens above 0"):
        Batch(("a", "b"), [[1, 0], [1, 1]], [[1, 2], [3, 4]], budget=np.array(budget))
