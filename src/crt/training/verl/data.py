"""The files of a stage for verl: a row per prompt, and the frozen reference's results."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from crt.algorithm.batch import TOKENS, Batch
from crt.data.prompts import Prompt
from crt.io import read_json, write_json, written_whole
from crt.run import STATE, Run
from crt.training.stage import Stage
from crt.types import Problem

COLUMNS = ("problem_ids", "correct", "length", "truncated")  # of a reference's file
TABLES = ("measured", "within")  # of a contract: name → column


class StageFolder:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.train = path / "train.parquet"  # the prompts, in the order of the steps
        self.validation = path / "validation.parquet"  # on what checkpoints are measured
        self.reference = path / "reference.json"  # what the guard compares with
        self.validation_reference = path / "validation-reference.json"  # the base
        self.saved = path / "verl"  # verl's own checkpoints
        self.log = path / "verl.log"
        self.stop = path / "stop"  # a file that asks the trainer to save and end
        self.stopped = path / "stopped.json"  # why the trainer ended by itself


def folder_of(run: Run, stage: Stage) -> StageFolder:
    """The stage's folder; absolute, because verl may run in another directory."""
    return StageFolder((run.path / STATE / f"stage{stage.number}").absolute())


def write_prompts(
    path: Path, problems: Sequence[Problem], prompts: Sequence[Prompt], max_tokens: int
) -> None:
    """verl's columns as Parquet; what our own parts read is JSON in `extra_info.crt`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [
        {
            "data_source": problem.source or "crt",
            "prompt": [dict(turn) for turn in prompt.messages],
            "reward_model": {"style": "rule", "ground_truth": problem.answer},
            "extra_info": {
                "index": index,
                "crt": json.dumps({
                    "problem": asdict(problem),
                    "budget": prompt.budget,
                    "opens_thinking": prompt.opens_thinking,
                    "prompt_ids": prompt.token_ids,
                    "max_tokens": max_tokens,
                }),
            },
        }
        for index, (problem, prompt) in enumerate(zip(problems, prompts, strict=True))
    ]  # fmt: skip
    with written_whole(path) as file:
        pq.write_table(pa.Table.from_pylist(rows), file)


def read_info(extra_info: Any) -> dict[str, Any]:
    """What `write_prompts` wrote of a row: the problem, its prompt's ids, the cap, the budget."""
    info = json.loads(extra_info["crt"])
    values = info["problem"]
    tuples = {name: tuple(values[name]) for name in ("options", "accepted")}
    return info | {"problem": Problem(**values | tuples)}


def write_reference(path: Path, batch: Batch | None) -> None:
    """A frozen policy's results by problem; null if none could be graded."""
    if batch is None:
        write_json(path, None)
        return
    columns: dict[str, Any] = {n: np.array(getattr(batch, n)).tolist() for n in COLUMNS}
    for table in TABLES:
        columns[table] = {n: np.array(v).tolist() for n, v in getattr(batch, table).items()}
    write_json(path, columns | {"cost": batch.cost})


def read_reference(path: Path) -> Batch | None:
    """The batch that `write_reference` wrote."""
    columns = read_json(path)
    if columns is None:
        return None
    tables = {t: {n: np.array(v) for n, v in columns.get(t, {}).items()} for t in TABLES}
    return Batch(*(columns[name] for name in COLUMNS), **tables, cost=columns.get("cost", TOKENS))
