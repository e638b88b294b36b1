import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crt.algorithm.advantages import advantages
from crt.algorithm.batch import Batch
from crt.algorithm.objectives import (
    AccuracyOnly,
    LengthOnly,
    PrimalDual,
    Refine,
    Shorten,
    state_of,
    with_state,
)

GROUP = 100


def with_accuracy(share: float, problems: int = 1) -> Batch:
    """`problems` problems of 100 rollouts, `share` of them right, lengths 1 to 100."""
    right = np.arange(GROUP) < round(share * GROUP)
    names = tuple(f"p{i}" for i in range(problems))
    return Batch(names, np.tile(right, (problems, 1)), np.tile(np.arange(1, 101), (problems, 1)))


def of_length(*tokens: int, correct=None) -> Batch:
    return Batch(("p",), [correct or [1] * len(tokens)], [tokens])


def test_stage_one_shortens_above_the_floor_and_rectifies_below():
    # reference 0.80, tolerance 0.05, slack 0.05: the floor is 0.70
    stage = Shorten(tolerance=0.05, slack=0.05)
    reference = with_accuracy(0.80)
    goal = {a: stage.step(with_accuracy(a), reference)[0].goal for a in (0.69, 0.70, 0.71)}
    # exactly at the floor it shortens: Alg. 1 tests "<"
    assert goal == {0.69: "accuracy", 0.70: "length", 0.71: "length"}


@pytest.mark.parametrize("reference", [0.1 * k for k in range(2, 11)])
def test_exactly_at_the_floor_floats_do_not_decide(reference):
    # 0.80 - 0.10 is above 0.70 by 1e-16
    decision, _ = Shorten(slack=0.1).step(with_accuracy(reference - 0.1), with_accuracy(reference))
    assert decision.goal == "length"
    assert decision.margin == pytest.approx(0.0, abs=1e-12)


def test_stage_one_rewards():
    batch = Batch(("p",), [[1, 0]], [[30, 10]])
    better = Batch(("p",), [[1, 1]], [[30, 10]])
    rectify, _ = Shorten(slack=0.0).step(batch, better)
    shorten, _ = Shorten(slack=0.0).step(batch, batch)
    assert rectify.reward.tolist() == [[1.0, 0.0]]  # the indicator
    assert shorten.reward[0, 0] < shorten.reward[0, 1]  # −ℓ_norm
    assert (rectify.rectified, shorten.rectified) == (1.0, 0.0)
    assert rectify.margin == pytest.approx(-0.5)


def test_none_correct_and_all_correct():
    # a reference that solves nothing sets no floor; one that solves all sets the highest
    assert Shorten().step(with_accuracy(0.0), with_accuracy(0.0))[0].goal == "length"
    assert Shorten().step(with_accuracy(1.0), with_accuracy(1.0))[0].goal == "length"
    assert Shorten().step(with_accuracy(0.0), with_accuracy(1.0))[0].goal == "accuracy"


def test_all_truncated_gives_a_length_step_without_a_gradient():
    capped = Batch(("p",), [[0, 0, 0]], [[64, 64, 64]], truncated=[[1, 1, 1]])
    decision, _ = Shorten().step(capped, capped)
    assert decision.goal == "length"
    assert not advantages(decision).any()


def test_automatic_slack_is_one_standard_error():
    # differences 0.4 and 0: sample deviation 0.2828, over sqrt(2) problems = 0.2, as is the gap
    reference = Batch(("a", "b"), [[1] * 5, [1] * 5], np.ones((2, 5)))
    batch = Batch(("a", "b"), [[1, 1, 1, 0, 0], [1] * 5], np.ones((2, 5)))
    decision, _ = Shorten(slack="auto").step(batch, reference)
    assert decision.slack == pytest.approx(0.2)
    assert decision.goal == "length"
    assert Shorten(slack=0.19).step(batch, reference)[0].goal == "accuracy"


