"""What CRTTrainer takes for granted of TRL's private parts, seen in a stock GRPOTrainer.

A new TRL that breaks one of these breaks training in silence; each message says what of ours.
"""

import inspect
import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    Trainer,
    TrainerCallback,
)
from trl import GRPOConfig, GRPOTrainer
from trl.generation.vllm_client import VLLMClient
from trl.generation.vllm_generation import VLLMGeneration

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")

WORDS = ["<pad>", "<eos>", "<unk>", *"abcdefgh"]
GROUP, PROBLEMS, MICRO = 4, 4, 2  # 16 rollouts in two micro-batches of 8


class Spy(GRPOTrainer):
    """TRL as it is, with a note of what goes in and out."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.rewarded: list[tuple[Any, ...]] = []
        self.scored: list[tuple[Any, dict[str, Any]]] = []
        self.prepared: list[tuple[int, Any, Any]] = []
        super().__init__(*args, **kwargs)

    def _calculate_rewards(self, inputs, prompts, completions, completion_ids_list):
        found = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        self.rewarded.append((inputs, completion_ids_list, found))
        return found

    def _generate_and_score_completions(self, inputs):
        found = super()._generate_and_score_completions(inputs)
        self.scored.append((inputs, found))
        return found

    def _prepare_inputs(self, generation_batch):
        found = super()._prepare_inputs(generation_batch)
        self.prepared.append((self._step, self._buffered_inputs, found))
        return found


class Order(TrainerCallback):
    """What the trainer tells, in order."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def on_step_end(self, args, state, control, model=None, **_):
        assert model is not None
        self.heard.append("step")
        control.should_save = True

    def on_log(self, args, state, control, logs=None, model=None, **_):
        assert model is not None, "Recorder.on_log looks for weights that are no numbers"
        if logs and "loss" in logs:
            assert {"loss", "grad_norm", "kl"} <= set(logs), "the rows of steps.jsonl have these"
            self.heard.append("log")

    def on_save(self, args, state, control, **_):
        folder = Path(args.output_dir) / f"checkpoint-{state.global_step}"
        assert (folder / "model.safetensors").is_file(), "Recorder links it into the run"
        self.heard.append("save")


def correct(completions, problem_id, log_extra, **_) -> list[float | None]:
    """Nobody can say of p1 whether it is."""
    log_extra("problem_id", list(problem_id))
    return [None if p == "p1" else float("a" in c) for c, p in zip(completions, problem_id, strict=True)]  # fmt: skip  # noqa: E501


def rollouts(prompts, trainer) -> dict[str, Any]:
    """Responses of 1 to 3 words, some ended, some cut off."""
    trainer.asked.append(list(prompts))
    tokens = [[3 + i % 5, 4, 1][: 1 + i % 3] for i in range(len(prompts))]
    ids = trainer.processing_class(text=list(prompts))["input_ids"]
    return {"prompt_ids": ids, "completion_ids": tokens, "logprobs": [[-1.0] * len(t) for t in tokens]}  # fmt: skip  # noqa: E501


