# pyright: reportMissingImports=false
"""What verl loads: its synchronous trainer with our advantages, an agent loop, a reward manager.

verl finds this module by VERL_USE_EXTERNAL_MODULES, in every process of the cluster.
"""

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch
from uuid import uuid4

import numpy as np
import torch
import transfer_queue as tq
from omegaconf import OmegaConf, open_dict
from tensordict import TensorDict
from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopOutput, register
from verl.experimental.reward_loop.reward_manager.base import RewardManagerBase
from verl.protocol import DataProto
from verl.trainer.ppo.rollout_corr_helper import compute_rollout_correction_and_add_to_batch
from verl.trainer.ppo.v1.trainer_base import register_trainer
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
from verl.utils import tensordict_utils as tu
from verl.utils.import_utils import is_trl_available
from verl.utils.profiler import simple_timer
from verl.workers.utils.padding import response_to_nested

from crt.algorithm.contract import inner_of, with_inner
from crt.algorithm.objectives import state_of, with_state
from crt.algorithm.step import Step, logged_metrics, weight_by_length
from crt.config import read_dataclass
from crt.grading.grader import make_grader
from crt.io import read_json, write_json
from crt.run import Run
from crt.sampling.models import load_tokenizer
from crt.sampling.policy import (
    Response,
    decode_response,
    grade_responses,
    made_by_model,
    thinking_length,
)
from crt.training.stage import stage_of
from crt.training.verl.advantages import BatchAdvantages, decide_batch
from crt.training.verl.data import folder_of, read_info, read_reference
from crt.training.verl.overrides import NAME
from crt.training.verl.recorder import ClusterRecorder
from crt.types import Rollout, Verdict

STATE_FILE = "crt.json"  # beside verl's own files of a checkpoint
CORRECTED = ("response_mask", "old_log_probs", "rollout_log_probs")


def hide_trl() -> None:
    """TRL may be installed beside verl: 0.9.1 would import a class that TRL 1.16 does not have.

    verl asks once whether TRL is there and remembers the answer.
    """
    with patch.dict(sys.modules, {"trl": None}):
        is_trl_available()


hide_trl()


