"""The lines of a contract in a run: checkpoints, alarms, notes, references, both engines."""

import json
import zlib

import numpy as np
import pytest

from crt.algorithm.batch import Batch
from crt.algorithm.contract import Line, under_contract
from crt.algorithm.objectives import Guarded, Refine, Shorten
from crt.algorithm.two_stage import TwoStage
from crt.config import ContractConfig, LineConfig
from crt.errors import ConfigError
from crt.recipes import config_of
from crt.training.alarms import alarm
from crt.training.preflight import check_reference, warnings
from crt.training.reference import Reference, Store
from crt.training.stage import first_stage
from crt.training.trl.trainer import CRTTrainer
from crt.training.validation import against, figures
from crt.training.verl.advantages import decide_batch
from crt.training.verl.data import read_reference, write_reference
from crt.types import Problem, Rollout, Verdict

ACCURACY = Line("accuracy", at_least="reference")


def config(**changes):
    data = {
        "name": "t",
        "model": {"name": "m"},
        "data": {"train": ["d.jsonl"]},
        "method": {"type": "crt_1s"},
        "schedule": {"steps": 20, "problems_per_step": 4},
        "contract": {"lines": [{"metric": "accuracy", "at_least": "reference"}]},
    }
    return config_of(data | changes)


def batch(*right: int, answer: float = 10.0, cost: str = "tokens") -> Batch:
    """A problem for each number of right answers out of ten."""
    rows = [[i < n for i in range(10)] for n in right]
    shape = len(right), 10
    numbers = {n: np.full(shape, answer) for n in ("answer", "answered")}
    numbers["tokens"] = np.full(shape, 50.0)
    ids = tuple(map(str, range(len(right))))
    return Batch(ids, rows, np.full(shape, 5.0), measured=numbers, cost=cost)


# --- A checkpoint --------------------------------------------------------------------------------


def test_one_line_on_accuracy_judges_as_the_guard_does():
    ours, theirs = batch(6, 8), batch(8, 8)
    plain = against(theirs, Shorten(0.02))(ours)
    line = Line("accuracy", at_least="reference", tolerance=0.02)
    under = against(theirs, Shorten(0.02), [line])(ours)
    assert plain == {name: under[name] for name in plain}


def test_a_checkpoint_must_keep_every_line():
    lines = (ACCURACY, Line("answer", at_most=12.0))
    stands = against(batch(8, 8), Shorten(), lines)
    assert stands(batch(8, 8))["feasible"]
    # three tokens above what is allowed, less one per cent of it: in the unit of the bound
    broken = stands(batch(8, 8, answer=15.0))
    assert not broken["feasible"] and broken["margin"] == pytest.approx((12.12 - 15) / 12)
    assert broken["lines"]["answer at most 12.0"]["value"] == 15.0
    assert not stands(batch(7, 7, answer=9.0))["feasible"]


def test_a_line_that_cannot_be_measured_is_not_kept():
    ours = batch(8, 8)
    absent = Line("accuracy", at_least="reference", data="x")
    unknown = against(
        Batch(ours.problem_ids, ours.correct, ours.length, within={"x": np.array([False, False])}),
        Shorten(),
        (ACCURACY, absent),
    )
    here = Batch(ours.problem_ids, ours.correct, ours.length, within={"x": np.zeros(2, bool)})
    assert unknown(here)["margin"] is None and unknown(here)["feasible"] is False


def test_a_record_has_tokens_and_the_cost():
    found = figures(batch(8, 8, cost="thinking"), (), against(batch(8, 8), Shorten()))
    assert (found["tokens"], found["cost"]) == (50.0, 5.0)
    assert "cost" not in figures(batch(8), (), against(batch(8), Shorten()))


# --- Alarms and notes ----------------------------------------------------------------------------


def row(step: int, value: float, bound: float = 10.0):
    line = {"value": value, "bound": bound, "margin": bound - value}
    figures = {"accuracy": 0.1, "reference_accuracy": 0.9, "slack": 0.0, "tokens": 50.0}
    rest = {"step": step, "loss": 0.1, "grad_norm": 1.0, "reference_tokens": 60.0}
    return {**figures, **rest, "lines": {"answer at most 10": line}}


def test_an_alarm_for_a_line_that_steps_do_not_restore():
    stuck = [row(i, 14.0) for i in range(30)]
    said = str(alarm(stuck, guarded=True))
    assert (
        "'answer at most 10' has been far from kept for 30 steps (now 14, the bound is 10)" in said
    )
    assert alarm(stuck[1:], guarded=True) is None
    # a quarter above the bound and no more, or on its way down: no alarm
    assert alarm([row(i, 12.5) for i in range(30)], guarded=True) is None
    assert alarm([row(i, 40.0 - i / 2) for i in range(30)], guarded=True) is None


def test_what_the_reference_breaks_itself_is_noted():
    lines = [
        {"metric": "answer", "at_most": 8},
        {"metric": "answer", "at_least": 5},
    ]
    notes = list(warnings(batch(8, 8), config(contract={"lines": lines})))
    assert any("no line of the contract is about accuracy" in note for note in notes)
    assert any("is at 10, which breaks the line 'answer at most 8.0'" in note for note in notes)
    assert not any("at least 5" in note for note in notes)


