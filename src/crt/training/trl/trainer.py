"""TRL's GRPOTrainer with our advantages: the batch of all ranks decides, then one update."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from accelerate.utils import gather_object
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR
from trl.trainer.grpo_trainer import GRPOTrainer

from crt.algorithm.advantages import Estimator
from crt.algorithm.batch import Array, Batch, BoolArray, TruncatedAs
from crt.algorithm.objectives import Objective, state_of, with_state
from crt.algorithm.step import ReferenceFor, Step, decide, logged_metrics, weight_by_length
from crt.errors import ConfigError
from crt.io import read_json, write_json
from crt.sampling.hf import denormals_flushed
from crt.training.trl.logprobs import fits, logprobs_and_entropies, shares
from crt.training.trl.micro_batches import left_aligned, packed, said_once, scored_in_parts
from crt.types import Rollout, Verdict

STATE_FILE = "objective.json"


class CRTTrainer(GRPOTrainer):
    """In place of `GRPOTrainer`, with an objective and the reference it guards against.

    The data set needs the column `problem_id`, and `budget` if prompts state one; the one reward
    function says 1 for a correct response, 0 for a wrong one and None for one that could not be
    graded. `reference` holds rollouts of the frozen policy for every problem, or finds them by id.
    `on_step` is told of every step, the same on every rank. `off_policy` says that another model
    writes the responses: the ratio of the update is then to the probabilities it gave them.
    """

    def __init__(
        self,
        *args: Any,
        objective: Objective,
        reference: Batch | ReferenceFor,
        estimator: Estimator = "group_std",
        truncated_as: TruncatedAs = "wrong",
        stage: int = 1,
        off_policy: bool = False,
        on_step: Callable[[Step], None] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.objective: Objective = objective
        self.reference = reference.select if isinstance(reference, Batch) else reference
        self.estimator: Estimator = estimator
        self.truncated_as: TruncatedAs = truncated_as
        self.stage, self.off_policy = stage, off_policy
        self.on_step = on_step
        self._generated: list[tuple[str, int, bool]] = []
        self._budgets: list[int | None] = []
        self._rewards = torch.zeros(0)
        self.says_numbers = True  # whether what was sampled had probabilities, on every rank
        self._ends = {*self.eos_token_ids, cast(int, self._tokenizer.pad_token_id)}
        _require_one_update_a_batch(self)
        _require_references(self.train_dataset, reference)

    def _calculate_rewards(
        self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any
    ) -> torch.Tensor:
        """TRL's rewards of all ranks; beside them each rollout's problem, length and end."""
        rewards = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        mine = [
            (example["problem_id"], len(ids), ids[-1] not in self._ends)
            for example, ids in zip(inputs, completion_ids_list, strict=True)
        ]
        self._generated = gather_object(mine)
        self._budgets = gather_object([example.get("budget") for example in inputs])
        self._rewards = rewards[:, 0]
        return rewards

    def _generate_and_score_completions(self, inputs: Any) -> dict[str, Any]:
        """TRL's batch with the advantages replaced by those of the objective."""
        output = super()._generate_and_score_completions(inputs)
        if not self._training:
            return output
        logprobs = output.get("sampling_per_token_logps")  # TRL's own `generate` tells none
        if logprobs is not None:
            gathered: Any = self.accelerator.gather(logprobs.isfinite().all()[None])
            self.says_numbers = bool(gathered.all())
        if self.off_policy:
            output["old_per_token_logps"] = output["sampling_per_token_logps"]
        advantages, step = self._decide()
        values = torch.tensor(advantages.reshape(-1), dtype=torch.float32)
        mine = slice(
            self.accelerator.process_index * len(inputs),
            (self.accelerator.process_index + 1) * len(inputs),
        )
        output["advantages"] = values[mine].to(output["advantages"])
        step = self._with_weights(step, output)
        # Who has no part in the policy gradient must carry no KL either.
        output["completion_mask"][torch.tensor(self._without_gradient(advantages)[mine])] = 0
        self._show(values.tolist(), step)
        if self.on_step is not None:
            self.on_step(step)
        return said_once(output) if self._may_weigh and "tool_mask" not in output else output

    def _decide(self) -> tuple[Array, Step]:
        """(P, G) advantages, 0 for problems left out; the same on every rank."""
        rollouts = rollouts_of(self._generated, self._rewards, self._budgets)
        advantages, step, self.objective = decide(
            self.objective, rollouts, self.reference, self.estimator, self.truncated_as
        )
        return advantages, step

    def _without_gradient(self, advantages: Array) -> BoolArray:
        """(P · G,) Rollouts of silent groups, and muted ones."""
        silent = np.repeat(~advantages.any(axis=1), advantages.shape[1])
        if self.truncated_as != "mask":
            return silent
        return silent | np.array([truncated for _, _, truncated in self._generated])

    def _with_weights(self, step: Step, output: dict[str, Any]) -> Step:
        """The step with how much responses of each length count, where vLLM's are corrected."""
        ratio = output.get("importance_sampling_ratio")  # (rows, tokens)
        if ratio is None or step.signal is None:
            return step
        mask = output["completion_mask"]
        weight = (ratio * mask).sum(1) / mask.sum(1).clamp(min=1)
        gathered: Any = self.accelerator.gather(weight)
        lengths = np.array([length for _, length, _ in self._generated], dtype=float)
        by_length = weight_by_length(gathered.float().cpu().numpy(), lengths)
        row = step.signal.row | {"weight_by_length": by_length}
        return replace(step, signal=replace(step.signal, row=row))

    def _show(self, advantages: list[float], step: Step) -> None:
        """TRL's table of completions has our advantages, and its loggers our row as `crt/*`."""
        logged = self._logs["advantages"]
        for _ in advantages:
            logged.pop()
        logged.extend(advantages)
        if step.signal is not None:
            for name, value in logged_metrics(step.signal.row, self.stage).items():
                self._metrics["train"][name].append(value)

    def training_step(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        """TRL's step. Attention weights below 1e-38 would make a CPU crawl, so they are 0 in it."""
        with denormals_flushed():
            return super().training_step(*args, **kwargs)

    def _prepare_inputs(self, generation_batch: Any) -> Any:
        """TRL's micro-batches, regrouped without the padding; the loss is the same."""
        before = self._buffered_inputs
        inputs = super()._prepare_inputs(generation_batch)
        if not self._training or self._buffered_inputs is before:
            return inputs
        alike = shares(self.model, self._buffered_inputs[0]["completion_ids"].numel())
        self._buffered_inputs = packed(self._buffered_inputs, alike)
        return self._buffered_inputs[self._step % len(self._buffered_inputs)]

    def _get_per_token_logps_and_entropies(
        self,
        model: Any,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        logits_to_keep: int,
        batch_size: int | None = None,
        compute_entropy: bool = False,
        **others: Any,
    ) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
        """TRL's log-probabilities, spared the padding; images and router losses go as they came."""
        whole = super()._get_per_token_logps_and_entropies
        if any(value is not None and value is not False for value in others.values()):
            others["compute_entropy"] = compute_entropy
            return whole(model, input_ids, attention_mask, logits_to_keep, batch_size, **others)

        def score(ids: torch.Tensor, mask: torch.Tensor, width: int) -> tuple[torch.Tensor, ...]:
            rows = left_aligned(ids, mask, width)
            if fits(model, len(ids) * (rows.kept + 1)):
                with self.accelerator.autocast():
                    found = logprobs_and_entropies(
                        model, rows.ids, mask.sum(1), rows.kept, self.temperature
                    )
            else:
                # Said to be whole, so that attention is causal: nobody looks at what pads them.
                ones = torch.ones_like(rows.ids)
                found = whole(model, rows.ids, ones, rows.kept, compute_entropy=compute_entropy)
            return tuple(rows.completions(each) for each in found if each is not None)

        if torch.is_grad_enabled():
            found = score(input_ids, attention_mask, logits_to_keep)
            return found[0], found[1] if compute_entropy else None, None
        at_once = batch_size or len(input_ids)
        logprobs = scored_in_parts(
            lambda *rows: score(*rows)[0],
            input_ids,
            attention_mask,
            logits_to_keep,
            at_once,
            shares(model, at_once * logits_to_keep),
        )
        return logprobs, None, None

    def _compute_loss(self, model: Any, inputs: Any) -> torch.Tensor:
        """TRL's loss; masked rows alone have no entropy and no distance, rather than 0."""
        loss = super()._compute_loss(model, inputs)
        if self._training and not inputs["completion_mask"].any():
            figures = self._metrics["train"]
            for name in figures.keys() & {"entropy", "kl"}:
                figures[name].pop()
                if not figures[name]:
                    del figures[name]
        return loss

    @property
    def _may_weigh(self) -> bool:
        """Whether a row's tokens may count several times: the loss is a sum over them, of no other
        policy's responses. On a GPU nobody says the same twice, and rows are long to compare."""
        return (
            self.accelerator.device.type == "cpu"
            and self.loss_type == "dapo"
            and self.importance_sampling_level == "token"
            and self.top_entropy_quantile == 1.0
            and not self.use_vllm
            and not self.off_policy
        )

    @property
    def _training(self) -> bool:
        return cast(torch.nn.Module, self.model).training

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        """The objective's memory goes with the checkpoint."""
        super()._save_checkpoint(model, trial)
        if self.args.should_save:
            name = f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}"
            folder = Path(self._get_output_dir(trial=trial)) / name
            write_json(folder / STATE_FILE, state_of(self.objective))

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        """The adapter that is trained comes back too.

        TRL keeps a copy of the adapter a stage starts from as `ref`; transformers finds that folder
        in the checkpoint, loads what is in it, and leaves out the adapter beside it.
        """
        super()._load_from_checkpoint(resume_from_checkpoint, model)
        adapted: Any = self.accelerator.unwrap_model(model or self.model)
        beside = Path(resume_from_checkpoint) / "adapter_model.safetensors"
        if beside.is_file() and "ref" in getattr(adapted, "peft_config", {}):
            adapted.load_adapter(resume_from_checkpoint, "default", is_trainable=True)
            adapted.set_adapter("default")

    def _load_optimizer_and_scheduler(self, checkpoint: Any) -> None:
        """On resuming the objective's memory comes back with the optimiser's."""
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is not None and (Path(checkpoint) / STATE_FILE).exists():
            self.objective = with_state(self.objective, read_json(Path(checkpoint) / STATE_FILE))