@register_trainer(NAME)
class ClusterTrainer(PPOTrainerSync):
    """The trainer of the run in `crt.run`: the whole batch decides, then one update.

    `crt.objective` has the objective's settings; whoever launches verl by hand may change them.
    """

    def __init__(self, config: Any) -> None:
        with open_dict(config):
            config.trainer.v1.trainer_mode = "sync"  # the base class asks for its own name
        self.run = Run.open(Path(config.crt.run))
        stage, model = stage_of(self.run), Path(config.actor_rollout_ref.model.path)
        settings: Any = OmegaConf.to_container(config.crt.objective, resolve=True)
        inner = read_dataclass(type(inner_of(stage.objective)), settings)
        self.objective = with_inner(stage.objective, inner)
        self.measures = self.run.config.contract.measures()
        folder, self.stage = folder_of(self.run, stage), stage.number
        self.reference = read_reference(folder.reference)
        self.recorder = ClusterRecorder(self.run, stage, folder, model)
        self.metrics: dict[str, Any] = {}
        super().__init__(config)

    def _compute_advantage(self, batch: Any, metrics: dict[str, Any]) -> Any:
        """Those of the objective, in place of verl's estimators."""
        fields = ["extra_fields", "entropy", *CORRECTED]
        if self.use_reference_policy:
            fields.append("ref_log_prob")
        data = tq.kv_batch_get(
            keys=batch.keys, partition_id=batch.partition_id, select_fields=fields
        )
        noted = data.pop("extra_fields").tolist()
        sizes = data["response_mask"].offsets().diff().tolist()
        masks = data["response_mask"].values().split(sizes)  # 0: written by a tool
        rollouts = [
            None if tag.get("is_padding") else made_by_model(rollout_of(fields), mask.tolist())
            for fields, tag, mask in zip(noted, batch.tags, masks, strict=True)
        ]
        config = self.run.config
        advantages, self.objective = decide_batch(
            self.objective,
            rollouts,
            self.reference,
            config.sampling.group_size,
            config.optim.estimator,
            config.grading.truncated,
            self.measures,
        )
        correction = self.config.algorithm.rollout_correction
        trained, weights, correction_metrics = loss_fields(data, advantages, correction)
        metrics.update(correction_metrics | token_metrics(data, trained["response_mask"]))
        if advantages.step.signal is not None:
            add_weight_by_length(advantages.step, rollouts, weights)
            metrics.update(logged_metrics(advantages.step.signal.row, self.stage))
        self.recorder.on_graded(self.global_steps, rollouts, advantages)
        return tq.kv_batch_put(keys=batch.keys, partition_id=batch.partition_id, fields=trained)

    def _update_actor(self, batch: Any, metrics: dict[str, Any]) -> Any:
        """verl's update; its metrics are kept for the step's row."""
        after = super()._update_actor(batch, metrics)
        self.metrics = dict(metrics)
        return after

    def on_step_end(self) -> None:
        """Saves before the servers wake up again, measures after they have the new weights."""
        step = self.global_steps
        self.recorder.on_updated(step, self.metrics, dict(self.timing_raw))
        save, measure, end = self.recorder.what_to_do(step)
        if save:
            self._save_checkpoint()
        super().on_step_end()
        if save:
            validation = self._sample_validation() if measure else None
            self.recorder.on_saved(step, self._checkpoint_folder, validation)
        if end:
            self.total_training_steps = step

    def _sample_validation(self) -> list[Rollout]:
        """The policy's responses to the validation problems, sampled as in verl's validation."""
        rollouts: list[Rollout] = []
        for problems in self.val_dataloader:
            count = len(problems["raw_prompt"])
            problems["uid"] = np.array([str(uuid4()) for _ in range(count)], dtype=object)
            prompts = tu.get_tensordict(problems)
            tu.assign_non_tensor_data(prompts, "global_steps", self.global_steps)
            tu.assign_non_tensor_data(prompts, "validate", True)
            tag = {"is_prompt": True, "status": "pending", "global_steps": self.global_steps}
            tq.kv_batch_put(keys=list(problems["uid"]), partition_id="val", tags=[tag] * count)
            self.agent_loop_manager.generate_sequences(prompts)
            batch, _ = self.replay_buffer.sample(
                global_steps=self.global_steps, partition_id="val", batch_size=count
            )
            data = tq.kv_batch_get(
                keys=batch.keys, partition_id=batch.partition_id, select_fields=["extra_fields"]
            )
            rollouts += map(rollout_of, data.pop("extra_fields").tolist())
            tq.kv_clear(keys=batch.keys, partition_id=batch.partition_id)
        return rollouts

    @property
    def _checkpoint_folder(self) -> Path:
        return Path(self.config.trainer.default_local_dir) / f"global_step_{self.global_steps}"

    def _save_checkpoint(self) -> None:
        """Ours first: verl notes the checkpoint as whole at its end."""
        folder = self._checkpoint_folder
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / STATE_FILE, {"memory": state_of(self.objective)})
        super()._save_checkpoint()

    def _load_checkpoint(self) -> None:
        """Also from `trainer.resume_from_path`; settings are those of now, the memory is kept."""
        super()._load_checkpoint()
        if self.global_steps:
            trainer = self.config.trainer
            named = trainer.resume_from_path if trainer.resume_mode == "resume_path" else None
            state = read_json(Path(named or self._checkpoint_folder) / STATE_FILE)
            self.objective = with_state(self.objective, state["memory"])


def rollout_of(extra_fields: dict[str, Any]) -> Rollout:
    """A graded response of verl's batch, as the reward manager noted it."""
    note = extra_fields["reward_extra_info"]["rollout"]
    return Rollout(**{**note, "verdict": Verdict(note["verdict"])})


def loss_fields(
    data: Any, advantages: BatchAdvantages, correction: Any
) -> tuple[Any, list[float] | None, dict[str, float]]:
    """What verl's loss is given, each response's mean importance weight, and verl's metrics of it.

    The correction is verl's own (`algorithm.rollout_correction`): weights of the trainer's
    probabilities against the sampler's, and tokens that it rejects. A masked row has no token in
    the loss, so it carries neither policy gradient nor KL; verl's `loss_mask`, by which the loss
    is divided, still counts its tokens, as TRL does.
    """
    nested = data["response_mask"]
    padded = DataProto(batch=data.select(*CORRECTED).to_padded_tensor())
    corrected, metrics = compute_rollout_correction_and_add_to_batch(padded, correction)
    kept = corrected.batch["response_mask"]
    masked = torch.tensor(advantages.masked)[:, None]
    values = torch.tensor(advantages.values, dtype=torch.float32)[:, None].expand(kept.shape)
    fields = {
        "advantages": values,
        "returns": values,
        "response_mask": kept.masked_fill(masked, 0).to(nested.dtype),
    }
    weights = None
    if "rollout_is_weights" in corrected.batch:
        fields["rollout_is_weights"] = corrected.batch["rollout_is_weights"]
        sums = (fields["rollout_is_weights"] * kept).sum(dim=-1)
        weights = (sums / nested.offsets().diff().clamp(min=1)).tolist()
    tensors = {name: response_to_nested(value, nested) for name, value in fields.items()}
    return TensorDict(tensors, batch_size=len(masked)), weights, metrics


