"""Each method's reward against its formula, computed by hand."""

from dataclasses import replace

import numpy as np
import pytest

from crt.algorithm.baselines import (
    ACPO,
    ADLP,
    ALP,
    DLER,
    DOT,
    AroraZanette,
    DapoOverlong,
    InternS2,
    Kimi,
    L1Exact,
    L1Max,
    Laconic,
    Laser,
    O1Pruner,
    PrimeRL,
    ShorterBetter,
    ShortRL,
    ThinkPrune,
)
from crt.algorithm.batch import Batch

REFERENCE = Batch(("p",), correct=[[1, 1, 0, 0]], length=[[100, 200, 300, 200]])  # 0.5, 200 tokens


def batch(correct, length, budget=()) -> Batch:
    return Batch(("p",), correct=[correct], length=[length], budget=np.array(budget))


def rewards(objective, correct, length, budget=(), reference=REFERENCE):
    return objective.step(batch(correct, length, budget), reference)[0].reward[0]


def test_thinkprune_pays_for_correct_within_the_limit_alone():
    # at the limit is within; a wrong one earns nothing however short
    assert rewards(ThinkPrune(limits=(100,)), [1, 1, 1, 0], [99, 100, 101, 5]).tolist() == [
        1, 1, 0, 0,
    ]  # fmt: skip


def test_thinkprune_lowers_the_limit_round_by_round():
    objective, seen = ThinkPrune(limits=(100, 80, 60), steps_per_round=2), []
    for _ in range(7):
        decision, objective = objective.step(batch([1, 1, 1, 1], [90, 70, 50, 101]), REFERENCE)
        seen.append(int(decision.reward.sum()))
    # limit 100: three of four are within, 80: two, 60: one, and so to the end
    assert seen == [3, 3, 2, 2, 1, 1, 1]
    assert objective.steps_taken == 7
    stated = [ThinkPrune(limits=(100, 80), steps_per_round=2).budget(0, n, "p") for n in range(5)]
    assert stated == [100, 100, 80, 80, 80]


def test_l1_exact_pays_for_keeping_to_the_budget_from_either_side():
    # α = 0.01, n = 100: 1 − 0.2, 1 − 0.2, 1, and the wrong one 0 − 0.5
    values = rewards(L1Exact(penalty=0.01), [1, 1, 1, 0], [80, 120, 100, 50], [100])
    assert values == pytest.approx([0.8, 0.8, 1.0, -0.5])


def test_l1_max_pays_for_staying_below_the_budget():
    # α = 0.01, δ = 0.5, n = 100: 0.5 + 0.3, 0.5, clipped at 1 and at 0; a wrong one earns nothing
    objective = L1Max(penalty=0.01, offset=0.5)
    assert rewards(objective, [1, 1, 1, 1], [70, 100, 10, 200], [100]) == pytest.approx(
        [0.8, 0.5, 1.0, 0.0]
    )
    assert rewards(objective, [0, 0, 1, 1], [10, 70, 100, 100], [100])[:2].tolist() == [0, 0]


def test_l1_without_a_stated_budget_is_refused():
    with pytest.raises(ValueError, match="this batch has none"):
        rewards(L1Exact(), [1, 1, 0, 0], [1, 2, 3, 4])


def test_l1_draws_the_same_budget_again_and_another_for_another_step_problem_or_seed():
    objective = L1Exact(low=10, high=130)
    assert objective.budget(1, 5, "p") == objective.budget(1, 5, "p")
    drawn = [objective.budget(1, step, "p") for step in range(2000)]
    assert (min(drawn), max(drawn)) == (10, 130)
    # uniform on 121 numbers: mean 70, spread 34.9, so 2000 draws have a standard error of 0.78
    assert np.mean(drawn) == pytest.approx(70, abs=4 * 0.78)
    assert len({objective.budget(seed, 5, name) for seed in range(9) for name in "ab"}) > 10


