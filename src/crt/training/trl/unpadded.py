"""TRL's update without the padding: rows alike together, and what they share computed once."""

from typing import Any, cast

import torch
from torch import Tensor
from trl.trainer.grpo_trainer import GRPOTrainer

from crt.sampling.hf import denormals_flushed
from crt.training.trl.prefix_tree import completion_logprobs, tree_fits

MicroBatch = dict[str, Any]


class UnpaddedGRPOTrainer(GRPOTrainer):
    """`GRPOTrainer` with the same loss, computed on fewer tokens."""

    def train(self, *args: Any, **kwargs: Any) -> Any:
        """TRL's; attention weights below 1e-38 would make a CPU crawl, so they are 0 in it."""
        with denormals_flushed():
            return super().train(*args, **kwargs)

    def _prepare_inputs(self, generation_batch: Any) -> Any:
        """TRL's micro-batches, regrouped and trimmed whenever they are new."""
        before = self._buffered_inputs
        inputs = super()._prepare_inputs(generation_batch)
        if not self.is_training or self._buffered_inputs is before:
            return inputs
        shared = tree_fits(self.model, self._buffered_inputs[0]["completion_ids"].numel())
        self._buffered_inputs = regroup(self._buffered_inputs, by_prefix=shared)
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
        """Through the prefix tree where the model allows it; images and routers go TRL's way."""
        batch_size = batch_size or len(input_ids)
        plain = all(value is None or value is False for value in others.values())
        if not plain or not tree_fits(model, batch_size * logits_to_keep):
            return super()._get_per_token_logps_and_entropies(
                model, input_ids, attention_mask, logits_to_keep, batch_size,
                compute_entropy=compute_entropy, **others,
            )  # fmt: skip
        parts: list[tuple[Tensor, Tensor]] = []
        for first in range(0, len(input_ids), batch_size):
            ids, mask = (x[first : first + batch_size] for x in (input_ids, attention_mask))
            with self.accelerator.autocast():
                part = completion_logprobs(model, ids, mask, logits_to_keep, self.temperature)
            parts.append(part)
        logprobs, entropies = (torch.cat(columns) for columns in zip(*parts, strict=True))
        return logprobs, entropies if compute_entropy else None, None

    def _compute_loss(self, model: Any, inputs: Any) -> Tensor:
        """TRL's loss; masked rows alone have no entropy and no distance, rather than 0."""
        loss = super()._compute_loss(model, inputs)
        if self.is_training and not inputs["completion_mask"].any():
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


def regroup(batches: list[MicroBatch], by_prefix: bool) -> list[MicroBatch]:
    """The same rows in another order, trimmed to width; what is masked costs next to nothing.

    Rows of like length come together, or rows that begin alike. Sums over the whole batch, which
    the token-mean loss is made of, do not change. Batches with images are left as they are.
    """
    if any(name in batches[0] for name in ("pixel_values", "num_images")):
        return batches
    rows = len(batches[0]["completion_ids"])
    columns = [k for k, v in batches[0].items() if isinstance(v, Tensor) and v.shape[:1] == (rows,)]
    joined = {name: torch.cat([batch[name] for batch in batches]) for name in columns}
    completion = joined["completion_mask"].sum(1)
    cost = torch.where(completion > 0, completion + joined["prompt_mask"].sum(1), 0)
    if by_prefix:
        sequences = torch.cat([joined["prompt_ids"], joined["completion_ids"]], 1)
        order = sequences.unique(dim=0, return_inverse=True)[1].masked_fill(cost == 0, -1).argsort()
    else:
        order = cost.argsort(stable=True)
    pieces = {name: value[order].chunk(len(batches)) for name, value in joined.items()}
    return [
        trim({**batch, **{name: pieces[name][i] for name in columns}})
        for i, batch in enumerate(batches)
    ]


def trim(batch: MicroBatch) -> MicroBatch:
    """Without the columns that are padding in every row: prompts at the left, completions right."""
    width = batch["completion_ids"].shape[1]
    needed = int(batch["completion_mask"].sum(1).max())
    # Where every completion is masked nothing comes of the prompts either.
    prompt = max(int(batch["prompt_mask"].sum(1).max()), 1) if needed else 1
    # Two columns at the least: TRL takes a single one for a value per sequence and unmasks it.
    completion = max(needed, 2)
    trimmed: MicroBatch = {}
    for name, value in batch.items():
        if name in ("prompt_ids", "prompt_mask"):
            value = value[:, -prompt:]
        elif isinstance(value, Tensor) and value.ndim == 2 and value.shape[1] == width:
            value = value[:, :completion]
        trimmed[name] = value
    return trimmed
