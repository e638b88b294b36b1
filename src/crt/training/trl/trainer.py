"""TRL's GRPOTrainer with our advantages: the batch of all ranks decides, then one update."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from accelerate.utils import gather_object
from torch import Tensor
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR
from trl.trainer.grpo_trainer import GRPOTrainer

from crt.algorithm.advantages import Estimator
from crt.algorithm.batch import TOKENS_ALONE, Array, Batch, BoolArray, Measures, TruncatedAs
from crt.algorithm.objectives import Objective, state_of, with_state
from crt.algorithm.step import ReferenceFor, Step, decide, logged_metrics, weight_by_length
from crt.data.prompts import opens_thinking
from crt.errors import ConfigError
from crt.io import read_json, write_json
from crt.sampling.hf import denormals_flushed
from crt.sampling.policy import decode_response, made_by_model, thinking_length
from crt.training.trl.micro_batches import can_share_prefixes, completion_logprobs, regroup
from crt.training.trl.rollouts import Correctness
from crt.types import Rollout, Verdict

STATE_FILE = "objective.json"
TAIL = 16  # tokens of a prompt, in which a template may open the thinking


class CRTTrainer(GRPOTrainer):
    """In place of `GRPOTrainer`, with an objective and the reference it guards against.

    The data set needs the column `problem_id`, `budget` if prompts state one, and `dataset` if a
    line of a contract is about one of several data sets. The one reward
    function says 1 for a correct response, 0 for a wrong one and None for one that could not be
    graded. `reference` holds rollouts of the frozen policy for every problem, or finds them by id.
    `on_step` is called after every decision, the same on every rank. `off_policy` says that another
    model writes the responses: the ratio of the update is then to the probabilities it gave them.
    """

    measures: Measures = TOKENS_ALONE

    def __init__(
        self,
        *args: Any,
        objective: Objective,
        reference: Batch | ReferenceFor,
        estimator: Estimator = "group_std",
        truncated_as: TruncatedAs = "wrong",
        measures: Measures = TOKENS_ALONE,
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
        self.measures = measures
        self.stage, self.off_policy, self.on_step = stage, off_policy, on_step
        self.rollouts: list[Rollout] = []  # of the last step, of all ranks
        self.advantages: Array = np.zeros((0, 0))  # (P, G) theirs
        self.finite_logprobs = True  # of what was sampled, on every rank
        _require_one_update_per_batch(self)
        _require_references(self.train_dataset, reference)

    def train(self, *args: Any, **kwargs: Any) -> Any:
        """TRL's; attention weights below 1e-38 would make a CPU crawl, so they are 0 in it."""
        with denormals_flushed():
            return super().train(*args, **kwargs)

    # --- a batch is sampled, graded and decided --------------------------------------------------

    def _calculate_rewards(
        self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any
    ) -> Tensor:
        """TRL's rewards of all ranks; beside them the graded rollouts of all ranks."""
        rewards = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        reward_func = self.reward_funcs[0]
        if isinstance(reward_func, Correctness):
            mine = reward_func.rollouts
        else:
            own = rewards[self._share(len(inputs)), 0].tolist()
            tokenizer: Any = self._tokenizer
            end = {*self.eos_token_ids, tokenizer.pad_token_id}
            mine = rollouts_from_rewards(inputs, completion_ids_list, own, end, tokenizer)
        budgets = [example.get("budget") for example in inputs]
        self.rollouts = gather_object(
            [replace(rollout, budget=b) for rollout, b in zip(mine, budgets, strict=True)]
        )
        return rewards

    def _generate_and_score_completions(self, inputs: Any) -> dict[str, Any]:
        """TRL's batch with the advantages replaced by those of the objective."""
        output = super()._generate_and_score_completions(inputs)
        if not self.is_training:
            return output
        logprobs = output.get("sampling_per_token_logps")  # TRL's own `generate` gives none
        if logprobs is not None:
            gathered: Any = self.accelerator.gather(logprobs.isfinite().all()[None])
            self.finite_logprobs = bool(gathered.all())
        if self.off_policy:
            output["old_per_token_logps"] = output["sampling_per_token_logps"]
        if self.measures.numbers and not isinstance(self.reward_funcs[0], Correctness):
            self._count_opened(output["prompt_ids"])
        if "tool_mask" in output:
            self._leave_out_tools(output["tool_mask"] * output["completion_mask"])
        step = self._with_weights(self._decide(), output)
        values = self.advantages.reshape(-1)
        mine = self._share(len(inputs))
        output["advantages"] = torch.tensor(values[mine]).to(output["advantages"])
        # What has no part in the policy gradient must carry no KL either.
        output["completion_mask"][torch.tensor(self._without_gradient()[mine])] = 0
        self._log_step(values.tolist(), step)
        if self.on_step is not None:
            self.on_step(step)
        return output

    def _decide(self) -> Step:
        """Advantages of all rollouts, 0 for problems left out; the same on every rank."""
        self.advantages, step, self.objective = decide(
            *(self.objective, self.rollouts, self.reference),
            *(self.estimator, self.truncated_as, self.measures),
        )
        return step

    def _count_opened(self, prompt_ids: Tensor) -> None:
        """Where the prompt ends inside <think>, thinking that never ends is all there is."""
        tokenizer: Any = self._tokenizer
        tails = [tokenizer.decode(ids) for ids in prompt_ids[:, -TAIL:].tolist()]
        pairs = zip(self.rollouts[self._share(len(tails))], tails, strict=True)
        self.rollouts = gather_object(
            [
                replace(one, thinking=one.thinking or one.length) if opens_thinking(tail) else one
                for one, tail in pairs
            ]
        )

    def _leave_out_tools(self, mask: Tensor) -> None:
        """What a tool or an environment wrote is no length of the model's."""
        pairs = zip(self.rollouts[self._share(len(mask))], mask.tolist(), strict=True)
        self.rollouts = gather_object([made_by_model(*pair) for pair in pairs])

    def _share(self, rows: int) -> slice:
        """This rank's rows among those of all ranks."""
        first = self.accelerator.process_index * rows
        return slice(first, first + rows)

    def _without_gradient(self) -> BoolArray:
        """(P · G,) Rollouts of groups without a signal, and muted ones."""
        silent = np.repeat(~self.advantages.any(axis=1), self.advantages.shape[1])
        if self.truncated_as != "mask":
            return silent
        return silent | np.array([rollout.stop == "length" for rollout in self.rollouts])

    def _with_weights(self, step: Step, output: dict[str, Any]) -> Step:
        """The step with how much responses of each length count, where vLLM's are corrected."""
        ratio = output.get("importance_sampling_ratio")  # (rows, tokens)
        if ratio is None or step.signal is None:
            return step
        mask = output["completion_mask"]
        weight = (ratio * mask).sum(1) / mask.sum(1).clamp(min=1)
        gathered: Any = self.accelerator.gather(weight)
        lengths = np.array([rollout.length for rollout in self.rollouts], dtype=float)
        by_length = weight_by_length(gathered.float().cpu().numpy(), lengths)
        row = step.signal.row | {"weight_by_length": by_length}
        return replace(step, signal=replace(step.signal, row=row))

    def _log_step(self, advantages: list[float], step: Step) -> None:
        """TRL's table of completions has our advantages, and its loggers our row as `crt/*`."""
        logged = self._logs["advantages"]
        for _ in advantages:
            logged.pop()
        logged.extend(advantages)
        if step.signal is not None:
            for name, value in logged_metrics(step.signal.row, self.stage).items():
                self._metrics["train"][name].append(value)

    # --- the update, on fewer tokens -------------------------------------------------------------

    def _prepare_inputs(self, generation_batch: Any) -> Any:
        """TRL's micro-batches, regrouped and trimmed whenever they are new."""
        before = self._buffered_inputs
        inputs = super()._prepare_inputs(generation_batch)
        if not self.is_training or self._buffered_inputs is before:
            return inputs
        positions = self._buffered_inputs[0]["completion_ids"].numel()
        by_prefix = can_share_prefixes(self.model, positions)
        self._buffered_inputs = regroup(self._buffered_inputs, by_prefix)
        return self._buffered_inputs[self._step % len(self._buffered_inputs)]

    def _get_per_token_logps_and_entropies(
        self,
        model: Any,
        input_ids: Tensor,
        attention_mask: Tensor,
        logits_to_keep: int,
        batch_size: int | None = None,
        compute_entropy: bool = False,
        **others: Any,
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Shared beginnings once where the model allows it; images and routers go TRL's way."""
        size = batch_size or len(input_ids)
        plain = all(value is None or value is False for value in others.values())
        if not plain or not can_share_prefixes(model, size * logits_to_keep):
            return super()._get_per_token_logps_and_entropies(
                model, input_ids, attention_mask, logits_to_keep, batch_size,
                compute_entropy=compute_entropy, **others,
            )  # fmt: skip
        with self.accelerator.autocast():
            parts = [
                completion_logprobs(model, ids, mask, logits_to_keep, self.temperature)
                for ids, mask in zip(input_ids.split(size), attention_mask.split(size), strict=True)
            ]
        logprobs, entropies = (torch.cat(columns) for columns in zip(*parts, strict=True))
        return logprobs, entropies if compute_entropy else None, None

    def _compute_loss(self, model: Any, inputs: Any) -> Tensor:
        """TRL's loss; where all ranks have masked rows alone, no entropy and KL rather than 0."""
        loss = super()._compute_loss(model, inputs)
        if not self.is_training:
            return loss
        trained: Any = self.accelerator.gather(inputs["completion_mask"].any()[None])
        if not trained.any():
            metrics = self._metrics["train"]
            for name in metrics.keys() & {"entropy", "kl"}:
                metrics[name].pop()
                if not metrics[name]:
                    del metrics[name]
        return loss

    @property
    def is_training(self) -> bool:
        """And not evaluating."""
        return cast(torch.nn.Module, self.model).training

    # --- saved and resumed -----------------------------------------------------------------------

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        """The objective's memory goes with the checkpoint."""
        super()._save_checkpoint(model, trial)
        if self.args.should_save:
            name = f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}"
            folder = Path(self._get_output_dir(trial=trial)) / name
            write_json(folder / STATE_FILE, state_of(self.objective))

    def _load_optimizer_and_scheduler(self, checkpoint: Any) -> None:
        """On resuming the objective's memory and the trained adapter come back too.

        TRL keeps a copy of the adapter a stage starts from as `ref`; transformers finds that folder
        in the checkpoint, loads what is in it, and leaves out the adapter beside it.
        """
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is None:
            return
        if (Path(checkpoint) / STATE_FILE).exists():
            self.objective = with_state(self.objective, read_json(Path(checkpoint) / STATE_FILE))
        adapted: Any = self.accelerator.unwrap_model(self.model)
        beside = Path(checkpoint) / "adapter_model.safetensors"
        if beside.is_file() and "ref" in getattr(adapted, "peft_config", {}):
            adapted.load_adapter(checkpoint, "default", is_trainable=True)
            adapted.set_adapter("default")