def test_o1_pruner_weighs_shorter_and_better_than_the_reference():
    # L̄_ref = 200, Ā_ref = 0.5, λ = 2
    # 100 tokens, right: 200/100 − 1 + 2·0.5 = 2; 200, right: 0 + 1; 400, wrong: −0.5 − 1
    values = rewards(O1Pruner(accuracy_weight=2.0), [1, 1, 0, 1], [100, 200, 400, 20])
    assert values[:3] == pytest.approx([2.0, 1.0, -1.5])
    assert values[3] == 4.0  # 200/20 − 1 + 1 = 10, clipped
    # 2000 tokens, wrong, λ = 4: 0.1 − 1 − 2 = −2.9, clipped
    assert rewards(O1Pruner(accuracy_weight=4.0), [0, 1, 1, 1], [2000, 1, 1, 1])[0] == -2.0


def test_shorter_better_draws_to_the_shortest_correct_response():
    # L* = 100: 2 − 0, 2 − 0.001·50, wrong ones −0.001·40 and −0.001·200
    values = rewards(ShorterBetter(), [1, 1, 0, 0], [100, 150, 60, 300])
    assert values == pytest.approx([2.0, 1.95, -0.04, -0.2])


def test_shorter_better_without_a_correct_response_draws_to_the_mean():
    # L* = (100 + 150 + 50 + 300)/4 = 150
    values = rewards(ShorterBetter(), [0, 0, 0, 0], [100, 150, 50, 300])
    assert values == pytest.approx([-0.05, 0.0, -0.1, -0.15])


def test_acpo_gives_hard_problems_a_larger_budget():
    # p = 0.5, L̄_correct = 100, longest 300: L_b = 0.5·100 + 0.5·300 = 200
    # right: 80 tokens, u = −0.6, 1 + 0.8; 120, u = −0.4, 1 + 0.7
    # wrong: 100, u = −0.5, 0.9·(−0.5) − 0.1 = −0.55; 300, u = 0.5, min(0.35, −0.1) = −0.1
    values = rewards(ACPO(), [1, 1, 0, 0], [80, 120, 100, 300])
    assert values == pytest.approx([1.8, 1.7, -0.55, -0.1])
    # with L_max = 700 it is L_b = 400 and u = −0.8 for the first: 1 + 0.9
    assert rewards(ACPO(longest=700), [1, 1, 0, 0], [80, 120, 100, 300])[0] == pytest.approx(1.9)


def test_acpo_never_pays_a_correct_response_less_than_a_tenth():
    # p = 1: L_b = the mean, 100; 280 tokens have u = 1.8 and max(0.5 − 0.9, 0.1) = 0.1
    assert rewards(ACPO(), [1, 1, 1, 1], [40, 40, 40, 280])[3] == pytest.approx(1.1)


def test_kimi_ranks_all_responses_and_spares_short_wrong_ones():
    # shortest 100, longest 300: λ = 0.5, 0, −0.5, 0.5; wrong: min(0, λ)
    values = rewards(Kimi(), [1, 0, 0, 0], [100, 200, 300, 100])
    assert values == pytest.approx([1.5, 0.0, -0.5, 0.0])
    assert rewards(Kimi(), [1, 0, 1, 0], [7, 7, 7, 7]).tolist() == [1, 0, 1, 0]


def test_arora_zanette_compares_correct_responses_among_themselves():
    # correct: 100 and 200, mean 150, spread 50: z = −1 and 1; σ(−1) = 0.2689, σ(1) = 0.7311
    values = rewards(AroraZanette(penalty=0.4), [1, 1, 0, 0], [100, 200, 10, 900])
    assert values == pytest.approx([1 - 0.4 * 0.26894, 1 - 0.4 * 0.73106, 0, 0], abs=1e-4)
    # a single correct response has z = 0
    assert rewards(AroraZanette(penalty=0.4), [1, 0, 0, 0], [9, 1, 2, 3])[0] == pytest.approx(0.8)


