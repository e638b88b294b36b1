"""What training on a cluster leaves behind: the same rows, rollouts and checkpoints."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from crt.algorithm.batch import batch_of
from crt.errors import EngineError
from crt.io import read_json, write_json
from crt.run import Run
from crt.sampling.models import WORDS
from crt.training.alarms import alarm
from crt.training.checkpoints import finite, keep_checkpoint, last_good, limit_ungraded
from crt.training.stage import Stage
from crt.training.validation import against, figures, guard_of
from crt.training.verl.adapter import write_adapter
from crt.training.verl.folder import Folder
from crt.training.verl.hook import Decided, Row, reference_of

TOKENIZER = (
    "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "merges.txt",
    "chat_template.jinja", "chat_template.json",
)  # fmt: skip
SETTINGS = ("config.json", "generation_config.json")
FINISHED = "finished"  # verl's own files carry no sign that the run's checkpoint is there too
KEPT = 2  # of verl's checkpoints
FIGURES = {  # ours: verl's
    "loss": "actor/pg_loss",
    "grad_norm": "actor/grad_norm",
    "kl": "crt/kl",
    "entropy": "crt/entropy",
    "learning_rate": "actor/lr",
    "weights_apart": "training/rollout_probs_diff_max",
}


class ClusterRecorder:
    """Writes one stage's steps and checkpoints into the run, and stops it when it must."""

    def __init__(self, run: Run, stage: Stage, folder: Folder, model: Path) -> None:
        self.run, self.stage, self.folder, self.model = run, stage, folder, model
        self.rows = [row for row in run.steps if row["stage"] == stage.number]
        self.pending: dict[str, Any] = {}

    def on_graded(self, step: int, rows: Sequence[Row | None], decided: Decided) -> None:
        """A batch is sampled, graded and decided; the update comes after."""
        number, found = self.stage.first + step, decided.step
        self.pending = {"step": number, "stage": self.stage.number}
        self.pending["left_out"] = len(found.left_out)
        self.pending["generated"] = sum(row.tokens for row in rows if row is not None)
        if found.signal is not None:
            self.pending |= found.signal.row
        self.run.add_rollouts(number, records(rows, decided))
        self._or_stop(lambda: limit_ungraded(self.run, found, number))

    def on_updated(self, step: int, told: dict[str, Any], seconds: dict[str, float]) -> None:
        """The update is done: the row is complete."""
        values = {ours: float(told[theirs]) for ours, theirs in FIGURES.items() if theirs in told}
        broken = alarm([*self.rows, self.pending | values], self.stage.guarded)
        row = self.pending | {name: finite(value) for name, value in values.items()}
        sampled = seconds.get("gen", 0.0)
        updated = sum(seconds.get(name, 0.0) for name in ("old_log_prob", "ref", "update_actor"))
        row["seconds"] = {"sample": round(sampled, 3), "update": round(updated, 3)}
        self.rows.append(row)
        self.run.add_step(row)
        if broken:
            self._stop(f"training was stopped: {broken} {last_good(self.run)}")

    def wants(self, step: int) -> tuple[bool, bool, bool]:
        """Whether to save now, to measure what is saved, and to end."""
        number = self.stage.first + step
        over = self.stage.over(self.rows) or step >= self.stage.steps
        due = over or number % self.run.config.schedule.save_every == 0
        asked = self.folder.stop.exists()
        return due or asked, due, over or asked

    def on_saved(self, step: int, folder: Path, measured: Sequence[Row] | None) -> None:
        """The run's checkpoint, and then the sign that a resumed run may start from here."""
        number = self.stage.first + step
        if measured is not None:
            files = [file for file in self._model(folder / "actor").iterdir() if file.is_file()]
            record = {"stage": self.stage.number} | self._stands(measured)
            keep_checkpoint(self.run, number, files, record)
        write_json(folder / FINISHED, {"step": number})
        for old in finished(self.folder.saved)[:-KEPT]:
            shutil.rmtree(old)

    def _model(self, saved: Path) -> Path:
        """The policy of verl's checkpoint in Hugging Face's form: all weights, or the adapter."""
        lora = self.run.config.model.lora
        if lora is None:
            model = saved / "huggingface"
            as_the_base(model, self.model, self.run.config.model.dtype)
            return model
        adapter = saved / "adapter"
        write_adapter(saved, adapter, self.model, lora)
        copy_files(self.model, adapter, (*WORDS, *TOKENIZER))
        return adapter

    def _stands(self, measured: Sequence[Row]) -> dict[str, Any]:
        """How the policy stands on the validation problems against the reference on the same."""
        batch, left_out = batch_of(
            whole_groups([row.rollout for row in measured], self.run.config.validation.rollouts),
            self.run.config.grading.truncated,
        )
        reference = reference_of([row.info for row in measured])
        return figures(batch, left_out, against(reference, guard_of(self.run.config.method)))

    def _or_stop(self, check: Any) -> None:
        try:
            check()
        except EngineError as error:
            self._stop(str(error))

    def _stop(self, sentence: str) -> None:
        """The reason must reach the process that started verl, through verl."""
        write_json(self.folder.stopped, {"reason": sentence})
        raise EngineError(sentence)


def records(rows: Sequence[Row | None], decided: Decided) -> list[dict[str, Any]]:
    """Every response of a step, problem by problem."""
    told = [
        {
            "problem_id": row.problem_id,
            "text": row.text,
            "verdict": row.verdict.value,
            "extracted": row.extracted,
            "tokens": row.tokens,
            "stop": row.stop,
            "advantage": advantage,
        }
        for row, advantage in zip(rows, decided.advantages, strict=True)
        if row is not None
    ]
    order = list(dict.fromkeys(each["problem_id"] for each in told))
    return sorted(told, key=lambda each: order.index(each["problem_id"]))


def whole_groups(rollouts: Sequence[Any], size: int) -> list[Any]:
    """Without the problems of which a rollout was lost on the cluster."""
    groups: dict[str, list[Any]] = {}
    for rollout in rollouts:
        groups.setdefault(rollout.problem_id, []).append(rollout)
    return [one for group in groups.values() if len(group) == size for one in group]


def as_the_base(saved: Path, base: Path, dtype: str) -> None:
    """The base's own tokenizer and configuration beside the new weights.

    verl writes the tokenizer as its library loaded it, which may split words in another way, and
    names bfloat16 whatever the weights are.
    """
    copy_files(base, saved, (*WORDS, *TOKENIZER, *SETTINGS))
    for code in base.glob("*.py"):
        shutil.copyfile(code, saved / code.name)
    if dtype != "auto":
        write_json(saved / "config.json", read_json(base / "config.json") | {"dtype": dtype})


def copy_files(source: Path, target: Path, names: Sequence[str]) -> None:
    """Those of these names that are there."""
    for name in names:
        if (source / name).is_file():
            shutil.copyfile(source / name, target / name)


def finished(folder: Path) -> list[Path]:
    """verl's checkpoints that are whole, in order."""
    found = sorted(folder.glob("global_step_*"), key=step_of)
    return [path for path in found if (path / FINISHED).is_file()]


def step_of(folder: Path) -> int:
    """The number in the name of verl's checkpoint."""
    return int(folder.name.rpartition("_")[2])
