"""Trains a run and kills its own process, as `kill -9` would, at a named moment.

Usage: python killed.py RECIPE RUN MOMENT STEP; with MOMENT `never` it trains to the end.
"""

import os
import sys
from pathlib import Path

from crt.cli import main
from crt.train import recorder

recipe, run, moment, step = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])


def kill() -> None:
    os.kill(os.getpid(), 9)


def killing_before(name: str):
    """The recorder's method, which does not come to run at the chosen step."""
    original = getattr(recorder.Recorder, name)

    def method(self, *args, **kwargs):
        state = next((a for a in args if hasattr(a, "global_step")), None)
        now = self.first + state.global_step if state else args[-1]
        if now == step:
            kill()
        return original(self, *args, **kwargs)

    setattr(recorder.Recorder, name, method)


if moment == "terminate":
    original = recorder.Recorder.on_graded

    def on_graded(self, trainer, graded):
        if self.first + trainer.state.global_step + 1 == step:
            os.kill(os.getpid(), 15)
        return original(self, trainer, graded)

    recorder.Recorder.on_graded = on_graded
elif moment == "in the middle of a checkpoint":
    original = recorder.write_json

    def write_json(path, value):
        if path.name == recorder.RECORD and value["step"] == step:
            kill()
        original(path, value)

    recorder.write_json = write_json
elif moment != "never":
    killing_before({"before the row": "on_log", "before the checkpoint": "on_save"}[moment])

words = ["--resume", run] if Path(run).exists() else [recipe, "--out", run]
sys.exit(main(["train", *words]))
