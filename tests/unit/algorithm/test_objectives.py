import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crt.algorithm.advantages import advantages
from crt.algorithm.batch import Batch
from crt.algorithm.objectives import (
    AccuracyOnly,
    Guarded,
    LengthOnly,
    PrimalDual,
    Refine,
    Shorten,
    state_of,
    with_state,
)

GROUP = 100
SWITCH = Shorten(rule="switch")


def with_accuracy(share: float, problems: int = 1) -> Batch:
    """`problems` problems of 100 rollouts, `share` of them right, lengths 1 to 100."""
    right = np.arange(GROUP) < round(share * GROUP)
    names = tuple(f"p{i}" for i in range(problems))
    return Batch(names, np.tile(right, (problems, 1)), np.tile(np.arange(1, 101), (problems, 1)))


def of_length(*tokens: int, correct=None) -> Batch:
    return Batch(("p",), [correct or [1] * len(tokens)], [tokens])


def test_stage_one_shortens_above_the_floor_and_rectifies_below():
    # reference 0.80, tolerance 0.05, slack 0.05: the floor is 0.70
    stage = Shorten(tolerance=0.05, slack=0.05, rule="switch")
    reference = with_accuracy(0.80)
    goal = {a: stage.step(with_accuracy(a), reference)[0].goal for a in (0.69, 0.70, 0.71)}
    # exactly at the floor it shortens: Alg. 1 tests "<"
    assert goal == {0.69: "accuracy", 0.70: "length", 0.71: "length"}


@pytest.mark.parametrize("reference", [0.1 * k for k in range(2, 11)])
def test_exactly_at_the_floor_floats_do_not_decide(reference):
    # 0.80 - 0.10 is above 0.70 by 1e-16
    decision, _ = Shorten(slack=0.1, rule="switch").step(
        with_accuracy(reference - 0.1), with_accuracy(reference)
    )
    assert decision.goal == "length"
    assert decision.margin == pytest.approx(0.0, abs=1e-12)


def test_stage_one_rewards():
    batch = Batch(("p",), [[1, 0]], [[30, 10]])
    better = Batch(("p",), [[1, 1]], [[30, 10]])
    rectify, _ = Shorten(slack=0.0, rule="switch").step(batch, better)
    shorten, _ = Shorten(slack=0.0, rule="switch").step(batch, batch)
    assert rectify.reward.tolist() == [[1.0, 0.0]]  # the indicator
    assert shorten.reward[0, 0] < shorten.reward[0, 1]  # −ℓ_norm
    assert (rectify.rectified, shorten.rectified) == (1.0, 0.0)
    assert rectify.margin == pytest.approx(-0.5)


def test_none_correct_and_all_correct():
    # a reference that solves nothing sets no floor; one that solves all sets the highest
    assert SWITCH.step(with_accuracy(0.0), with_accuracy(0.0))[0].goal == "length"
    assert SWITCH.step(with_accuracy(1.0), with_accuracy(1.0))[0].goal == "length"
    assert SWITCH.step(with_accuracy(0.0), with_accuracy(1.0))[0].goal == "accuracy"


def test_all_truncated_gives_a_length_step_without_a_gradient():
    capped = Batch(("p",), [[0, 0, 0]], [[64, 64, 64]], truncated=[[1, 1, 1]])
    decision, _ = SWITCH.step(capped, capped)
    assert decision.goal == "length"
    assert not advantages(decision).any()


MIXED = Batch(("p", "q"), [[1, 1], [1, 0]], [[30, 10], [10, 30]])  # p is solved, q is not
ALL_RIGHT = Batch(("p", "q"), [[1, 1], [1, 1]], [[30, 10], [10, 30]])


def test_what_is_solved_rests_in_an_accuracy_step():
    decision, _ = SWITCH.step(MIXED, ALL_RIGHT)
    assert decision.goal == "accuracy"
    assert advantages(decision)[0].tolist() == [0.0, 0.0]


