"""verl's synchronous trainer with our advantages: the whole batch decides, then one update."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol
from uuid import uuid4

import numpy as np
import torch
import transfer_queue as tq  # pyright: ignore[reportMissingImports]
from omegaconf import OmegaConf, open_dict  # pyright: ignore[reportMissingImports]
from tensordict import TensorDict  # pyright: ignore[reportMissingImports]
from verl.protocol import DataProto  # pyright: ignore[reportMissingImports]
from verl.trainer.ppo.rollout_corr_helper import (  # pyright: ignore[reportMissingImports]
    compute_rollout_correction_and_add_to_batch,
)
from verl.trainer.ppo.v1.trainer_sync import (  # pyright: ignore[reportMissingImports]
    PPOTrainerSync,
)
from verl.utils import tensordict_utils as tu  # pyright: ignore[reportMissingImports]
from verl.workers.utils.padding import (  # pyright: ignore[reportMissingImports]
    response_to_nested,
)

from crt.algorithm.step import logged_metrics, weight_by_length
from crt.io import read_json, write_json
from crt.run import Run
from crt.training.verl.hook import REFERENCE, Decided, Row, decided
from crt.training.verl.state import STATE_FILE, frozen, objective_from, restored, saved
from crt.types import Verdict

CORRECTED = ("response_mask", "old_log_probs", "rollout_log_probs")


class Watch(Protocol):
    """Who keeps what a step leaves behind, and says when to save and to end."""

    def on_graded(self, step: int, rows: Sequence[Row | None], decided: Decided) -> None:
        """A batch is sampled, graded and decided; the update comes after."""
        ...

    def on_updated(self, step: int, told: dict[str, Any], seconds: dict[str, float]) -> None:
        """The update is done."""
        ...

    def wants(self, step: int) -> tuple[bool, bool, bool]:
        """Whether to save now, to measure what is saved, and to end."""
        ...

    def on_saved(self, step: int, folder: Path, measured: Sequence[Row] | None) -> None:
        """verl's checkpoint is there, and the policy's responses to the validation problems."""
        ...


class ClusterTrainer(PPOTrainerSync):
    """In place of verl's trainer; `crt.*` of its configuration says what is optimised."""

    def __init__(self, config: Any, run: Run, watch: Watch) -> None:
        with open_dict(config):
            config.trainer.v1.trainer_mode = "sync"  # the base class asks for its own name
        self.start: dict[str, Any] = OmegaConf.to_container(config.crt.objective, resolve=True)
        self.objective = objective_from(self.start)
        self.run, self.watch, self.stage = run, watch, int(config.crt.stage)
        self.reference: dict[str, Any] = {}
        self.figures: dict[str, Any] = {}
        super().__init__(config)

    def _init_dataloader(self) -> None:
        """verl's data; the reference's columns stay as they are from here on."""
        super()._init_dataloader()
        infos = self.train_dataset.dataframe["extra_info"]
        self.reference = {
            info["problem_id"]: {name: list(info[name]) for name in REFERENCE} for info in infos
        }

    def _compute_advantage(self, batch: Any, metrics: dict[str, Any]) -> Any:
        """Those of the objective, in place of verl's estimators."""
        fields = ["extra_info", "extra_fields", "entropy", *CORRECTED]
        if self.use_reference_policy:
            fields.append("ref_log_prob")
        data = tq.kv_batch_get(
            keys=batch.keys, partition_id=batch.partition_id, select_fields=fields
        )
        rows = self._rows(data, [bool(tag.get("is_padding", False)) for tag in batch.tags])
        settings = self.run.config
        found, self.objective = decided(
            self.objective,
            rows,
            settings.sampling.group_size,
            settings.optim.estimator,
            settings.grading.truncated,
        )
        correction = self.config.algorithm.rollout_correction
        trained, weights, measured = loss_fields(data, found, correction)
        metrics.update(measured | trained_on(data, trained["response_mask"]))
        found = with_weights(found, rows, weights)
        if found.step.signal is not None:
            metrics.update(logged_metrics(found.step.signal.row, self.stage))
        self.watch.on_graded(self.global_steps, rows, found)
        return tq.kv_batch_put(keys=batch.keys, partition_id=batch.partition_id, fields=trained)

    def _rows(self, data: Any, padding: Sequence[bool]) -> list[Row | None]:
        """verl's batch as ours, with the reference as it was frozen."""
        infos, extras = data.pop("extra_info").tolist(), data.pop("extra_fields").tolist()
        return [
            None if added else row_of(info | self.reference.get(info["problem_id"], {}), extra)
            for info, extra, added in zip(infos, extras, padding, strict=True)
        ]

    def _update_actor(self, batch: Any, metrics: dict[str, Any]) -> Any:
        """verl's update; what it says is kept for the step's row."""
        after = super()._update_actor(batch, metrics)
        self.figures = dict(metrics)
        return after

    def on_step_end(self) -> None:
        """Saves before the servers wake up again, measures after they have the new weights."""
        self.watch.on_updated(self.global_steps, self.figures, dict(self.timing_raw))
        save, measure, end = self.watch.wants(self.global_steps)
        if save:
            self._save_checkpoint()
        super().on_step_end()
        if save:
            folder = Path(self.config.trainer.default_local_dir)
            self.watch.on_saved(
                self.global_steps,
                folder / f"global_step_{self.global_steps}",
                self._on_validation() if measure else None,
            )
        if end:
            self.total_training_steps = self.global_steps

    def _on_validation(self) -> list[Row]:
        """The policy's responses to the validation problems, asked as verl's own validation."""
        told: list[Row] = []
        for asked in self.val_dataloader:
            count = len(asked["raw_prompt"])
            asked["uid"] = np.array([str(uuid4()) for _ in range(count)], dtype=object)
            prompts = tu.get_tensordict(asked)
            tu.assign_non_tensor_data(prompts, "global_steps", self.global_steps)
            tu.assign_non_tensor_data(prompts, "validate", True)
            tag = {"is_prompt": True, "status": "pending", "global_steps": self.global_steps}
            tq.kv_batch_put(keys=list(asked["uid"]), partition_id="val", tags=[tag] * count)
            self.agent_loop_manager.generate_sequences(prompts)
            batch, _ = self.replay_buffer.sample(
                global_steps=self.global_steps, partition_id="val", batch_size=count
            )
            data = tq.kv_batch_get(
                keys=batch.keys,
                partition_id=batch.partition_id,
                select_fields=["extra_info", "extra_fields"],
            )
            infos, extras = data.pop("extra_info").tolist(), data.pop("extra_fields").tolist()
            told += [row_of(info, extra) for info, extra in zip(infos, extras, strict=True)]
            tq.kv_clear(keys=batch.keys, partition_id=batch.partition_id)
        return told

    def _save_checkpoint(self) -> None:
        """Ours first: verl notes the checkpoint as whole at its end."""
        folder = Path(self.config.trainer.default_local_dir) / f"global_step_{self.global_steps}"
        folder.mkdir(parents=True, exist_ok=True)
        records = self.run.checkpoints
        kept = saved(self.objective, self.start, self.stage, records, self.reference)
        write_json(folder / STATE_FILE, kept)
        super()._save_checkpoint()

    def _load_checkpoint(self) -> None:
        """Also from `trainer.resume_from_path`; what was changed since is said."""
        super()._load_checkpoint()
        if not self.global_steps:
            return
        trainer = self.config.trainer
        named = trainer.resume_from_path if trainer.resume_mode == "resume_path" else None
        folder = named or f"{trainer.default_local_dir}/global_step_{self.global_steps}"
        kept = read_json(Path(folder) / STATE_FILE)
        self.objective, changed = restored(self.objective, kept)
        self.reference, others = frozen(kept, self.reference)
        for word in (*changed, *others):
            print(f"Note: {word}", flush=True)