def test_dapo_punishes_within_the_buffer_alone():
    # free to 200 − 50 = 150, at 175 half of the penalty, at 200 all of it, right or wrong
    objective = DapoOverlong(limit=200, buffer=50, penalty=1.0)
    assert rewards(objective, [1, 1, 1, 0], [150, 175, 200, 400]) == pytest.approx(
        [1.0, 0.5, 0.0, -1.0]
    )


def test_dapo_weighs_its_punishment_as_its_paper_does():
    # its paper: ±1 and a punishment of 1 at the cap, so 1, 0 and −1; ours is (r + 1)/2
    theirs = np.array([1.0, 1.0 - 1.0, -1.0, -1.0 - 1.0])
    ours = rewards(DapoOverlong(limit=200, buffer=50), [1, 1, 0, 0], [100, 200, 100, 200])
    assert ours == pytest.approx((theirs + 1) / 2)


def test_laser_adds_a_bonus_within_the_target():
    values = rewards(Laser(target=100, bonus=0.5), [1, 1, 0, 0], [100, 101, 50, 500])
    assert values.tolist() == [1.5, 1, 0, 0]


def test_laser_weighs_its_bonus_as_its_paper_does():
    # its paper: 1 for correct, −0.5 for wrong and a bonus of 0.5; ours is (r + 0.5)/1.5
    theirs = np.array([1.0 + 0.5, 1.0, -0.5, -0.5])
    ours = rewards(Laser(target=100), [1, 1, 0, 0], [100, 101, 50, 500])
    assert ours == pytest.approx((theirs + 0.5) / 1.5)


def test_short_rl_rewards_length_while_accuracy_is_near_its_best():
    objective = ShortRL(weight=1.0, accuracy_tolerance=0.05, length_tolerance=10)
    # correct ones 100, 105 and 300: within 10 of the shortest 0.5, the longest 0.5 − 1
    decision, objective = objective.step(batch([1, 1, 1, 0], [100, 105, 300, 50]), REFERENCE)
    assert decision.reward[0] == pytest.approx([1.5, 1.5, 0.5, 0.0])
    assert objective.best_accuracy == 0.75
    # 0.5 is below 0.75 − 0.05: correctness alone, and the bar stays
    decision, objective = objective.step(batch([1, 1, 0, 0], [100, 300, 50, 60]), REFERENCE)
    assert (decision.goal, decision.rectified) == ("accuracy", 1.0)
    assert decision.margin == pytest.approx(-0.2)
    assert decision.reward[0].tolist() == [1, 1, 0, 0]
    assert objective.best_accuracy == 0.75


def test_short_rl_at_exactly_the_bar_rewards_length():
    objective = replace(ShortRL(accuracy_tolerance=0.25), best_accuracy=0.75)
    decision, _ = objective.step(batch([1, 1, 0, 0], [100, 300, 50, 60]), REFERENCE)
    assert decision.goal == "mixed"


def test_short_rl_has_no_length_score_where_nothing_is_correct():
    assert rewards(ShortRL(), [0, 0, 0, 0], [1, 2, 3, 4]).tolist() == [0, 0, 0, 0]


def test_a_dlp_raises_the_price_of_a_token_while_accuracy_is_above_the_reference():
    objective = ADLP(price=0.01, price_rate=0.1)
    decision, after = objective.step(batch([1, 1, 1, 0], [10, 20, 30, 40]), REFERENCE)
    assert decision.reward[0] == pytest.approx([0.9, 0.8, 0.7, -0.4])
    assert decision.multiplier == 0.01
    # 0.75 against 0.5: λ = 0.01 + 0.1·0.25
    assert after.price == pytest.approx(0.035)
    _, after = after.step(batch([0, 0, 0, 0], [10, 20, 30, 40]), REFERENCE)
    assert after.price == 0.0  # 0.035 − 0.05, not below 0


