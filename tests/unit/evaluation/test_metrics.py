"""Figures of eight rollouts, each computed by hand."""

import numpy as np
import pytest

from crt.algorithm.metrics import zip_ratio
from crt.algorithm.statistics import bootstrap, pass_at_k
from crt.evaluation.metrics import (
    acc_bounds,
    all_metrics,
    compute_metrics,
    count_rollouts,
    counts_by_dataset,
    interval,
    powers_of_two,
    same,
    warnings,
)
from crt.types import Rollout, Verdict
from tests.support.counts import count_row

C, W, N, U = Verdict.CORRECT, Verdict.WRONG, Verdict.NO_ANSWER, Verdict.UNGRADED


def record(problem, index, verdict, length, stop, text="text", data="a"):
    return Rollout(problem, text, length, stop, verdict, dataset=data, index=index)


EIGHT = [
    record("p", 0, C, 10, "eos", "one"),
    record("p", 1, C, 20, "eos", "two two"),
    record("p", 2, W, 30, "eos", "three"),
    record("p", 3, N, 40, "length", ""),  # empty: no ratio
    record("q", 0, C, 5, "length", "four four four"),  # right, but ran into the cap
    record("q", 1, U, 5, "eos", "five"),
    record("q", 2, W, 5, "eos", "six six"),
    record("q", 3, C, 5, "eos", "seven"),
]


def values(records, truncated="wrong"):
    found = compute_metrics(list(counts_by_dataset(count_rollouts(records, truncated)).values()))
    return {name: value.value for name, value in found.values.items()}


def mean_ratio(*texts):
    return np.mean([zip_ratio(text) for text in texts])


def test_every_figure_of_eight_rollouts():
    found = values(EIGHT)
    # p: 2 of 4; q: of three graded one counts as correct, for the truncated one is wrong
    assert found["acc"] == pytest.approx(100 * (2 / 4 + 1 / 3) / 2)
    assert found["pass@1"] == found["acc"]
    # p: 1 − C(2,2)/C(4,2) = 5/6; q: 1 − C(2,2)/C(3,2) = 2/3
    assert found["pass@2"] == pytest.approx(100 * (5 / 6 + 2 / 3) / 2)
    # p: 1 of 4 cannot all be wrong; q has three graded rollouts only, so p alone counts
    assert found["pass@4"] == 100.0
    assert found["len"] == (25 + 5) / 2
    assert found["truncated"] == 25.0  # one of four in both
    assert found["no_answer"] == 12.5  # 1/4 and 0
    assert found["ungraded"] == 12.5  # 0 and 1/4
    # means over responses: seven have a ratio, three of them count as correct, three as wrong
    right, wrong = ("one", "two two", "seven"), ("three", "four four four", "six six")
    assert found["r_zip"] == pytest.approx(mean_ratio(*right, *wrong, "five"))
    assert found["r_zip_correct"] == pytest.approx(mean_ratio(*right))
    assert found["r_zip_wrong"] == pytest.approx(mean_ratio(*wrong))


def test_a_truncated_response_may_be_graded_as_it_stands():
    # q: 2 of 3 instead of 1 of 3
    assert values(EIGHT, "grade")["acc"] == pytest.approx(100 * (2 / 4 + 2 / 3) / 2)


def test_a_truncated_response_that_could_not_be_graded_is_wrong_not_ungraded():
    found = values([record("p", 0, U, 9, "length"), record("p", 1, C, 1, "eos")])
    assert (found["acc"], found["ungraded"]) == (50.0, 0.0)


def test_ungraded_responses_bound_the_accuracy():
    # if q's ungraded one were wrong: (2/4 + 1/4)/2; if it were right: (2/4 + 2/4)/2
    assert acc_bounds(list(counts_by_dataset(count_rollouts(EIGHT, "wrong")).values())) == (
        37.5,
        50.0,
    )


def test_an_interval_over_two_problems():
    # resampled, the mean of 50 and 33.3 is 33.3, 41.7 or 50 with chances 1/4, 1/2, 1/4
    acc = compute_metrics(list(counts_by_dataset(count_rollouts(EIGHT, "wrong")).values())).values[
        "acc"
    ]
    assert (acc.low, acc.high) == (pytest.approx(100 / 3), 50.0)
    assert acc.problems == 2