def row_of(info: Any, extra: Any) -> Row:
    """A response with what the reward manager noted of it."""
    told = extra["reward_extra_info"]
    return Row(
        info, told["text"], told["tokens"], told["stop"], Verdict(told["verdict"]),
        told["extracted"],
    )  # fmt: skip


def loss_fields(
    data: Any, found: Decided, correction: Any
) -> tuple[Any, list[float] | None, dict[str, float]]:
    """What verl's loss is given, each response's mean importance weight, and verl's figures of it.

    The correction is verl's own (`algorithm.rollout_correction`): weights of the trainer's
    probabilities against the sampler's, and tokens that it rejects. A masked row has no token in
    the loss, so it carries neither policy gradient nor KL; verl's `loss_mask`, by which the loss
    is divided, still counts its tokens, as TRL does.
    """
    nested = data["response_mask"]
    padded = DataProto(batch=data.select(*CORRECTED).to_padded_tensor())
    lengths = nested.offsets().diff()
    corrected, measured = compute_rollout_correction_and_add_to_batch(padded, correction)
    kept = corrected.batch["response_mask"]
    masked = torch.tensor(found.masked)[:, None]
    advantages = torch.tensor(found.advantages, dtype=torch.float32)[:, None].expand(kept.shape)
    fields = {
        "advantages": advantages,
        "returns": advantages,
        "response_mask": kept.masked_fill(masked, 0).to(nested.dtype),
    }
    weights = None
    if "rollout_is_weights" in corrected.batch:
        fields["rollout_is_weights"] = corrected.batch["rollout_is_weights"]
        sums = (corrected.batch["rollout_is_weights"] * kept).sum(dim=-1)
        weights = (sums / lengths.clamp(min=1)).tolist()
    told = {name: response_to_nested(value, nested) for name, value in fields.items()}
    return TensorDict(told, batch_size=len(found.masked)), weights, measured


def trained_on(data: Any, mask: Any) -> dict[str, float]:
    """Entropy, and k3 to the reference, per token that is trained on; nothing if there is none."""
    kept = mask.values().bool()
    if not kept.any():
        return {}
    figures = {"crt/entropy": data["entropy"].values()[kept].mean().item()}
    if "ref_log_prob" in data:
        apart = (data["ref_log_prob"].values() - data["old_log_probs"].values())[kept]
        figures["crt/kl"] = (apart.exp() - apart - 1).mean().item()
    return figures


def with_weights(
    found: Decided, rows: Sequence[Row | None], weights: Sequence[float] | None
) -> Decided:
    """The step with how much responses of each length count; not those that verl added."""
    if weights is None or found.step.signal is None:
        return found
    pairs = [(each, row.tokens) for row, each in zip(rows, weights, strict=True) if row is not None]
    by_length = weight_by_length(*np.array(pairs, dtype=float).T)
    row = found.step.signal.row | {"weight_by_length": by_length}
    return replace(found, step=replace(found.step, signal=replace(found.step.signal, row=row)))
