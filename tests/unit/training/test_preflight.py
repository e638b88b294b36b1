import json
from pathlib import Path

import numpy as np
import pytest

from crt.algorithm.batch import Batch
from crt.cli import main
from crt.errors import ConfigError, install_command
from crt.recipes import config_of
from crt.training.preflight import check_reference, warnings
from tests.support.tiny_model import make_inclined


def config(**changes):
    data = {
        "name": "t",
        "model": {"name": "m"},
        "data": {"train": ["d"]},
        "method": {"type": "crt"},
        "schedule": {"steps": 20, "problems_per_step": 4},
        "sampling": {"max_tokens": 50},
    }
    return config_of(data | changes)


def batch(right: float, cut: float = 0.0) -> Batch:
    wide = np.arange(100)
    correct, truncated = wide < 100 * right, wide >= 100 - 100 * cut
    return Batch(("p", "q"), [correct] * 2, np.ones((2, 100)), [truncated] * 2)


def test_a_reference_that_is_cut_off_is_refused():
    check_reference(batch(0.5, cut=0.2), config())
    with pytest.raises(ConfigError, match=r"21% .* sampling.max_tokens = 50 .* raise it"):
        check_reference(batch(0.5, cut=0.21), config())


@pytest.mark.parametrize(("right", "what"), [(0.0, "nothing"), (1.0, "everything")])
def test_a_reference_that_solves_nothing_or_everything_is_refused(right, what):
    with pytest.raises(ConfigError, match=f"solves {what}"):
        check_reference(batch(right), config())
    check_reference(batch(right), config(preflight={"skip": ["solves"]}))


def test_a_reference_that_cannot_be_graded_is_refused():
    with pytest.raises(ConfigError, match="could be graded"):
        check_reference(None, config())


def test_a_slack_below_the_noise_is_noted():
    # p(1 − p) = 0.25 and 4 × 16 rollouts: sqrt(2 · 0.25 / 64) = 0.088
    switch = config(method={"type": "crt", "shorten": {"rule": "switch"}})
    assert "0.088" in next(warnings(batch(0.5), switch))
    wide = config(method={"type": "crt", "shorten": {"rule": "switch", "slack": 0.1}})
    multiplier = config(method={"type": "crt"})
    for enough in (wide, multiplier):
        assert not any("slack" in note for note in warnings(batch(0.5), enough))


def test_too_few_validation_problems_are_noted_with_the_number_that_would_do():
    # 0.25 · (1/16 + 1/100) = 0.0181: 0.135 per problem, 0.095 with two, 0.01 with 182
    *_, note = warnings(batch(0.5), config())
    assert "± 9.5 points" in note and "about 182 problems" in note


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("schedule.problems_per_step=33", "32 training problems are fewer than"),
        ("sampling.max_tokens=4000", "are more than the model's 2048 positions"),
        ("sampling.max_tokens=2", "run into sampling.max_tokens = 2"),
        ("model.name=no/such/model", "is no folder, no .gguf file, no hub id"),
        ("trl.vllm_importance_sampling_mode=sequence_mask", 'mode = "sequence_mask" weighs a'),
        ("trl.importance_sampling_level=sequence", "weighs a response by its length"),
        ("trl.mask_truncated_completions=true", 'set grading.truncated = "mask"'),
        ('trl.fsdp_config={state_dict_type="SHARDED_STATE_DICT"}', "saves shards: leave it out"),
        ("trl.deepspeed={zero_optimization={stage=3}}", "ZeRO-3 saves shards unless"),
        ("trl.use_vlm=true", "use_vlm is no setting of TRL. Did you mean `use_vllm`?"),
        ("engine=verl", install_command("cluster")),
        ("trl.beta=0.1", "[trl] beta is set by the recipe's own sections"),
        ('data.train=["nothing.jsonl"]', "nothing.jsonl does not exist"),
    ],
)
def test_what_cannot_work_leaves_no_directory(tiny: Path, tmp_path, capsys, change, sentence):
    run = tmp_path / "run"
    limit = ["--set", "preflight.max_truncated=0.2"]
    words = ["train", str(tiny / "recipe.toml"), "--out", str(run), "--set", change, *limit]
    assert main(words) == 2
    assert sentence in capsys.readouterr().err
    assert not run.exists()


@pytest.mark.parametrize(("answer", "what"), [("7", "nothing"), ("0", "everything")])
def test_a_worthless_reference_leaves_no_directory(tiny, tmp_path, capsys, answer, what):
    """The model says 0 and no other number."""
    make_inclined(tmp_path / "model", zero=60.0, end=30.0)
    rows = [{"id": f"q{i}", "question": "red", "answer": answer} for i in range(12)]
    (tmp_path / "data.jsonl").write_text("\n".join(map(json.dumps, rows)))
    words = [f'data.train=["{tmp_path / "data.jsonl"}"]', f"model.name={tmp_path / 'model'}"]
    more = ["preflight.max_truncated=1.0", "grading.truncated=grade"]
    changes = [word for change in (*words, *more) for word in ("--set", change)]
    run = tmp_path / "run"
    assert main(["train", str(tiny / "recipe.toml"), "--out", str(run), *changes]) == 2
    assert f"the reference solves {what} of a probe of 4 problems" in capsys.readouterr().err
    assert not run.exists()