def test_dot_counts_an_outlier_of_a_solved_problem_as_wrong():
    # eleven of 100 tokens and one of 1300: mean 200, sample deviation 346.4, T = ⌊1239.2⌋
    lengths = [100] * 11 + [1300]
    assert rewards(DOT(), [1] * 12, lengths).tolist() == [1] * 11 + [0]
    # 61 tokens beyond T: a margin of 62 lets it pass
    assert rewards(DOT(margin=62), [1] * 12, lengths).all()
    # one wrong response, and nothing is cut
    assert rewards(DOT(), [0] + [1] * 11, lengths).tolist() == [0] + [1] * 11


def test_dot_cannot_fire_in_groups_below_eleven():
    # (G − 1)/√G is 2.85 for 10 and 3.015 for 11
    ten, eleven = [1] * 9 + [100_000], [1] * 10 + [100_000]
    assert rewards(DOT(), [1] * 10, ten).all()
    assert not rewards(DOT(), [1] * 11, eleven).all()


def test_dler_pays_for_correct_within_the_cap_alone():
    assert rewards(DLER(limit=100), [1, 1, 1, 0], [5, 100, 101, 5]).tolist() == [1, 1, 0, 0]


def test_laconic_prices_tokens_beyond_the_budget_up_to_a_limit():
    objective = Laconic(target=100, price=0.1)
    # 300 tokens: 0.1 · 2; 900: 0.1 · 8 is cut to 0.4; wrong pays too
    values = rewards(objective, [1, 1, 1, 0], [50, 300, 900, 300])
    assert values == pytest.approx([1.0, 0.8, 0.6, -0.2])


def test_laconic_punishes_truncation_and_moves_its_price():
    batch = Batch(("p",), [[1, 0]], [[100, 300]], truncated=[[0, 1]])
    decision, after = Laconic(target=100).step(batch, REFERENCE)
    assert decision.reward[0] == pytest.approx([1.0, -0.1])
    assert after.price == pytest.approx(0.002)  # mean 200: 0.002 · (2 − 1)
    assert Laconic(target=1, price=0.1).step(batch, REFERENCE)[1].price == 0.1  # its limit


def test_intern_s2_shares_out_the_advantage_of_correct_responses():
    # p = 3/4; w = 1, 0.75, 0.5 for 100, 200, 300 tokens; mean 0.75: 4/3, 1, 2/3 of 1 − p
    values = rewards(InternS2(), [1, 1, 1, 0], [100, 200, 300, 50])
    assert values - values.mean() == pytest.approx([0.25 * 4 / 3, 0.25, 0.25 * 2 / 3, -0.75])
    # a quarter is below τ = 0.5: plain correctness
    assert rewards(InternS2(), [1, 0, 0, 0], [9, 9, 9, 9]) - 0.25 == pytest.approx(
        [0.75, -0.25, -0.25, -0.25]
    )


def test_prime_rl_prices_tokens_by_the_pass_rate():
    # p = 0.5, longest 400: 0.25 · 0.5 · L/400
    values = rewards(PrimeRL(), [1, 1, 0, 0], [100, 200, 100, 400])
    assert values == pytest.approx([0.96875, 0.9375, -0.03125, -0.125])
    assert not rewards(PrimeRL(), [0, 0, 0, 0], [1, 2, 3, 4]).any()


def test_alp_prices_tokens_by_the_pass_rate_and_never_lets_them_free():
    # p = 0.5: 100 tokens cost 1e-3 · 0.5 · 100 = 0.05
    objective = ALP(penalty=1e-3)
    values = rewards(objective, [1, 1, 0, 0], [100, 200, 100, 400])
    assert values == pytest.approx([0.95, 0.9, -0.05, -0.2])
    # p = 0 counts as 1/4
    assert rewards(objective, [0, 0, 0, 0], [100] * 4) == pytest.approx([-0.025] * 4)
