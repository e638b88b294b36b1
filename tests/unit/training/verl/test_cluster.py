"""What a cluster's trainer leaves in a run's directory, and what is refused before it starts."""

import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from crt.algorithm.batch import Batch
from crt.algorithm.objectives import Shorten
from crt.cli import main
from crt.data.prompts import render
from crt.errors import ConfigError, EngineError
from crt.io import read_json
from crt.recipes import load_recipe
from crt.run import Run
from crt.training.context import RunContext
from crt.training.reference import Store
from crt.training.stage import Stage, stage_of
from crt.training.verl.advantages import decide_batch
from crt.training.verl.data import StageFolder, read_info, read_reference, write_reference
from crt.training.verl.fit import (
    BACKEND,
    check,
    folder_of,
    left_at,
    prepare,
    sampler_of,
    show_new_rows,
)
from crt.training.verl.recorder import ClusterRecorder
from crt.types import Rollout, Verdict
from tests.support.tiny_model import make_model, verl_config

METRICS = {
    "actor/pg_loss": 0.25,
    "actor/grad_norm": 1.5,
    "actor/lr": 1e-6,
    "training/rollout_probs_diff_max": 2e-9,
}


def config(**changes):
    small = {
        "schedule": {"steps": 6, "problems_per_step": 2, "save_every": 2},
        "sampling": {"max_tokens": 100, "group_size": 4},
        "validation": {"rollouts": 2},
        "cluster": {"devices": 2},
    }
    return verl_config(**small | changes)


