"""What training on a cluster leaves behind: the same rows, rollouts and checkpoints."""

import re
import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn, cast

from crt.algorithm.batch import batch_of
from crt.config import LoraConfig
from crt.errors import EngineError
from crt.io import write_json
from crt.run import Run, rollout_record
from crt.sampling.models import WORDS
from crt.training.alarms import alarm, last_good, limit_ungraded
from crt.training.checkpoints import finite, keep_checkpoint
from crt.training.stage import Stage
from crt.training.validation import against, figures, guard_of
from crt.training.verl.advantages import BatchAdvantages
from crt.training.verl.data import StageFolder, read_reference
from crt.types import Rollout

TOKENIZER_FILES = (
    *WORDS, "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "merges.txt",
    "chat_template.jinja", "chat_template.json",
)  # fmt: skip
MODEL_FILES = ("config.json", "generation_config.json", "*.py")
SHARD = re.compile(r"model_world_size_\d+_rank_(\d+)\.pt")
FINISHED = "finished"  # verl's own files carry no sign that the run's checkpoint is there too
KEPT = 2  # of verl's checkpoints
METRICS = {  # ours: verl's
    "loss": "actor/pg_loss",
    "grad_norm": "actor/grad_norm",
    "kl": "crt/kl",
    "entropy": "crt/entropy",
    "learning_rate": "actor/lr",
    "rollout_probs_diff_max": "training/rollout_probs_diff_max",
}


class ClusterRecorder:
    """Writes one stage's steps and checkpoints into the run, and stops it when it must.

    `model` is the folder of the model that the stage starts from.
    """

    def __init__(self, run: Run, stage: Stage, folder: StageFolder, model: Path) -> None:
        self.run, self.stage, self.folder, self.model = run, stage, folder, model
        self.rows = [row for row in run.steps if row["stage"] == stage.number]
        self.pending: dict[str, Any] = {}

    def on_graded(
        self, step: int, rollouts: Sequence[Rollout | None], advantages: BatchAdvantages
    ) -> None:
        """A batch is sampled, graded and decided; the update comes after."""
        number, decided = self.stage.first + step, advantages.step
        pairs = zip(rollouts, advantages.values, strict=True)
        records = [rollout_record(rollout, value) for rollout, value in pairs if rollout]
        order = list(dict.fromkeys(record["problem_id"] for record in records))
        records.sort(key=lambda record: order.index(record["problem_id"]))  # verl spreads them
        self.pending = {
            "step": number,
            "stage": self.stage.number,
            "left_out": len(decided.left_out),
            "generated_tokens": sum(record["tokens"] for record in records),
            **(decided.signal.row if decided.signal else {}),
        }
        self.run.add_rollouts(number, records)
        try:
            limit_ungraded(self.run, decided, number)
        except EngineError as error:
            self._stop(str(error))

    def on_updated(self, step: int, metrics: dict[str, Any], seconds: dict[str, float]) -> None:
        """The update is done: the row is complete."""
        values = {
            ours: float(metrics[theirs]) for ours, theirs in METRICS.items() if theirs in metrics
        }
        broken = alarm([*self.rows, self.pending | values], self.stage.guarded)
        row = self.pending | {name: finite(value) for name, value in values.items()}
        updating = sum(seconds.get(name, 0.0) for name in ("old_log_prob", "ref", "update_actor"))
        sampling = seconds.get("gen", 0.0)
        row["seconds"] = {"sample": round(sampling, 3), "update": round(updating, 3)}
        self.rows.append(row)
        self.run.add_step(row)
        if broken:
            self._stop(f"training was stopped: {broken} {last_good(self.run)}")

    def what_to_do(self, step: int) -> tuple[bool, bool, bool]:
        """Whether to save now, to measure what is saved, and to end."""
        number = self.stage.first + step
        over = self.stage.over(self.rows) or step >= self.stage.steps
        due = over or number % self.run.config.schedule.save_every == 0
        interrupted = self.folder.stop.exists()
        return due or interrupted, due, over or interrupted

    def on_saved(self, step: int, saved: Path, validation: Sequence[Rollout] | None) -> None:
        """The run's checkpoint, and then the sign that a resumed run may start from here.

        `validation` are the policy's responses to the validation problems, if it was measured.
        """
        number = self.stage.first + step
        if validation is not None:
            files = [file for file in self._model(saved / "actor").iterdir() if file.is_file()]
            record = {"stage": self.stage.number} | self._measure(validation)
            dtype = self.run.config.model.dtype  # verl names bfloat16 whatever the weights are
            keep_checkpoint(
                self.run, number, files, record, dtype=None if dtype == "auto" else dtype
            )
        write_json(saved / FINISHED, {"step": number})
        for old in finished(self.folder.saved)[:-KEPT]:
            shutil.rmtree(old)

    def _model(self, saved: Path) -> Path:
        """The policy of verl's checkpoint in Hugging Face's form: all weights, or the adapter."""
        lora = self.run.config.model.lora
        if lora is not None:
            write_adapter(saved, saved / "adapter", self.model, lora)
            copy_files(self.model, saved / "adapter", TOKENIZER_FILES)
            return saved / "adapter"
        # verl writes the tokenizer as its library loaded it, which may split words in another way.
        copy_files(self.model, saved / "huggingface", TOKENIZER_FILES + MODEL_FILES)
        return saved / "huggingface"

    def _measure(self, rollouts: Sequence[Rollout]) -> dict[str, Any]:
        """How the policy stands on the validation problems against the reference on the same.

        A problem of which a rollout was lost on the cluster is left out.
        """
        config = self.run.config
        sizes = Counter(rollout.problem_id for rollout in rollouts)
        complete = [r for r in rollouts if sizes[r.problem_id] == config.validation.rollouts]
        measures = config.contract.measures()
        batch, left_out = batch_of(complete, config.grading.truncated, measures)
        reference = read_reference(self.folder.validation_reference)
        floor = against(reference, guard_of(config.method), config.contract.promises)
        return figures(batch, left_out, floor)

    def _stop(self, reason: str) -> NoReturn:
        """The reason must reach the process that started verl, through verl."""
        write_json(self.folder.stopped, {"reason": reason})
        raise EngineError(reason)