def tokenizer() -> PreTrainedTokenizerFast:
    words = Tokenizer(models.WordLevel({w: i for i, w in enumerate(WORDS)}, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()  # pyright: ignore
    return PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>"
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Spy:
    """Two steps of TRL's own training."""
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1}
    heads: dict[str, Any] = {"num_attention_heads": 2, "num_key_value_heads": 1}
    ends: dict[str, Any] = {"pad_token_id": 0, "eos_token_id": 1, "bos_token_id": None}
    folder = tmp_path_factory.mktemp("trl")
    start = LlamaForCausalLM(LlamaConfig(vocab_size=len(WORDS), **sizes, **heads, **ends))
    start.save_pretrained(folder / "model")  # TRL loads its frozen copy by the model's name
    args = GRPOConfig(
        output_dir=str(folder), use_cpu=True, bf16=False,
        gradient_checkpointing=False, per_device_train_batch_size=PROBLEMS * GROUP // MICRO,
        gradient_accumulation_steps=MICRO, num_generations=GROUP, max_completion_length=8,
        max_steps=2, beta=0.1, loss_type="dapo", shuffle_dataset=False, logging_steps=1,
        save_strategy="no", report_to=[], disable_tqdm=True,
    )  # fmt: skip
    rows = [{"prompt": "a b c d"[: 1 + 2 * (i % 4)], "problem_id": f"p{i}"} for i in range(8)]
    order = Order()
    spy = Spy(
        model=LlamaForCausalLM.from_pretrained(folder / "model"),
        reward_funcs=[correct], args=args, train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer(), rollout_func=rollouts, callbacks=[order],
    )  # fmt: skip
    spy.asked, spy.order = [], order  # pyright: ignore[reportAttributeAccessIssue]
    spy.train()
    return spy


@pytest.mark.parametrize(
    ("of", "name", "parameters"),
    [
        (GRPOTrainer, "_calculate_rewards", "inputs prompts completions completion_ids_list"),
        (GRPOTrainer, "_generate_and_score_completions", "inputs"),
        (GRPOTrainer, "_prepare_inputs", "generation_batch"),
        (GRPOTrainer, "_save_checkpoint", "model trial"),
        (GRPOTrainer, "_load_optimizer_and_scheduler", "checkpoint"),
        (Trainer, "_load_from_checkpoint", "resume_from_checkpoint model"),
        (Trainer, "_get_output_dir", "trial"),
        (VLLMGeneration, "generate", "prompts images num_generations profiler"),
        (VLLMGeneration, "sync_weights", ""),
        (VLLMClient, "close_communicator", ""),
    ],
)
def test_signatures(of, name, parameters):
    found = list(inspect.signature(getattr(of, name)).parameters)[1:]
    assert found == parameters.split(), f"CRTTrainer or TrainersVllm overrides or calls {name}"


def test_log_probabilities_are_asked_for_as_before():
    found = list(inspect.signature(GRPOTrainer._get_per_token_logps_and_entropies).parameters)
    wanted = ["self", "model", "input_ids", "attention_mask", "logits_to_keep", "batch_size"]
    assert found[:6] == wanted, "CRTTrainer._get_per_token_logps_and_entropies cuts their padding"


def test_vllm_is_told_of_new_weights_by_the_step():
    source = inspect.getsource(GRPOTrainer)
    assert "self.state.global_step != self._last_loaded_step" in source, (
        "TrainersVllm pushes the weights itself and notes it there, so that TRL does not again"
    )
    assert "self.vllm_generation = VLLMGeneration(" in source, "VllmRollouts asks it"


def test_zero_3_is_known_by_what_transformers_keeps():
    from transformers.integrations import deepspeed

    assert deepspeed._hf_deepspeed_config_weak_ref is None, "loading_whole sets it aside"
    source = inspect.getsource(deepspeed.is_deepspeed_zero3_enabled)
    assert "_hf_deepspeed_config_weak_ref" in source


def test_rollout_func_gets_every_prompt_as_often_as_it_has_rollouts(trained):
    assert len(trained.asked) == 2, "FastRollouts draws once a step"
    for asked in trained.asked:
        assert len(asked) == PROBLEMS * GROUP
        groups = [asked[i : i + GROUP] for i in range(0, len(asked), GROUP)]
        assert all(len(set(group)) == 1 for group in groups), "FastRollouts reads a prompt once"


def test_rewards_have_a_row_a_rollout_and_nan_for_none(trained):
    inputs, completions, rewards = trained.rewarded[0]
    assert rewards.shape == (PROBLEMS * GROUP, 1), "rollouts_from_rewards takes the first column"
    names = [example["problem_id"] for example in inputs]
    assert names == [f"p{i}" for i in range(PROBLEMS) for _ in range(GROUP)], (
        "rollouts of a problem stand together, in the order of the data"
    )
    unknown = torch.tensor([name == "p1" for name in names])
    assert torch.equal(rewards[:, 0].isnan(), unknown), "a rollout without a verdict is `ungraded`"
    assert [len(ids) for ids in completions] == [1 + i % 3 for i in range(16)], (
        "lengths are counted from the completion's ids, the ending token among them"
    )


def test_the_batch_has_what_we_replace(trained):
    inputs, batch = trained.scored[0]
    rows = len(inputs)
    assert batch["advantages"].shape == (rows,), "CRTTrainer puts its own in this form"
    masks = ("prompt_ids", "prompt_mask", "completion_ids", "completion_mask")
    assert all(batch[name].shape[0] == rows for name in masks), "`regroup` sorts these"
    assert batch["completion_mask"].sum(1).tolist() == [1 + i % 3 for i in range(16)]
    assert batch["prompt_mask"][0, -1] == 1, "`trim` takes prompts to be padded at the left"
    assert batch["num_items_in_batch"] == batch["completion_mask"].sum(), (
        "the normaliser is over the whole batch, so micro-batches may be regrouped"
    )


def test_micro_batches_are_buffered_and_used_in_turn(trained):
    steps = [step for step, _, _ in trained.prepared]
    assert steps == [0, 1, 2, 3], "two micro-batches a step, two steps"
    buffers = [buffer for _, buffer, _ in trained.prepared]
    assert buffers[0] is buffers[1] and buffers[1] is not buffers[2], (
        "CRTTrainer._prepare_inputs knows a new batch by a new list"
    )
    for step, buffer, given in trained.prepared:
        assert len(buffer) == MICRO and given is buffer[step % MICRO]


def test_the_table_of_completions_holds_one_batch(trained):
    assert len(trained._logs["advantages"]) == PROBLEMS * GROUP, (
        "CRTTrainer._log_step replaces these"
    )


def test_the_row_is_logged_before_the_checkpoint_is_saved(trained):
    assert trained.order.heard == ["step", "log", "save"] * 2, (
        "an alarm in on_log keeps what is broken from being saved"
    )


def test_a_checkpoint_is_where_we_add_to_it(trained):
    folder = Path(trained._get_output_dir(trial=None)) / "checkpoint-2"
    assert (folder / "trainer_state.json").is_file(), "CRTTrainer puts objective.json beside it"
    assert json.loads((folder / "trainer_state.json").read_text())["global_step"] == 2


def test_dapo_divides_by_the_tokens_of_the_whole_batch(trained):
    """Two halves of a batch add up to the whole, however they are cut."""
    _, batch = trained.scored[-1]
    trained.model.train()
    trained.current_gradient_accumulation_steps = MICRO
    whole = dict(batch)
    halves = [
        {k: v[part] if torch.is_tensor(v) and v.ndim else v for k, v in batch.items()}
        for part in (slice(0, 5), slice(5, 16))
    ]
    with torch.no_grad():
        total = float(trained._compute_loss(trained.model, whole))
        parts = sum(float(trained._compute_loss(trained.model, half)) for half in halves)
        twice = whole | {"num_items_in_batch": 2 * batch["num_items_in_batch"]}
        half = float(trained._compute_loss(trained.model, twice))
    assert parts == pytest.approx(total, abs=1e-6), "`regroup` sorts micro-batches by length"
    assert half == pytest.approx(total / 2, abs=1e-6), "masked rows stay in the normaliser"
