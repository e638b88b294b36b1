"""What training leaves behind: a row and the rollouts of every step, checkpoints with a record."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from transformers import TrainerCallback
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from crt.algorithm.step import Step
from crt.errors import EngineError
from crt.processes import Ranks
from crt.run import RECORD, Run, rollout_record
from crt.training.alarms import TOO_HIGH, alarm, broken_weights, last_good, limit_ungraded
from crt.training.checkpoints import FINISHED, finish, finite, keep_checkpoint, sums_of
from crt.training.stage import Stage
from crt.training.trl.trainer import STATE_FILE, CRTTrainer

LOGGED = ("loss", "grad_norm", "kl", "entropy", "learning_rate")
TRAINER_FILES = (
    "optimizer", "scheduler", "rng_state", "trainer_state", "training_args", "pytorch_model",
    "zero_to_", "latest", STATE_FILE, FINISHED,
)  # fmt: skip


class Recorder(TrainerCallback):
    """Writes one stage's steps and checkpoints into the run, and stops it when it must.

    `measure` says what is known of the policy as it is, for the record beside its checkpoint.
    Weights are kept as they were trained; `dtype` is the one in which they are to be used.
    """

    def __init__(
        self,
        run: Run,
        stage: Stage,
        trainer: CRTTrainer,
        measure: Callable[[int], dict[str, Any]],
        show: Callable[[dict[str, Any]], None],
        dtype: str,
    ) -> None:
        self.run, self.stage, self.trainer = run, stage, trainer
        self.measure, self.show, self.dtype = measure, show, dtype
        self.ranks = Ranks.found()
        self.rows = [row for row in run.steps if row["stage"] == stage.number]
        self.pending: dict[str, Any] = {}
        self.terminated = self.ended = False
        self.clock = time.monotonic()

    def step_after(self, steps: int) -> int:
        """The run's number of the stage's step."""
        return self.stage.first + steps

    def on_graded(self, step: Step) -> None:
        """A batch is sampled, graded and decided; the update comes after."""
        number = self.step_after(self.trainer.state.global_step + 1)
        self.pending = {
            "step": number,
            "stage": self.stage.number,
            "left_out": len(step.left_out),
            "generated_tokens": sum(rollout.length or 0 for rollout in self.trainer.rollouts),
        }
        if step.signal is not None:
            self.pending |= step.signal.row
        if self.ranks.writes:
            advantages = self.trainer.advantages.reshape(-1)
            pairs = zip(self.trainer.rollouts, advantages, strict=True)
            self.run.add_rollouts(number, [rollout_record(*pair) for pair in pairs])
        if not self.trainer.finite_logprobs:
            self._stop(f"probabilities are no numbers at step {number}. {TOO_HIGH}")
        limit_ungraded(self.run, step, number)
        self.sampled = time.monotonic()

    def on_log(
        self, args: Any, state: Any, control: Any, logs: Any = None, model: Any = None, **_: Any
    ) -> None:
        """The update is done: the row is complete. What is broken is not saved."""
        if not self.pending or logs is None or "loss" not in logs:
            return
        del state.log_history[:-1]  # it would be saved whole with every state; the run has its rows
        now = time.monotonic()
        values = {name: logs[name] for name in LOGGED if name in logs}
        broken = alarm([*self.rows, self.pending | values], self.stage.guarded)
        if control.should_save and not broken:
            broken = broken_weights(model.named_parameters(), self.pending["step"])
        row = self.pending | {name: finite(value) for name, value in values.items()}
        row["seconds"] = {
            "sample": round(self.sampled - self.clock, 3),
            "update": round(now - self.sampled, 3),
        }
        self.clock, self.pending = now, {}
        self.rows.append(row)
        if self.ranks.writes:
            self.run.add_step(row)
            self.show(row)
        if broken:
            self._stop(broken)

    def _stop(self, why: str) -> NoReturn:
        raise EngineError(f"training was stopped: {why} {last_good(self.run)}")

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Ends the stage when it is over, and saves first when the process is asked to end."""
        over = self.stage.over([*self.rows, self.pending] if self.pending else self.rows)
        self.ended = over or state.global_step == state.max_steps
        # A signal may reach one process before and another after the end of this step.
        self.terminated = any(self.ranks.gathered([self.terminated]))
        if self.ended or self.terminated:
            control.should_save = control.should_training_stop = True
        if self._is_due(self.step_after(state.global_step)):
            control.should_save = True

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """The trainer's files are there: marks them whole, and makes the run's checkpoint."""
        step = self.step_after(state.global_step)
        saved = Path(args.output_dir) / f"{PREFIX_CHECKPOINT_DIR}-{state.global_step}"
        sums = sums_of(saved) if self.ranks.writes else {}
        absent = not (self.run.checkpoint(step) / RECORD).is_file()
        if absent and (self._is_due(step) or self.ended):
            self._checkpoint(saved, step, sums)
        if self.ranks.writes:
            # Only now may a resumed run start from here: the run's own checkpoint is there too.
            finish(saved, step, sums)
        self.ranks.wait()
        self.clock = time.monotonic()

    def _is_due(self, step: int) -> bool:
        return step % self.run.config.schedule.save_every == 0

    def _checkpoint(self, saved: Path, step: int, sums: dict[str, str]) -> None:
        """The weights under the run's own name, with a record; whole or absent."""
        metrics = self.measure(step)  # by all processes together
        if self.ranks.writes:
            files = [
                file
                for file in saved.iterdir()
                if file.is_file() and not file.name.startswith(TRAINER_FILES)
            ]
            if not any(file.suffix == ".safetensors" for file in files):
                raise EngineError(f"TRL saved no weights in {saved}: set it to save whole models.")
            record = {"stage": self.stage.number} | metrics
            keep_checkpoint(self.run, step, files, record, sums, self.dtype)