def rollouts(verdicts: str, tokens: int = 20, group: int = 4) -> list[Rollout]:
    """Problems a and b; c is correct, w wrong, u could not be graded."""
    kinds = {"c": Verdict.CORRECT, "w": Verdict.WRONG, "u": Verdict.UNGRADED}
    return [
        Rollout("ab"[i // group], f"text {i}", tokens + i, "eos", kinds[verdict], "7")
        for i, verdict in enumerate(verdicts)
    ]


def reference(correct: str = "11") -> Batch:
    """The frozen policy's two rollouts on a and on b."""
    right = [int(one) for one in correct]
    return Batch(("a", "b"), [right, right], [[50, 60], [50, 60]])


class Training:
    """A recorder with its run, driven as verl's trainer drives it."""

    def __init__(self, folder: Path, first: int = 0, correct: str = "11", **changes) -> None:
        self.run = Run.create(folder / "run", config(**changes))
        self.base = folder / "base"
        self.base.mkdir()
        (self.base / "config.json").write_text('{"dtype": "bfloat16"}')
        (self.base / "tokenizer.json").write_text("the base's")
        self.folder = StageFolder(folder / "run" / "state" / "stage1")
        self.folder.path.mkdir()
        write_reference(self.folder.validation_reference, reference(correct))
        self.stage = Stage(1, Shorten(), "m", first, 6)
        self.recorder = ClusterRecorder(self.run, self.stage, self.folder, self.base)

    def step(self, number: int, verdicts: str = "cccwcccc", tokens: int = 20, **metrics) -> None:
        batch = rollouts(verdicts, tokens)
        advantages, _ = decide_batch(Shorten(), batch, reference(), 4)
        self.recorder.on_graded(number, batch, advantages)
        self.recorder.on_updated(number, METRICS | metrics, {"gen": 2.0, "update_actor": 1.0})

    def save(self, number: int, validation: list[Rollout] | None) -> Path:
        there = self.folder.saved / f"global_step_{number}"
        model = there / "actor" / "huggingface"
        model.mkdir(parents=True)
        (model / "model.safetensors").write_text(f"weights {number}")
        (model / "config.json").write_text('{"dtype": "bfloat16", "verl": 1}')
        (model / "tokenizer.json").write_text("verl's")
        self.recorder.on_saved(number, there, validation)
        return there


@pytest.fixture
def training(tmp_path) -> Training:
    return Training(tmp_path)


def test_a_row_has_the_keys_of_the_local_engine(training):
    training.step(1)
    (row,) = training.run.steps
    assert row["step"] == 1 and row["stage"] == 1 and row["goal"] == "mixed"
    assert row["accuracy"] == 7 / 8 and row["reference_accuracy"] == 1.0
    assert row["generated_tokens"] == sum(range(20, 28))
    assert row["loss"] == 0.25 and row["grad_norm"] == 1.5 and row["rollout_probs_diff_max"] == 2e-9
    assert row["seconds"] == {"sample": 2.0, "update": 1.0}


def test_every_response_is_kept(training):
    training.step(1)
    kept = training.run.rollouts(1)
    assert [each["problem_id"] for each in kept] == ["a"] * 4 + ["b"] * 4
    assert kept[3]["verdict"] == "wrong" and kept[3]["advantage"] < 0
    assert kept[0]["text"] == "text 0" and kept[0]["tokens"] == 20 and kept[0]["stop"] == "eos"


def test_a_checkpoint_is_the_weights_with_the_bases_own_words(tmp_path):
    training = Training(tmp_path, correct="10")
    training.step(1)
    training.step(2)
    assert training.recorder.what_to_do(1) == (False, False, False)
    assert training.recorder.what_to_do(2) == (True, True, False)
    training.save(2, rollouts("cccw", group=2))
    (step,) = training.run.checkpoints
    record, folder = training.run.checkpoints[step], training.run.checkpoint(2)
    assert record["accuracy"] == 0.75 and record["reference_accuracy"] == 0.5
    assert record["feasible"] is True and record["stage"] == 1
    assert (folder / "model.safetensors").read_text() == "weights 2"
    assert (folder / "tokenizer.json").read_text() == "the base's"
    assert read_json(folder / "config.json") == {"dtype": "bfloat16"}


def test_the_recipes_precision_is_the_checkpoints(tmp_path):
    training = Training(tmp_path, model={"name": "m", "dtype": "float32"})
    training.step(1)
    training.save(1, rollouts("cccc", group=2))
    assert read_json(training.run.checkpoint(1) / "config.json")["dtype"] == "float32"


def test_steps_of_a_later_stage_go_on_counting(tmp_path):
    training = Training(tmp_path, first=3)
    training.step(1)
    assert training.run.steps[0]["step"] == 4
    assert training.recorder.what_to_do(1) == (True, True, False)  # 4 is a multiple of 2


def test_asked_to_end_it_saves_without_measuring(training):
    training.step(1)
    training.folder.stop.touch()
    assert training.recorder.what_to_do(1) == (True, False, True)
    assert training.recorder.what_to_do(6) == (True, True, True)  # the last step


def test_the_last_two_of_verls_checkpoints_stay(training):
    for number in (1, 2, 3):
        training.step(number)
        training.save(number, None)
    assert sorted(path.name[-1] for path in training.folder.saved.iterdir()) == ["2", "3"]


def test_a_lost_rollout_of_a_measurement_leaves_its_problem_out(training):
    training.step(1)
    training.save(1, rollouts("cccw", group=2)[1:])
    assert training.run.checkpoints[1]["problems"] == 1


def test_an_alarm_stops_with_its_reason(training):
    with pytest.raises(EngineError):
        training.step(1, **{"actor/grad_norm": float("nan")})
    assert training.run.steps[0]["grad_norm"] is None  # the row is there all the same
    assert "learning rate is probably too high" in read_json(training.folder.stopped)["reason"]


def test_a_grader_that_does_not_work_stops_it(training):
    with pytest.raises(EngineError):
        training.step(1, verdicts="ucccuccc")
    assert (
        "100% of the problems of step 1 could not be graded"
        in (read_json(training.folder.stopped)["reason"])
    )


def test_what_came_after_the_last_whole_checkpoint_is_taken_back(training):
    for number in (1, 2, 3):
        training.step(number)
    training.save(2, rollouts("cccc", group=2))
    broken = training.folder.saved / "global_step_3"
    (broken / "actor").mkdir(parents=True)
    saved = left_at(training.run, training.stage, training.folder)
    assert saved == training.folder.saved / "global_step_2"
    assert [row["step"] for row in training.run.steps] == [1, 2] and not broken.exists()


def test_new_rows_are_shown_once(training):
    training.step(1)
    shown: list[int] = []
    show_new = show_new_rows(training.run, lambda row: shown.append(row["step"]))
    training.step(2)
    show_new()
    show_new()
    assert shown == [2]


def test_the_plugin_finds_the_stage_the_run_is_in(tmp_path):
    run = Run.create(tmp_path / "run", config(method={"type": "crt"}))
    assert stage_of(run).number == 1 and stage_of(run).steps == 4  # 0.7 of 6
    run.set_progress(stage_one_ended=4, stage_two_from=2)
    stage = stage_of(run)
    assert (stage.number, stage.first, stage.steps) == (2, 4, 2)
    assert stage.start == str(run.checkpoint(2))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"sampling": {"source": "reference", "group_size": 4}, "method": {"type": "o1_pruner"}},
         'method "o1_pruner" with sampling.source = "reference"'),
        ({"reference": {"mode": "fresh"}}, 'reference.mode = "fresh" cannot run'),
        ({"model": {"name": "m", "lora": {"dropout": 0.1}}}, "model.lora.dropout = 0.1 and"),
        ({"model": {"name": "m", "lora": {"alpha": 0.5}}}, "model.lora.alpha = 0.5 cannot run"),
        ({"model": {"name": "m", "lora": {}}, "method": {"type": "crt"}},
         "model.lora with optim.kl = 0.001 cannot run two stages"),
        ({"trl": {"use_vllm": True}}, "[trl] has no meaning"),
        ({"cluster": {"devices": 3}}, "= 8 cannot be shared by 3 devices"),
        ({"cluster": {"tensor_parallel": 3}}, "tensor_parallel = 3 does not divide the 8"),
        ({"verl": {"data": {"shuffle": True}}}, "[verl] data.shuffle is set by"),
        ({"verl": {"algorithm": {"rollout_correction": {"rollout_is": "sequence"}}}},
         "rollout_is = 'sequence' weighs whole responses by their length"),
    ],
)  # fmt: skip
def test_what_a_cluster_cannot_do_is_refused_by_name(changes, sentence):
    with pytest.raises(ConfigError) as refused:
        check(config(**changes), 1)
    assert sentence in str(refused.value)