def test_guard_per_problem_rectifies_where_the_problem_is_below_its_own_reference():
    reference = Batch(("easy", "hard"), [[1] * 4, [1, 1, 0, 0]], [[4, 3, 2, 1]] * 2)
    batch = Batch(("easy", "hard"), [[1] * 4, [1, 0, 0, 0]], [[4, 3, 2, 1]] * 2)
    decision, _ = Shorten(slack=0.2, guard="problem").step(batch, reference)
    assert decision.goal == "mixed"
    assert decision.rectified == 0.5
    assert decision.reward[0].tolist() == sorted(decision.reward[0])  # shorter is better
    assert decision.reward[1].tolist() == [1, 0, 0, 0]  # right is better


def test_guard_per_problem_takes_each_problems_own_standard_error():
    # 1 of 4 against 2 of 4: sqrt(0.1875/4 + 0.25/4) = 0.33 is above the gap of 0.25
    reference = Batch(("hard",), [[1, 1, 0, 0]], [[4, 3, 2, 1]])
    batch = Batch(("hard",), [[1, 0, 0, 0]], [[4, 3, 2, 1]])
    assert Shorten(slack="auto", guard="problem").step(batch, reference)[0].goal == "length"


MIXED = Batch(("p", "q"), [[1, 1], [1, 0]], [[30, 10], [10, 30]])  # p is solved, q is not
ALL_RIGHT = Batch(("p", "q"), [[1, 1], [1, 1]], [[30, 10], [10, 30]])


def test_what_is_solved_rests_in_an_accuracy_step():
    decision, _ = Shorten().step(MIXED, ALL_RIGHT)
    assert decision.goal == "accuracy"
    assert advantages(decision)[0].tolist() == [0.0, 0.0]


def test_or_goes_on_to_shorten_while_the_rest_is_repaired():
    decision, _ = Shorten(solved="shorten").step(MIXED, ALL_RIGHT)
    assert decision.goal == "accuracy"
    assert np.sign(advantages(decision)).tolist() == [[-1, 1], [1, -1]]


def test_stage_two_may_shorten_what_is_solved():
    rest, _ = Refine().step(MIXED, MIXED)
    shorten, _ = Refine(solved="shorten").step(MIXED, MIXED)
    assert rest.goal == shorten.goal == "accuracy"
    assert np.sign(advantages(rest)).tolist() == [[0, 0], [1, -1]]
    assert np.sign(advantages(shorten)).tolist() == [[-1, 1], [1, -1]]


def test_smoothing_remembers_the_gap():
    stage = Shorten(slack=0.0, smoothing=0.9)
    reference = with_accuracy(0.5)
    decision, stage = stage.step(with_accuracy(0.6), reference)  # gap −0.1
    assert decision.margin == pytest.approx(0.1)
    decision, stage = stage.step(with_accuracy(0.4), reference)  # 0.9·(−0.1) + 0.1·0.1 = −0.08
    assert decision.margin == pytest.approx(0.08)
    assert decision.goal == "length"  # one bad batch does not turn it
    assert stage.average_gap == pytest.approx(-0.08)
    assert stage.gap_noise == pytest.approx(0.81 + 0.01)  # 0.9² · 1 + 0.1²


def test_without_smoothing_there_is_no_memory():
    stage = Shorten()
    assert stage.step(with_accuracy(0.6), with_accuracy(0.5))[1] is stage


def test_an_average_is_surer_than_a_batch():
    # the slack of the averaged gap follows the average's own standard error
    stage = Shorten(slack="auto", smoothing=0.5)
    reference, batch = with_accuracy(0.5), with_accuracy(0.5)
    one, stage = stage.step(batch, reference)
    two, stage = stage.step(batch, reference)
    # variance 0.25 · 1 + 0.25 = 0.5 of one batch's
    assert two.slack == pytest.approx(one.slack * 0.5**0.5)