def test_stage_two_of_the_paper_raises_accuracy_inside_the_length_it_got():
    # reference: mean 100, spread 10; its own mean ℓ_norm is 0.5
    reference = of_length(90, 110)
    inside, _ = Refine(rule="switch").step(of_length(90, 110, correct=[1, 0]), reference)
    assert inside.goal == "accuracy" and inside.rectified == 0.0
    assert inside.margin == pytest.approx(0.03)  # δ + η_L
    longer, _ = Refine(rule="switch").step(of_length(100, 120, correct=[1, 0]), reference)
    assert longer.goal == "length" and longer.rectified == 1.0
    # ℓ_norm 0.5 and σ(2) = 0.8808: mean 0.6904, allowed 0.53
    assert longer.margin == pytest.approx(0.53 - 0.6904, abs=1e-4)


def test_stage_two_measures_with_frozen_statistics():
    # twice as long, with the same relative spread: statistics of its own would see no change
    decision, _ = Refine(rule="switch").step(of_length(180, 220), of_length(90, 110))
    assert decision.goal == "length"


def test_stage_two_is_stage_one_the_other_way_round():
    # reference: mean 100, spread 10, on two problems; δ = 0.02
    reference = of_length(90, 110)
    decision, after = Refine(rate=0.5).step(of_length(90, 110, correct=[1, 0]), reference)
    # μ starts at 0, so the first step is for correctness alone
    assert decision.goal == "mixed" and decision.multiplier == 0.0
    assert decision.reward.tolist() == [[1.0, 0.0]]
    assert decision.margin == pytest.approx(0.02)
    assert after.multiplier == 0.0  # inside the length

    longer = of_length(100, 120, correct=[1, 0])
    decision, after = Refine(rate=0.5).step(longer, reference)
    # ℓ_norm σ(0) and σ(2): 0.6904 against 0.5 and δ
    assert decision.margin == pytest.approx(0.52 - 0.6904, abs=1e-4)
    excess = 0.6904 - 0.5
    error = after.variance**0.5
    assert after.multiplier == pytest.approx(0.5 * (excess - 0.02) / error, rel=1e-3)

    # μ = 0.4, mean length 110: correct 1 − 0.4 · 100/110, wrong −0.4
    priced, _ = replace(after, multiplier=0.4).step(longer, reference)
    assert priced.reward == pytest.approx(np.array([[1 - 40 / 110, -0.4]]))


def test_ten_percent_longer_moves_the_frozen_level_by_about_four_points():
    # lengths whose spread is 60 % of their mean, as reasoning models' are
    rng = np.random.default_rng(0)
    lengths = np.exp(0.55 * rng.standard_normal((64, 64)) + 7)
    names = tuple(map(str, range(64)))
    short = Batch(names, np.ones((64, 64)), lengths)
    long = Batch(names, np.ones((64, 64)), 1.1 * lengths)
    decision, _ = Refine(length_tolerance=0).step(long, short)
    assert -decision.margin == pytest.approx(0.04, abs=0.01)


def test_the_multiplier_rule_prices_length_and_correctness_in_one_reward():
    # mean length 100, λ = 1: correct 1 − 50/100 and 1 − 200/100, wrong −1 whatever its length
    batch = Batch(("p", "q"), [[1, 1], [0, 0]], [[50, 200], [10, 140]])
    decision, _ = Shorten().step(batch, batch)
    assert decision.goal == "mixed" and decision.multiplier == 1.0
    assert decision.reward == pytest.approx(np.array([[0.5, -1.0], [-1.0, -1.0]]))


def test_tokens_weigh_alike_on_every_problem():
    # spreads of 100 and 10 tokens: a scale for each problem would make them equal
    batch = Batch(("p", "q"), [[1, 1], [1, 1]], [[100, 200], [140, 160]])
    values = advantages(Shorten().step(batch, batch)[0])
    assert values[0, 0] == pytest.approx(5 * values[1, 0])


