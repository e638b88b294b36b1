"""What goes with verl's checkpoint comes back; what the user changed since counts."""

import json
from dataclasses import replace

import pytest

from crt.algorithm.baselines import ThinkPrune
from crt.algorithm.objectives import PrimalDual, Refine, Shorten
from crt.algorithm.registry import METHODS
from crt.errors import ConfigError
from crt.training.verl.state import (
    describe_objective,
    read_objective,
    restore_objective,
    restore_reference,
    state_to_save,
)

COLUMNS = {"reference_correct": [1, 0], "reference_length": [5, 9], "reference_truncated": [0, 0]}


def through_json(objective, start=None, reference=None):
    kept = state_to_save(
        objective,
        start or describe_objective(objective),
        1,
        {10: {"feasible": True}},
        reference or {},
    )
    return json.loads(json.dumps(kept))


@pytest.mark.parametrize("name", [name for name in METHODS if name != "crt"])
def test_every_objective_survives(name):
    objective = METHODS[name]()
    assert read_objective(json.loads(json.dumps(describe_objective(objective)))) == objective
    again, words = restore_objective(objective, through_json(objective))
    assert again == objective and words == []


def test_memory_comes_back():
    later = replace(PrimalDual(), multiplier=3.5)
    again, words = restore_objective(
        PrimalDual(), through_json(later, describe_objective(PrimalDual()))
    )
    assert again.multiplier == 3.5 and words == []
    moved = replace(Shorten(), multiplier=2.5, variance=0.3)
    start = describe_objective(Shorten())
    assert restore_objective(Shorten(), through_json(moved, start))[0] == moved


def test_a_changed_setting_counts_and_is_told():
    later = replace(PrimalDual(), multiplier=3.5)
    kept = through_json(later, describe_objective(PrimalDual()))
    again, words = restore_objective(PrimalDual(multiplier_rate=0.1), kept)
    assert again.multiplier == 3.5 and again.multiplier_rate == 0.1
    assert words == [
        "multiplier_rate was 10.0 when this was saved and is 0.1 now: the configuration counts."
    ]


def test_a_changed_start_counts_for_the_memory():
    kept = through_json(replace(PrimalDual(), multiplier=3.5), describe_objective(PrimalDual()))
    again, words = restore_objective(PrimalDual(multiplier=2.0), kept)
    assert again.multiplier == 2.0 and "multiplier was 1.0" in words[0]


def test_a_tuple_is_not_a_change():
    objective = ThinkPrune(limits=(30, 20))
    assert restore_objective(objective, through_json(objective))[1] == []


def test_another_method_is_refused():
    with pytest.raises(ConfigError, match="saved by 'crt_1s', not by 'refine'"):
        restore_objective(Refine(), through_json(Shorten()))
    with pytest.raises(ConfigError, match="Did you mean `refine`"):
        read_objective({"type": "refin"})


def test_the_statistics_stay_frozen():
    other = COLUMNS | {"reference_length": [6, 9]}
    kept = through_json(Refine(), reference={"p": COLUMNS})
    assert restore_reference({"p": COLUMNS, "q": other}, kept) == ({"p": COLUMNS, "q": other}, [])
    columns, words = restore_reference({"p": other}, kept)
    assert columns == {"p": COLUMNS} and "for 1 problems, for example 'p'" in words[0]


def test_stage_and_checkpoints_are_kept():
    kept = through_json(Shorten())
    assert kept["stage"] == 1 and kept["checkpoints"] == {"10": {"feasible": True}}