def test_stage_two_raises_accuracy_inside_the_length_it_got():
    # reference: mean 100, spread 10; its own mean ℓ_norm is 0.5
    reference = of_length(90, 110)
    inside, _ = Refine().step(of_length(90, 110, correct=[1, 0]), reference)
    assert inside.goal == "accuracy" and inside.rectified == 0.0
    assert inside.margin == pytest.approx(0.03)  # δ + η_L
    longer, _ = Refine().step(of_length(100, 120, correct=[1, 0]), reference)
    assert longer.goal == "length" and longer.rectified == 1.0
    # ℓ_norm 0.5 and σ(2) = 0.8808: mean 0.6904, allowed 0.53
    assert longer.margin == pytest.approx(0.53 - 0.6904, abs=1e-4)


def test_stage_two_measures_with_frozen_statistics():
    # twice as long, with the same relative spread: statistics of its own would see no change
    decision, _ = Refine().step(of_length(180, 220), of_length(90, 110))
    assert decision.goal == "length"


def test_ten_percent_longer_moves_the_frozen_level_by_about_four_points():
    # lengths whose spread is 60 % of their mean, as reasoning models' are
    rng = np.random.default_rng(0)
    lengths = np.exp(0.55 * rng.standard_normal((64, 64)) + 7)
    names = tuple(map(str, range(64)))
    short = Batch(names, np.ones((64, 64)), lengths)
    long = Batch(names, np.ones((64, 64)), 1.1 * lengths)
    decision, _ = Refine(length_tolerance=0, length_slack=0).step(long, short)
    assert -decision.margin == pytest.approx(0.04, abs=0.01)


def test_primal_dual_moves_its_multiplier_by_the_size_of_the_violation():
    # reference 0.8, tolerance 0.1: ĝ = 0.7 - 0.5 = 0.2, times η_λ = 2
    objective = PrimalDual(tolerance=0.1, multiplier=1.0, multiplier_rate=2.0)
    decision, after = objective.step(with_accuracy(0.5), with_accuracy(0.8))
    assert decision.margin == pytest.approx(-0.2)
    assert after.multiplier == pytest.approx(1.4)
    # a smaller violation moves it less, unlike with Adam
    assert objective.step(with_accuracy(0.69), with_accuracy(0.8))[1].multiplier == pytest.approx(
        1.02
    )


def test_the_multiplier_stays_within_zero_and_its_limit():
    below = PrimalDual(multiplier=0.1).step(with_accuracy(0.9), with_accuracy(0.5))[1]
    above = PrimalDual(multiplier=19.9).step(with_accuracy(0.1), with_accuracy(0.9))[1]
    assert (below.multiplier, above.multiplier) == (0.0, 20.0)


def test_primal_dual_adds_standardised_length_and_accuracy():
    batch = Batch(("p",), [[1, 0]], [[30, 10]])
    decision, _ = PrimalDual(multiplier=3.0).step(batch, batch)
    # length alone: [-1, 1]; accuracy alone: [1, -1]; together -1 + 3, 1 - 3
    assert advantages(decision)[0] == pytest.approx([2, -2], abs=1e-4)


def test_controls():
    batch = Batch(("p",), [[1, 0]], [[30, 10]])
    assert AccuracyOnly().step(batch, batch)[0].reward.tolist() == [[1, 0]]
    assert LengthOnly().step(batch, batch)[0].goal == "length"


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Shorten(tolerance=-0.1),
        lambda: Shorten(slack=float("nan")),
        lambda: Shorten(smoothing=1.0),
        lambda: Shorten(smoothing=0.5, guard="problem"),
        lambda: Refine(length_tolerance=-1),
        lambda: PrimalDual(multiplier=30.0),
    ],
)
def test_impossible_settings_are_refused(wrong):
    with pytest.raises(ValueError):
        wrong()


def test_state_is_json_and_restores_exactly():
    objective = PrimalDual(multiplier_rate=0.37)
    _, objective = objective.step(with_accuracy(0.51), with_accuracy(0.83))
    saved = json.loads(json.dumps(state_of(objective)))
    assert with_state(PrimalDual(multiplier_rate=0.37), saved) == objective


