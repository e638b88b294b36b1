"""What goes with verl's checkpoint comes back; what the user changed since counts."""

import json
from dataclasses import replace

import pytest

from crt.algorithm.baselines import ThinkPrune
from crt.algorithm.objectives import PrimalDual, Refine, Shorten
from crt.algorithm.registry import METHODS
from crt.errors import ConfigError
from crt.training.verl.state import described, frozen, objective_from, restored, saved

COLUMNS = {"reference_correct": [1, 0], "reference_length": [5, 9], "reference_truncated": [0, 0]}


def through_json(objective, start=None, reference=None):
    kept = saved(
        objective, start or described(objective), 1, {10: {"feasible": True}}, reference or {}
    )
    return json.loads(json.dumps(kept))


@pytest.mark.parametrize("name", [name for name in METHODS if name != "crt"])
def test_every_objective_survives(name):
    objective = METHODS[name]()
    assert objective_from(json.loads(json.dumps(described(objective)))) == objective
    again, words = restored(objective, through_json(objective))
    assert again == objective and words == []


def test_memory_comes_back():
    later = replace(PrimalDual(), multiplier=3.5)
    again, words = restored(PrimalDual(), through_json(later, described(PrimalDual())))
    assert again.multiplier == 3.5 and words == []
    averaged = replace(Shorten(smoothing=0.5), average_gap=0.02, gap_noise=0.3)
    start = described(Shorten(smoothing=0.5))
    assert restored(Shorten(smoothing=0.5), through_json(averaged, start))[0] == averaged


def test_a_changed_setting_counts_and_is_told():
    later = replace(PrimalDual(), multiplier=3.5)
    kept = through_json(later, described(PrimalDual()))
    again, words = restored(PrimalDual(multiplier_rate=0.1), kept)
    assert again.multiplier == 3.5 and again.multiplier_rate == 0.1
    assert words == [
        "multiplier_rate was 10.0 when this was saved and is 0.1 now: the configuration counts."
    ]


def test_a_changed_start_counts_for_the_memory():
    kept = through_json(replace(PrimalDual(), multiplier=3.5), described(PrimalDual()))
    again, words = restored(PrimalDual(multiplier=2.0), kept)
    assert again.multiplier == 2.0 and "multiplier was 1.0" in words[0]


def test_a_tuple_is_not_a_change():
    objective = ThinkPrune(limits=(30, 20))
    assert restored(objective, through_json(objective))[1] == []


def test_another_method_is_refused():
    with pytest.raises(ConfigError, match="saved by 'crt_1s', not by 'refine'"):
        restored(Refine(), through_json(Shorten()))
    with pytest.raises(ConfigError, match="Did you mean `refine`"):
        objective_from({"type": "refin"})


def test_the_statistics_stay_frozen():
    other = COLUMNS | {"reference_length": [6, 9]}
    kept = through_json(Refine(), reference={"p": COLUMNS})
    assert frozen(kept, {"p": COLUMNS, "q": other}) == ({"p": COLUMNS, "q": other}, [])
    columns, words = frozen(kept, {"p": other})
    assert columns == {"p": COLUMNS} and "for 1 problems, for example 'p'" in words[0]


def test_stage_and_checkpoints_are_kept():
    kept = through_json(Shorten())
    assert kept["stage"] == 1 and kept["checkpoints"] == {"10": {"feasible": True}}