def test_a_launcher_of_processes_is_refused():
    with pytest.raises(ConfigError, match="4 processes of a launcher"):
        check(config(), 4)


def kept(context: RunContext, model, problems, verdict: Verdict, tokens: int) -> None:
    """Reference rollouts as the cluster's vLLM would have left them."""
    store = Store(context.cache, context.about(model, context.sampling, vllm=True))
    one = [Rollout("", "text", tokens + i, "eos", verdict, "0") for i in range(4)]
    store.put(problems, {problem.id: one for problem in problems})


def test_a_stage_compares_with_its_start_and_checkpoints_with_the_base(tiny, tmp_path):
    config = load_recipe(tiny / "recipe.toml", ["engine=verl", "cluster.devices=2"])
    context = RunContext(config, tmp_path / "references", BACKEND)
    run = Run.create(tmp_path / "run", config)
    shutil.copytree(tiny / "model", run.checkpoint(2))
    short = make_model()
    short.lm_head.weight.data.mul_(2)  # other weights, so that it is another model
    short.save_pretrained(run.checkpoint(2))
    run.set_progress(stage_one_ended=4, stage_two_from=2)
    stage = stage_of(run)
    start = context.load(stage.start)
    assert start.hash != context.base.hash
    train, validation = context.problems
    kept(context, context.base, validation, Verdict.CORRECT, 50)
    kept(context, start, train, Verdict.WRONG, 20)
    folder = folder_of(run, stage)
    prepare(context, stage, context.reference(start), folder)
    asked = [read_info(row["extra_info"]) for row in pq.read_table(folder.train).to_pylist()]
    judged = pq.read_table(folder.validation).to_pylist()
    assert len(asked) == 4 * 4 and len(judged) == 4  # steps 5 to 8, and the validation problems
    theirs, base = read_reference(folder.reference), read_reference(folder.validation_reference)
    assert theirs is not None and (theirs.length == [20, 21, 22, 23]).all()
    assert set(theirs.problem_ids) == {info["problem"].id for info in asked}
    assert base is not None and base.accuracy == 1.0 and len(base.problem_ids) == 4
    prompt = render(asked[0]["problem"], context.template)
    assert asked[0]["prompt_ids"] == list(prompt.token_ids)
    context.close()


def test_an_adapter_is_no_model_to_start_from(tiny, tmp_path):
    from peft import LoraConfig, get_peft_model

    settings = LoraConfig(r=2, target_modules="all-linear", task_type="CAUSAL_LM")
    adapted = get_peft_model(make_model(), settings)
    adapted.peft_config["default"].base_model_name_or_path = str(tiny / "model")
    adapted.save_pretrained(tmp_path / "adapter")
    changes = ["engine=verl", "cluster.devices=2", f"model.name={tmp_path / 'adapter'}"]
    config = load_recipe(tiny / "recipe.toml", changes)
    context = RunContext(config, tmp_path / "references", BACKEND)
    with pytest.raises(ConfigError, match="is an adapter, which cannot be trained"):
        sampler_of(context, context.base, context.sampling)
    context.close()


def test_the_command_can_be_shown_without_a_cluster(tiny, tmp_path, capsys):
    run = tmp_path / "run"
    words = ["train", str(tiny / "recipe.toml"), "--engine", "verl", "--print", "--out", str(run)]
    assert main(words) == 0
    told = capsys.readouterr().out
    assert "python -m verl.trainer.main_ppo" in told and "trainer.v1.trainer_mode=crt" in told
    assert f"+crt.run={run}" in told and not run.exists()
    assert main([*words[:2], "--print"]) == 2
    assert "--print is for the engine verl" in capsys.readouterr().err