def test_state_of_a_smoothed_guard_restores_exactly():
    stage = Shorten(smoothing=0.9)
    for share in (0.51, 0.47, 0.33):
        _, stage = stage.step(with_accuracy(share), with_accuracy(0.5))
    assert with_state(Shorten(smoothing=0.9), json.loads(json.dumps(state_of(stage)))) == stage


def test_changed_settings_win_over_saved_ones():
    saved = state_of(PrimalDual(multiplier=4.0, multiplier_rate=1.0))
    restored = with_state(PrimalDual(multiplier_rate=0.1), saved)
    assert (restored.multiplier, restored.multiplier_rate) == (4.0, 0.1)


def test_another_methods_state_is_refused():
    with pytest.raises(ValueError, match="another method"):
        with_state(Shorten(), {"multiplier": 2.0})


@st.composite
def batches(draw, like: int | None = None):
    problems = draw(st.integers(1, 4))
    group = draw(st.integers(1, 6))
    cells = problems * group
    correct = draw(st.lists(st.booleans(), min_size=cells, max_size=cells))
    length = draw(st.lists(st.integers(1, 4096), min_size=cells, max_size=cells))
    shape = (problems, group)
    names = tuple(map(str, range(problems)))
    return Batch(names, np.reshape(correct, shape), np.reshape(length, shape))


NO_CREDIT = ["no_credit_for_wrong", "wrong_is_endless"]
LENGTH_STEPS = [LengthOnly(how) for how in ("all", "correct_only", *NO_CREDIT)]
OBJECTIVES = [
    Shorten(),
    Shorten(slack="auto", guard="problem"),
    Shorten(slack="auto", solved="shorten"),
    Refine(solved="shorten"),
    Shorten(length_on="correct_only"),
    Shorten(length_on="no_credit_for_wrong"),
    Shorten(length_on="wrong_is_endless"),
    Refine(),
    PrimalDual(),
    AccuracyOnly(),
    *LENGTH_STEPS,
]


@given(batches(), st.sampled_from(LENGTH_STEPS))
def test_longer_is_never_rewarded_on_a_length_step(batch, objective):
    values = advantages(objective.step(batch, batch)[0])
    for right, length, advantage in zip(batch.correct, batch.length, values, strict=True):
        for kind in (True, False):  # among the right ones, and among the wrong ones
            order = np.argsort(length[right == kind], kind="stable")
            assert (np.diff(advantage[right == kind][order]) <= 1e-9).all()


@given(batches(), st.sampled_from(NO_CREDIT))
def test_without_credit_a_wrong_answer_is_never_pushed_up(batch, length_on):
    values = advantages(LengthOnly(length_on).step(batch, batch)[0])
    assert (values[~batch.correct] <= 1e-9).all()


@given(batches(), st.sampled_from(OBJECTIVES))
def test_advantages_of_a_problem_sum_to_zero(batch, objective):
    values = advantages(objective.step(batch, batch)[0])
    assert values.sum(axis=1) == pytest.approx(np.zeros(len(values)), abs=1e-6)


@given(batches(), st.sampled_from(OBJECTIVES), st.randoms(use_true_random=False))
def test_shuffling_rollouts_shuffles_rewards(batch, objective, random):
    order = list(range(batch.correct.shape[1]))
    random.shuffle(order)
    shuffled = Batch(batch.problem_ids, batch.correct[:, order], batch.length[:, order])
    one = objective.step(batch, batch)[0]
    other = objective.step(shuffled, batch)[0]
    assert other.goal == one.goal
    assert other.reward == pytest.approx(one.reward[:, order])


@given(batches(), st.sampled_from(OBJECTIVES))
def test_a_decision_depends_on_nothing_but_its_arguments(batch, objective):
    one, other = objective.step(batch, batch)[0], objective.step(batch, batch)[0]
    assert (one.goal, one.margin) == (other.goal, other.margin)
    assert np.array_equal(one.reward, other.reward)