def write_adapter(saved: Path, target: Path, base: Path, lora: LoraConfig) -> None:
    """peft's files of the adapter that verl saved in `saved`, in float32 as it was trained."""
    from peft import LoraConfig as PeftConfig
    from safetensors.torch import save_file

    tensors = adapter_tensors(saved)
    targets = lora.targets if isinstance(lora.targets, str) else list(lora.targets)
    if targets == "all-linear":
        targets = sorted({name.split(".lora_")[0].rpartition(".")[2] for name in tensors})
    target.mkdir(parents=True, exist_ok=True)
    save_file(tensors, target / "adapter_model.safetensors", {"format": "pt"})
    PeftConfig(
        r=lora.rank,
        lora_alpha=int(lora.alpha),
        target_modules=targets,
        base_model_name_or_path=str(base),
        task_type="CAUSAL_LM",
        inference_mode=True,
    ).save_pretrained(str(target))


def adapter_tensors(saved: Path) -> dict[str, Any]:
    """The adapter's whole tensors by peft's names, from the shards of all ranks."""
    import torch
    from torch.distributed.tensor import DTensor

    shards = {
        int(match[1]): torch.load(path, map_location="cpu", weights_only=True)
        for path in saved.glob("*.pt")
        if (match := SHARD.fullmatch(path.name))
    }
    tensors: dict[str, Any] = {}
    for name, tensor in shards.get(0, {}).items():
        if ".lora_" not in name:
            continue
        if isinstance(tensor, DTensor):
            # the last dimension of the mesh shards, those before it hold copies
            mesh, placement = tensor.device_mesh.mesh, cast(Any, tensor.placements[-1])
            ranks = mesh.flatten()[: mesh.shape[-1]].tolist()
            parts = [shards[rank][name].to_local() for rank in ranks]
            tensor = torch.cat(parts, dim=placement.dim) if placement.is_shard() else parts[0]
        tensors[name.replace(".default", "")] = tensor.detach().float().contiguous()
    if not tensors:
        raise EngineError(f"verl's checkpoint in {saved} holds no adapter.")
    return tensors


def copy_files(source: Path, target: Path, patterns: Sequence[str]) -> None:
    """Those of these names that are there."""
    for pattern in patterns:
        for file in source.glob(pattern):
            shutil.copyfile(file, target / file.name)


def finished(folder: Path) -> list[Path]:
    """verl's checkpoints that are whole, in order."""
    saved = sorted(folder.glob("global_step_*"), key=step_of)
    return [path for path in saved if (path / FINISHED).is_file()]


def step_of(folder: Path) -> int:
    """The number in the name of verl's checkpoint."""
    return int(folder.name.rpartition("_")[2])