def token_metrics(data: Any, mask: Any) -> dict[str, float]:
    """Entropy, and k3 to the reference, per token that is trained on; nothing if there is none."""
    kept = mask.values().bool()
    if not kept.any():
        return {}
    metrics = {"crt/entropy": data["entropy"].values()[kept].mean().item()}
    if "ref_log_prob" in data:
        log_ratio = (data["ref_log_prob"].values() - data["old_log_probs"].values())[kept]
        metrics["crt/kl"] = (log_ratio.exp() - log_ratio - 1).mean().item()
    return metrics


def add_weight_by_length(
    step: Step, rollouts: Sequence[Rollout | None], weights: Sequence[float] | None
) -> None:
    """How much responses of each length count goes into the step's row; not those verl added."""
    if weights is None or step.signal is None:
        return
    pairs = [(w, r.length) for r, w in zip(rollouts, weights, strict=True) if r is not None]
    step.signal.row["weight_by_length"] = weight_by_length(*np.array(pairs, dtype=float).T)


@register(NAME)
class PromptAgent(AgentLoopBase):
    """One response to the prompt of the data file.

    verl would render the messages with its own tokenizer and settings; the reference was sampled
    with these ids.
    """

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> Any:
        """verl's form of a response."""
        info = read_info(kwargs["extra_info"])
        prompt, max_tokens = info["prompt_ids"], info["max_tokens"]
        timing: dict[str, Any] = {}
        with simple_timer("generate_sequences", timing):
            output = await self.server_manager.generate(
                request_id=uuid4().hex,
                prompt_ids=prompt,
                sampling_params={
                    **sampling_params,
                    "max_tokens": max_tokens,
                    "stop_token_ids": list(self.config.crt.eos_token_ids),
                },
            )
        tokens = list(output.token_ids)[:max_tokens]
        return AgentLoopOutput(
            prompt_ids=prompt,
            response_ids=tokens,
            response_mask=[1] * len(tokens),
            response_logprobs=list(output.log_probs)[:max_tokens] if output.log_probs else None,
            num_turns=2,
            metrics=timing,
            extra_fields={**output.extra_fields, "turn_scores": [], "tool_rewards": []},
        )


class Correctness(RewardManagerBase):
    """1 for a correct response, 0 for any other; the graded rollout goes beside it."""

    def __init__(self, config: Any, tokenizer: Any, compute_score: Any, **_: Any) -> None:
        super().__init__(config, tokenizer, compute_score)
        self.grader = make_grader(Run.open(Path(config.crt.run)).config.grading)
        model = config.actor_rollout_ref.model
        self.own_tokenizer = load_tokenizer(Path(model.path), model.trust_remote_code)
        self.eos_token_ids = frozenset(config.crt.eos_token_ids)

    async def run_single(self, data: Any) -> dict[str, Any]:
        """verl's form of a reward."""
        item = data[-1]
        tokens, info = item.batch["responses"].tolist(), item.non_tensor_batch["extra_info"]
        rollout = await asyncio.to_thread(self._grade, tokens, read_info(info))
        correct = float(rollout.verdict is Verdict.CORRECT)
        note = asdict(rollout) | {"verdict": rollout.verdict.value}
        return {"reward_score": correct, "reward_extra_info": {"acc": correct, "rollout": note}}

    def _grade(self, tokens: list[int], info: dict[str, Any]) -> Rollout:
        ended = bool(tokens) and tokens[-1] in self.eos_token_ids
        response = Response(
            decode_response(self.own_tokenizer, tokens, self.eos_token_ids),
            len(tokens),
            "eos" if ended else "length",
            info["opens_thinking"],
            thinking_length(self.own_tokenizer, tokens, info["opens_thinking"]),
        )
        (rollout,) = grade_responses([info["problem"]], [[response]], self.grader)
        return replace(rollout, budget=info["budget"])