def rollouts_from_rewards(
    inputs: Sequence[Any],
    completion_ids: Sequence[Sequence[int]],
    rewards: Sequence[float],
    eos_token_ids: set[Any],
    tokenizer: Any,
) -> list[Rollout]:
    """The rollouts of a user's own reward function, which says no more than the verdict."""
    return [
        Rollout(
            example["problem_id"],
            decode_response(tokenizer, token_ids, eos_token_ids),
            len(token_ids),
            "eos" if token_ids[-1] in eos_token_ids else "length",
            _verdict(reward),
            dataset=example.get("dataset") or "",
            thinking=thinking_length(tokenizer, token_ids),
        )
        for example, token_ids, reward in zip(inputs, completion_ids, rewards, strict=True)
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


def _require_one_update_per_batch(trainer: GRPOTrainer) -> None:
    """The guard's decision is about the policy that sampled; a second update would be another's."""
    args: Any = trainer.args
    if args.steps_per_generation != args.gradient_accumulation_steps or trainer.num_iterations != 1:
        raise ConfigError(
            f"steps_per_generation = {args.steps_per_generation}, gradient_accumulation_steps = "
            f"{args.gradient_accumulation_steps} and num_iterations = {trainer.num_iterations}: "
            "the objective decides once per batch, so the first two must be equal and the last 1."
        )
    if len(trainer.reward_funcs) != 1:
        raise ConfigError(
            f"{len(trainer.reward_funcs)} reward functions: one is needed, which says whether a "
            "response is correct. Length is the objective's part."
        )