def rollouts_of(
    generated: Sequence[tuple[str, int, bool]],
    rewards: torch.Tensor,
    budgets: Sequence[int | None],
) -> list[Rollout]:
    """TRL's rollouts as ours; the reward is the verdict."""
    return [
        Rollout(name, "", length, "length" if cut else "eos", _verdict(reward), None, budget)
        for (name, length, cut), reward, budget in zip(
            generated, rewards.tolist(), budgets, strict=True
        )
    ]


def _verdict(reward: float) -> Verdict:
    if math.isnan(reward):
        return Verdict.UNGRADED
    if reward not in (0.0, 1.0):
        raise ConfigError(
            f"The reward function returned {reward}: it must say 1 for a correct response, 0 for "
            "a wrong one, None for one that could not be graded. Length is the objective's part."
        )
    return Verdict.CORRECT if reward else Verdict.WRONG


def _require_references(dataset: Any, reference: Batch | ReferenceFor) -> None:
    """Every problem needs its name and, where the reference is given whole, its rollouts."""
    columns = getattr(dataset, "column_names", None)
    if columns is None:
        return  # a stream: its rows are seen when they come
    if "problem_id" not in columns:
        raise ConfigError(
            f"the data set has the columns {', '.join(columns)}: it needs `problem_id`, by which "
            "the reference's rollouts of a problem are found."
        )
    if isinstance(reference, Batch):
        reference.select(list(dict.fromkeys(dataset["problem_id"])))


def _require_one_update_a_batch(trainer: GRPOTrainer) -> None:
    """The guard's decision is about the policy that sampled; a second update would be another's."""
    args: Any = trainer.args
    if args.steps_per_generation != args.gradient_accumulation_steps or trainer.num_iterations != 1:
        raise ConfigError(
            f"steps_per_generation = {args.steps_per_generation}, gradient_accumulation_steps = "
            f"{args.gradient_accumulation_steps} and num_iterations = {trainer.num_iterations}: "
            "the objective decides once a batch, so the first two must be equal and the last 1."
        )
    if len(trainer.reward_funcs) != 1:
        raise ConfigError(
            f"{len(trainer.reward_funcs)} reward functions: one is needed, which says whether a "
            "response is correct. Length is the objective's part."
        )
