"""Lines of a contract: known answers, and what must be so for every batch."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crt.algorithm.advantages import advantages
from crt.algorithm.baselines import DOT, Kimi, O1Pruner
from crt.algorithm.batch import Batch, Measures, batch_of
from crt.algorithm.contract import (
    Contracted,
    Line,
    Standing,
    binding,
    metric_of,
    under_contract,
)
from crt.algorithm.objectives import Guarded, LengthOnly, Refine, Shorten, state_of, with_state
from crt.algorithm.statistics import pass_at_k
from crt.algorithm.step import decide, logged_metrics, signal
from crt.algorithm.two_stage import is_feasible
from crt.errors import DataError
from crt.types import Rollout, Verdict

KEPT = Line("accuracy", at_least="reference")
NAMES = ("a", "b")
EASY = {"easy": np.array([True, False]), "hard": np.array([False, True])}


def batch(correct, length=None, **more) -> Batch:
    correct = np.array(correct)
    length = np.full(correct.shape, 10.0) if length is None else np.array(length, dtype=float)
    return Batch(tuple("abcdefgh"[: len(correct)]), correct, length, **more)


# --- Metrics: one function each ------------------------------------------------------------------


def test_pass_at_k_credits_stand_out_where_the_others_fail():
    # n = 4, one right, k = 2: a wrong one has one of 3 others to rely on, and 1 of those 3 is right
    credits = metric_of("pass@2")(batch([[1, 0, 0, 0]]))
    assert credits == pytest.approx(np.array([[1, 1 / 3, 1 / 3, 1 / 3]]))
    # two right: the other one is right with 2 of 3
    assert metric_of("pass@2")(batch([[1, 1, 0, 0]]))[0, 2] == pytest.approx(2 / 3)
    # with k = 4 all others are drawn
    assert metric_of("pass@4")(batch([[1, 0, 0, 0]])).tolist() == [[1.0, 1.0, 1.0, 1.0]]
    assert metric_of("pass@1")(batch([[1, 0]])).tolist() == [[1.0, 0.0]]
    with pytest.raises(ValueError, match=r"pass@3 needs 3 rollouts of a problem; there are 2"):
        metric_of("pass@3")(batch([[1, 0]]))


@given(st.data())
@settings(deadline=None)
def test_the_mean_of_pass_at_k_credits_is_the_unbiased_estimate(data):
    rollouts = data.draw(st.integers(1, 9))
    k = data.draw(st.integers(1, rollouts))
    right = data.draw(st.lists(st.integers(0, rollouts), min_size=1, max_size=4))
    correct = np.arange(rollouts) < np.array(right)[:, None]
    found = metric_of(f"pass@{k}")(batch(correct)).mean(axis=1)
    assert found == pytest.approx(pass_at_k(right, [rollouts] * len(right), k))


# --- A line -------------------------------------------------------------------------------------


def test_a_relative_line_is_paired_and_an_absolute_one_is_not():
    # a: 1 instead of 1/2, b: 0 instead of 1: on average 1/4 below
    ours, theirs = batch([[1, 1], [0, 0]]), batch([[1, 0], [1, 1]])
    standing = KEPT.standing(ours, theirs)
    assert (standing.value, standing.bound, standing.margin) == (0.5, 0.75, -0.25)
    # differences −1/2 and 1: deviation 1.0607, over √2 problems
    assert standing.standard_error == pytest.approx(0.75)
    absolute = Line("accuracy", at_least=0.4, tolerance=0.05).standing(ours, theirs)
    assert absolute.margin == pytest.approx(0.5 - 0.4 + 0.05)
    assert absolute.standard_error == pytest.approx(0.5)  # of 1 and 0


def test_at_most_is_the_other_way_round():
    tokens = {"answer": np.array([[10.0, 30.0], [20.0, 20.0]])}
    ours = batch([[1, 1], [1, 1]], measured=tokens)
    theirs = batch([[1, 1], [1, 1]], measured={"answer": np.full((2, 2), 16.0)})
    line = Line("answer", at_most="1.25 * reference", tolerance=2.0)
    standing = line.standing(ours, theirs)
    # 20 tokens where 1.25 · 16 = 20 are allowed, and two more are tolerated
    assert (standing.value, standing.bound, standing.margin) == (20.0, 20.0, 2.0)
    # the slack of a switch is a share of the bound
    assert line.standing(ours, theirs, slack=0.1).margin == 4.0
    # its repair rewards few tokens, in units of the bound
    assert line.repair(ours, standing).reward.tolist() == [[-0.5, -1.5], [-1.0, -1.0]]


def test_a_line_of_one_data_set_sees_its_problems_alone():
    ours, theirs = batch([[1, 1], [0, 0]], within=EASY), batch([[1, 1], [1, 1]], within=EASY)
    assert replace(KEPT, data="easy").standing(ours, theirs).margin == 0.0
    hard = replace(KEPT, data="hard")
    standing = hard.standing(ours, theirs)
    assert standing.margin == -1.0
    assert hard.repair(ours, standing).among.tolist() == [[False, False], [True, True]]


def test_a_data_set_that_is_not_in_the_batch_is_unknown_not_broken():
    none = {"absent": np.array([False, False])}
    ours = batch([[1, 0], [1, 0]], within=none)
    lines = (replace(KEPT, data="absent", multiplier=5.0), KEPT)
    decision, after = Contracted(Shorten(), lines).step(ours, ours)
    assert list(decision.lines) == [KEPT.name] and decision.line == KEPT.name
    assert after.lines[0] == lines[0]  # its debt neither grows nor shrinks


def test_what_was_not_measured_is_said():
    ours = batch([[1, 0]])
    assert metric_of("tokens")(ours).tolist() == [[10.0, 10.0]]  # the cost of the paper
    for line in (Line("answer", at_most=5.0), replace(KEPT, data="gsm8k")):
        with pytest.raises(DataError, match=r"(answer|gsm8k), which was not measured: give the"):
            line.standing(ours, ours)


@pytest.mark.parametrize(
    ("bound", "parts"),
    [
        (0.5, (0.0, 0.5)),
        ("reference", (1.0, 0.0)),
        ("1.1 * reference", (1.1, 0.0)),
        (".9×reference", (0.9, 0.0)),
    ],
)
def test_bounds(bound, parts):
    assert Line("accuracy", at_least=bound).bound == parts


def test_names_say_it_all():
    assert KEPT.name == "accuracy at least reference"
    line = Line("answer", at_most=50, data="gsm8k")
    assert line.name == "answer of gsm8k at most 50"


# --- The step: the line most in debt is repaired -------------------------------------------------


def test_with_a_multiplier_the_line_with_most_debt_is_weighed_in():
    # mean length 100: costs 0.5 and 1.5 mean responses, wrong ones cost 1
    ours = batch([[1, 1], [0, 0]], [[50, 150], [100, 100]], within=EASY)
    easy, hard = (replace(KEPT, data=name) for name in EASY)
    lines = (replace(easy, multiplier=1.0), replace(hard, multiplier=3.0))
    decision, _ = Contracted(Shorten(), lines).step(ours, ours)
    assert decision.line == hard.name and decision.multiplier == 3.0
    # the easy problem's reward is its cost alone; on the hard one nobody is right yet
    assert decision.reward == pytest.approx(np.array([[-0.5, -1.5], [-1.0, -1.0]]))
    swapped = Contracted(Shorten(), (replace(easy, multiplier=4.0), lines[1]))
    assert swapped.step(ours, ours)[0].reward[0] == pytest.approx([3.5, 2.5])


def test_with_a_switch_the_line_broken_by_most_noise_is_repaired_alone():
    accuracy, tokens = KEPT, Line("tokens", at_most=100.0)
    measured = {"tokens": np.array([[150.0, 150.0], [170.0, 130.0]])}
    ours = batch([[1, 0], [1, 0]], measured["tokens"], measured=measured)
    theirs = batch([[1, 1], [1, 0]], measured["tokens"], measured=measured)
    objective = Contracted(Shorten(rule="switch"), (accuracy, tokens), slack=0.0)
    decision, _ = objective.step(ours, theirs)
    # accuracy: gap 1/4, error 1/4: one standard error; tokens: 50 over, both problems alike
    assert decision.line == tokens.name and decision.goal == "repair"
    assert decision.reward == pytest.approx(-measured["tokens"] / 100)
    # within the tolerance nothing but accuracy is broken
    kept = replace(tokens, tolerance=60.0)
    decision, _ = Contracted(Shorten(rule="switch"), (accuracy, kept), slack=0.0).step(ours, theirs)
    assert (decision.goal, decision.line) == ("accuracy", accuracy.name)
    decision, _ = Contracted(Shorten(rule="switch"), (kept,), slack=0.0).step(ours, theirs)
    assert (decision.goal, decision.line) == ("length", None)


def test_stage_two_repairs_a_line_before_it_raises_accuracy():
    numbers = {"answered": np.array([[5.0, 5.0]])}
    reference = batch([[1, 1]], [[90, 110]], measured={"answered": np.array([[10.0, 10.0]])})
    ours = batch([[1, 0]], [[90, 110]], measured=numbers)
    line = Line("answer", at_least="reference")
    switch = under_contract(Refine(rule="switch"), [line])
    decision, _ = switch.step(ours, reference)
    assert (decision.goal, decision.line) == ("repair", line.name)
    fine = replace(ours, measured=reference.measured)
    assert switch.step(fine, reference)[0].goal == "accuracy"
    # with a multiplier both are in every step, and the line's weight has grown for the next one
    decision, after = under_contract(Refine(), [line]).step(ours, reference)
    assert (decision.goal, decision.line) == ("mixed", line.name)
    assert after.lines[0].multiplier > 0


def test_around_another_method_the_repair_is_a_term_of_its_own():
    objective = under_contract(Guarded(), [KEPT])
    ours = batch([[1, 0], [0, 0]], [[10, 20], [30, 10]])
    decision, after = objective.step(ours, batch([[1, 1], [1, 1]]))
    assert len(decision.terms) == 2 and decision.terms[1].weight == 0.0  # λ starts at 0 there
    assert after.step(ours, ours)[0].terms[1].weight == after.lines[0].multiplier > 0


def test_the_row_has_every_line():
    numbers = {"tokens": np.full((2, 2), 40.0), "answer": np.full((2, 2), 4.0)}
    ours = batch([[1, 0], [0, 0]], measured=numbers, cost="thinking")
    objective = under_contract(Shorten(), [KEPT, Line("answer", at_most=5.0)])
    found, _ = signal(objective, ours, ours)
    assert found.row["tokens"] == 40.0 and found.row["cost"] == 10.0
    assert found.row["lines"]["answer at most 5.0"]["margin"] == 1.0
    logged = logged_metrics(found.row, 1)
    assert logged["crt/margin/answer at most 5.0"] == 1.0
    json.dumps(found.row, allow_nan=False)


def test_without_lines_an_objective_is_itself_and_its_row_has_no_new_key():
    objective = Shorten()
    assert under_contract(objective, []) is objective
    found, _ = signal(objective, batch([[1, 0]]), batch([[1, 0]]))
    assert not {"cost", "line", "lines"} & set(found.row)


# --- Measures -----------------------------------------------------------------------------------


def test_a_cost_takes_the_place_of_length_and_tokens_stay_known():
    rollouts = [
        Rollout("p", "text", n, "eos", Verdict.CORRECT, dataset="gsm8k", thinking=n // 2)
        for n in (10, 30)
    ]
    numbers = {"thinking": lambda r: r.thinking, "tokens": lambda r: r.length}
    of = {"gsm8k": lambda dataset: dataset == "gsm8k"}
    found, _ = batch_of(rollouts, measures=Measures("thinking", numbers, of))
    assert found.length.tolist() == [[5.0, 15.0]] and found.mean_tokens == 20.0
    assert found.within["gsm8k"].tolist() == [True]
    assert found.select(["p"]).measured["tokens"].tolist() == [[10.0, 30.0]]
    assert batch_of(rollouts)[0].length.tolist() == [[10.0, 30.0]]


def test_a_reference_of_another_cost_is_refused():
    rollouts = [Rollout("a", "t", 9, "eos", Verdict.CORRECT, thinking=n) for n in (4, 6)]
    measures = Measures(
        "thinking", {"thinking": lambda r: r.thinking, "tokens": lambda r: r.length}
    )
    tokens, _ = batch_of(rollouts)
    with pytest.raises(DataError, match="the reference's cost is tokens, the policy's is thinking"):
        decide(Refine(), rollouts, lambda _: tokens, measures=measures)
    thinking, _ = batch_of(rollouts, measures=measures)
    assert decide(Refine(), rollouts, lambda _: thinking, measures=measures)[1].signal is not None


# --- Properties ---------------------------------------------------------------------------------


@st.composite
def pairs(draw):
    """A batch of two data sets and its reference, with tokens and answers measured."""
    problems, rollouts = draw(st.integers(1, 4)), draw(st.integers(2, 5))
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))

    def made() -> Batch:
        length = rng.integers(2, 60, (problems, rollouts)).astype(float)
        numbers = {"tokens": length, "answered": np.ceil(length / 3)}
        within = {"easy": np.arange(problems) % 2 == 0, "hard": np.arange(problems) % 2 == 1}
        correct = rng.random((problems, rollouts)) < rng.random()
        return batch(correct, length, measured=numbers, within=within)

    return made(), made()


LINES = (
    KEPT,
    Line("accuracy", at_least="reference", data="hard", tolerance=0.01),
    Line("pass@2", at_least="reference"),
    Line("answer", at_least="0.9 * reference"),
    Line("tokens", at_most=30.0),
)
INNER = (Shorten(), Shorten(rule="switch"), Refine(), Guarded())


@given(pairs(), st.lists(st.sampled_from(range(len(LINES))), min_size=1, unique=True))
@settings(deadline=None)
def test_every_contract_gives_finite_advantages_and_repairs_at_most_one_line(pair, chosen):
    ours, theirs = pair
    for inner in INNER:
        objective = under_contract(inner, [LINES[i] for i in chosen])
        decision, after = objective.step(ours, theirs)
        assert np.isfinite(advantages(decision, muted=ours.muted)).all()
        assert decision.line is None or decision.line in decision.lines
        assert all(0.0 <= line.multiplier <= 100.0 for line in after.lines)
        for line in after.lines:
            standing = line.standing(ours, theirs)
            assert (line.name in decision.lines) == (standing is not None)


@given(pairs())
@settings(deadline=None)
def test_one_line_on_accuracy_is_the_method_itself(pair):
    """Without a contract and with the paper's as a contract, bit for bit."""
    ours, theirs = pair
    plain: Shorten
    for plain in (Shorten(tolerance=0.02), Shorten(tolerance=0.02, rule="switch", slack=0.03)):
        line = Line("accuracy", at_least="reference", tolerance=0.02)
        under = under_contract(plain, [line], slack=plain.slack)
        for _ in range(3):
            (expected, plain), (found, under) = plain.step(ours, theirs), under.step(ours, theirs)
            assert (found.goal, found.margin) == (expected.goal, expected.margin)
            assert found.multiplier == expected.multiplier
            assert np.array_equal(advantages(found), advantages(expected))
            if plain.rule == "multiplier":
                [dual] = under.lines
                assert (dual.multiplier, dual.variance) == (plain.multiplier, plain.variance)