def test_a_cost_that_is_always_0_is_refused():
    nothing = Batch(("p",), [[1, 0]], [[0, 0]], cost="thinking")
    with pytest.raises(ConfigError, match=r'contract.cost = "thinking" is 0 in every response'):
        check_reference(nothing, config(contract={"cost": "thinking"}))


# --- The reference, and both engines --------------------------------------------------------------


def test_a_kept_reference_knows_thinking_and_where_problems_are_from(tmp_path):
    problems = [Problem("p", "?", "1", source="set"), Problem("q", "?", "2", source="other")]

    def sampler(asked):
        right = Verdict.CORRECT
        return [Rollout(p.id, "t", 9, "eos", right, thinking=i) for p in asked for i in (4, 6)]

    contract = ContractConfig(
        cost="thinking", lines=(LineConfig(metric="accuracy", at_least=0.5, data="set"),)
    )
    for _ in range(2):  # sampled, then found
        store = Store(tmp_path, {"m": 1})
        reference = Reference(problems, sampler, store, measures=contract.measures())
        found = reference(["p", "q"])
        assert found.length.tolist() == [[4.0, 6.0]] * 2
        assert found.within["set"].tolist() == [True, False]


def test_a_reference_of_an_earlier_version_is_read(tmp_path):
    from crt.training import reference

    old = [["text", 5, "eos", "correct", "1"]]
    [rollout] = reference._unpacked("p", zlib.compress(json.dumps(old).encode()))
    assert (rollout.length, rollout.thinking) == (5, None)


def test_who_needs_thinking_samples_an_earlier_versions_problems_again(tmp_path):
    problem, asked = Problem("p", "?", "1"), []

    def sampler(problems, thinking=3):
        asked.extend(problems)
        return [Rollout(p.id, "t", 9, "eos", Verdict.CORRECT, thinking=thinking) for p in problems]

    store = Store(tmp_path, {"m": 1})
    store.put([problem], {"p": sampler([problem], None)})
    asked.clear()
    for cost, sampled in (("tokens", 0), ("thinking", 1), ("thinking", 1), ("tokens", 1)):
        measures = ContractConfig(cost=cost).measures()
        found = Reference([problem], sampler, store, measures=measures)(["p"])
        assert (len(asked), found.length.item()) == (sampled, 9.0 if cost == "tokens" else 3.0)
    assert store.damaged == 0


def test_the_reference_of_a_cluster_comes_back_with_all_that_lines_ask(tmp_path):
    frozen = Batch(
        ("b", "c"), [[1, 0], [0, 0]], [[10, 30], [5, 7]], cost="thinking",
        measured={"answer": np.array([[1.0, 2.0], [3.0, 4.0]])},
        within={"set": np.array([True, False])},
    )  # fmt: skip
    write_reference(tmp_path / "r.json", frozen)
    back = read_reference(tmp_path / "r.json")
    assert back.cost == "thinking"
    assert np.array_equal(back.measured["answer"], frozen.measured["answer"])
    assert back.within["set"].tolist() == [True, False]


@pytest.mark.parametrize("inner", [Shorten(), Shorten(rule="switch"), Refine(), Guarded()])
def test_one_batch_through_both_engines_is_one_signal(inner):
    contract = ContractConfig(
        cost="thinking",
        lines=(
            LineConfig(metric="pass@2", at_least="reference"),
            LineConfig(metric="accuracy", at_least="reference", data="set"),
            LineConfig(metric="answer", at_least="0.9 * reference"),
        ),
    )
    measures, rng = contract.measures(), np.random.default_rng(0)
    verdicts = np.where(rng.random(12) < 0.5, Verdict.CORRECT, Verdict.WRONG)
    rollouts = [
        Rollout("abc"[i // 4], "", 20 + i, "eos", Verdict(verdict), thinking=10 + i % 3,
                dataset="set" if i < 8 else "other")
        for i, verdict in enumerate(verdicts)
    ]  # fmt: skip
    frozen = Reference([Problem(n, "", "1", source="set") for n in "abc"],
                       lambda asked: [r for r in rollouts if r.problem_id in {p.id for p in asked}],
                       None, measures=measures)(["a", "b", "c"])  # fmt: skip
    objective = under_contract(inner, contract.promises)
    trainer = CRTTrainer.__new__(CRTTrainer)
    trainer.objective, trainer.reference, trainer.measures = objective, frozen.select, measures
    trainer.estimator, trainer.truncated_as, trainer.rollouts = "group_std", "wrong", rollouts
    step = trainer._decide()
    found, after = decide_batch(objective, rollouts, frozen, 4, measures=measures)
    assert found.values == trainer.advantages.reshape(-1).tolist() and any(found.values)
    assert after == trainer.objective
    assert set(step.signal.row["lines"]) == {line.name for line in contract.promises}


def test_each_stage_is_under_the_contract():
    from crt.training.stage import guarded_by

    two = config(method={"type": "crt", "shorten": {"slack": 0.03}})
    stage = first_stage(two)
    assert isinstance(two.method, TwoStage) and stage.objective.inner is two.method.shorten
    assert (stage.objective.slack, stage.guarded) == (0.03, True)
    assert guarded_by(two, two.method.refine).inner is two.method.refine
    plain = config(contract={})
    assert first_stage(plain).objective is plain.method