def test_what_is_unknown_is_absent_not_zero():
    rows = [record("p", 0, C, None, None), record("p", 1, W, 7, "eos")]
    found = values(rows)
    assert "len" not in found and "truncated" not in found
    assert found["acc"] == 50.0
    told = warnings(counts_by_dataset(count_rollouts(rows, "wrong")), None)
    assert any("Len is unknown" in each for each in told)


def test_macro_averages_give_every_set_the_same_weight():
    big = [record(f"g{i}", 0, C, 100, "eos", data="gsm8k") for i in range(9)]
    small = [record("m", 0, W, 300, "eos", data="math500")]
    own = [record("x", 0, C, 50, "eos", data="mine")]
    found = all_metrics(counts_by_dataset(count_rollouts(big + small + own, "wrong")))["averages"]
    assert found["in_domain"].values["acc"].value == 50.0  # not 90
    assert found["in_domain"].values["len"].value == 200.0
    assert found["in_domain"].values["acc"].problems == 10
    assert found["own"].sets == ("mine",)
    assert found["all"].values["acc"].value == pytest.approx((100 + 0 + 100) / 3)
    assert "out_domain" not in found


def test_the_interval_of_one_set_is_the_cores_bootstrap():
    rng = np.random.default_rng(1)
    shares = rng.random(40)
    ours = interval(same, [[(shares, np.ones(40))]])
    assert ours == pytest.approx(bootstrap(np.asarray, shares, seed=0))


def test_the_macro_interval_is_drawn_within_each_set():
    # all spread is between the sets: problems of a set are alike, so the average is certain
    found = interval(same, [[(np.zeros(5), np.ones(5))], [(np.ones(7), np.ones(7))]])
    assert (found.value, found.low, found.high, found.problems) == (0.5, 0.5, 0.5, 12)


def test_an_interval_some_resample_of_which_has_no_value_is_unknown():
    # half of the resamples of two problems miss the only one with a denominator... some do
    found = interval(same, [[(np.array([1.0, 0.0]), np.array([2.0, 0.0]))]])
    assert found.value == 0.5 and np.isnan(found.low) and np.isnan(found.high)


@pytest.mark.parametrize(
    ("correct", "rollouts", "k", "expected"),
    [
        (0, 4, 2, 0.0),
        (4, 4, 1, 1.0),
        (1, 4, 1, 0.25),
        (3, 4, 2, 1.0),  # two of four cannot both be the wrong one
        (1, 16, 8, 0.5),  # 1 − 8/16
    ],
)
def test_pass_at_k(correct, rollouts, k, expected):
    assert pass_at_k([correct], [rollouts], k) == pytest.approx([expected])


def test_pass_at_k_of_too_few_rollouts_is_unknown():
    assert np.isnan(pass_at_k([1], [3], 4)).all()
    with pytest.raises(ValueError, match="0 to n"):
        pass_at_k([5], [4], 1)


def test_powers():
    assert powers_of_two(16) == [1, 2, 4, 8, 16]
    assert powers_of_two(6) == [1, 2, 4]


def count(**changed):
    whole = {"rollouts": 100, "graded": 100, "correct": 50, "no_answer": 0, "tokens": 100}
    return counts_by_dataset([count_row("a", "p", **{**whole, "truncated": 0, **changed})])


def test_warnings_come_above_their_limits_and_not_at_them():
    assert warnings(count(truncated=5), 512) == []
    [cut] = warnings(count(truncated=6), 512)
    assert "6.0 %" in cut and "cap of 512" in cut and "counted as wrong" in cut
    assert warnings(count(graded=99), 512) == []
    [unread] = warnings(count(graded=98), 512)
    # 50 of 100 are correct, two are unknown
    assert "2.0 %" in unread and "between 50.0 and 52.0" in unread
    assert warnings(count(no_answer=20), 512) == []
    [silent] = warnings(count(no_answer=21), 512)
    assert "chat template" in silent