@given(pairs(), st.sampled_from([LengthOnly(), Kimi(), DOT(), O1Pruner()]))
@settings(deadline=None)
def test_one_line_around_another_method_is_its_guard(pair, inner):
    plain, under = Guarded(inner), under_contract(Guarded(inner), [KEPT])
    for _ in range(3):
        (expected, plain), (found, under) = plain.step(*pair), under.step(*pair)
        assert (found.margin, found.multiplier) == (expected.margin, expected.multiplier)
        assert np.array_equal(advantages(found), advantages(expected))


@given(pairs(), st.permutations(range(len(LINES))))
@settings(deadline=None)
def test_the_order_of_lines_does_not_matter_for_their_standing(pair, order):
    ours, theirs = pair
    one = under_contract(Shorten(), LINES).step(ours, theirs)[0].lines
    other = under_contract(Shorten(), [LINES[i] for i in order]).step(ours, theirs)[0].lines
    assert one == other


@given(pairs())
@settings(deadline=None)
def test_all_are_kept_just_when_the_binding_one_is(pair):
    found = [s for line in LINES if (s := line.standing(*pair)) is not None]
    worst = binding(found)
    assert (worst.margin >= 0) == all(s.margin >= 0 for s in found)


@given(st.lists(st.tuples(st.floats(-0.1, 0.1), st.floats(0, 0.05)), min_size=1, max_size=4))
@settings(deadline=None)
def test_the_binding_line_is_feasible_just_when_all_are(measured):
    standings = [Standing(1.0, 1.0, margin, error) for margin, error in measured]
    worst = binding(standings)
    every = all(is_feasible(s.margin, s.standard_error) for s in standings)
    assert is_feasible(worst.margin, worst.standard_error) == every


def test_a_line_without_noise_does_not_hide_a_noisy_one():
    sure, doubtful = Standing(1.0, 1.0, 0.0, 0.0), Standing(1.0, 1.0, 0.02, 0.03)
    assert binding([sure, doubtful]) is doubtful


@given(pairs())
@settings(deadline=None)
def test_the_debts_survive_json(pair):
    for inner in INNER:
        start = under_contract(inner, LINES)
        _, after = start.step(*pair)
        saved = json.loads(json.dumps(state_of(after)))
        assert with_state(start, saved) == after
    with pytest.raises(ValueError, match="5 lines were saved, the contract has 1"):
        with_state(under_contract(Shorten(), [KEPT]), state_of(under_contract(Shorten(), LINES)))