def test_the_multiplier_moves_by_the_gap_in_standard_errors():
    # differences 0.4 and 0: gap 0.2, deviation 0.2828, over sqrt(2) problems: error 0.2
    reference = Batch(("a", "b"), [[1] * 5, [1] * 5], np.ones((2, 5)))
    batch = Batch(("a", "b"), [[1, 1, 1, 0, 0], [1] * 5], np.ones((2, 5)))
    decision, after = Shorten(rate=0.5).step(batch, reference)
    assert decision.margin == pytest.approx(-0.2)
    assert after.multiplier == pytest.approx(1.0 + 0.5 * 0.2 / 0.2)
    assert after.variance == pytest.approx(0.04)
    # with a tolerance of 0.1 half of the gap is a violation
    _, tolerant = Shorten(tolerance=0.1, rate=0.5).step(batch, reference)
    assert tolerant.multiplier == pytest.approx(1.0 + 0.5 * 0.1 / 0.2)
    # better than the reference: λ falls, not below 0
    assert Shorten(rate=9.0).step(reference, batch)[1].multiplier == 0.0


def test_the_error_is_averaged_over_steps():
    # variances 0.04, then 0: 0.9 · 0.04 = 0.036
    reference = Batch(("a", "b"), [[1] * 5, [1] * 5], np.ones((2, 5)))
    batch = Batch(("a", "b"), [[1, 1, 1, 0, 0], [1] * 5], np.ones((2, 5)))
    after = Shorten().step(batch, reference)[1].step(reference, reference)[1]
    assert after.variance == pytest.approx(0.036)


def test_the_guard_adds_accuracy_to_another_methods_signal():
    batch = Batch(("p",), [[1, 0]], [[30, 10]])
    better = Batch(("p",), [[1, 1]], [[30, 10]])
    one, after = Guarded(LengthOnly(), rate=2.0).step(batch, better)
    # λ₀ = 0: the inner signal alone
    assert advantages(one) == pytest.approx(advantages(LengthOnly().step(batch, better)[0]))
    # gap 0.5, error sqrt(0.25/2) = 0.3536: λ = 2 · 1.4142; length [-1, 1], accuracy [1, -1]
    two, _ = after.step(batch, better)
    assert two.multiplier == pytest.approx(2.8284, abs=1e-4)
    assert advantages(two)[0] == pytest.approx([1.8284, -1.8284], abs=1e-4)


def test_a_guard_and_what_it_guards_both_remember():
    guarded = Guarded(PrimalDual(multiplier_rate=0.37))
    for share in (0.51, 0.47):
        _, guarded = guarded.step(with_accuracy(share), with_accuracy(0.83))
    assert guarded.inner.multiplier > 1.0
    saved = json.loads(json.dumps(state_of(guarded)))
    assert with_state(Guarded(PrimalDual(multiplier_rate=0.37)), saved) == guarded


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
    above = PrimalDual(multiplier=99.9).step(with_accuracy(0.1), with_accuracy(0.9))[1]
    assert (below.multiplier, above.multiplier) == (0.0, 100.0)


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
        lambda: Shorten(rate=-1.0),
        lambda: Guarded(tolerance=2.0),
        lambda: Refine(length_tolerance=-1),
        lambda: PrimalDual(multiplier=300.0),
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


OBJECTIVES = [
    Shorten(),
    SWITCH,
    Guarded(),
    LengthOnly(),
    Refine(),
    PrimalDual(),
    AccuracyOnly(),
]


@given(batches(), st.sampled_from([LengthOnly(), Shorten()]))
def test_longer_is_never_rewarded(batch, objective):
    values = advantages(objective.step(batch, batch)[0])
    for right, length, advantage in zip(batch.correct, batch.length, values, strict=True):
        for kind in (True, False):  # among the right ones, and among the wrong ones
            order = np.argsort(length[right == kind], kind="stable")
            assert (np.diff(advantage[right == kind][order]) <= 1e-9).all()


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
