"""The files of a stage that verl reads: a row per prompt, with the reference's results in it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from crt.algorithm.batch import Batch
from crt.data.prompts import Prompt
from crt.io import written_whole
from crt.run import STATE, Run
from crt.training.stage import Stage
from crt.training.verl.advantages import REFERENCE, ReferenceColumns, reference_columns
from crt.types import Problem


class StageFolder:
    """Where a stage's files for verl are."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.train = path / "train.parquet"  # the prompts, in the order of the steps
        self.validation = path / "validation.parquet"  # on what checkpoints are measured
        self.saved = path / "verl"  # verl's own checkpoints
        self.log = path / "verl.log"
        self.stop = path / "stop"  # a file that asks the trainer to save and end
        self.stopped = path / "stopped.json"  # why the trainer ended by itself


def folder_of(run: Run, stage: Stage) -> StageFolder:
    """The stage's folder; absolute, because verl may run in another directory."""
    return StageFolder((run.path / STATE / f"stage{stage.number}").absolute())


def rows_of(
    problems: Sequence[Problem],
    prompts: Sequence[Prompt],
    reference: Batch | None,
    max_tokens: int,
) -> list[dict[str, Any]]:
    """verl's columns; what is ours is in `extra_info`: prompt token ids, the cap, the reference."""
    columns = {name: reference_columns(reference, name) for name in {p.id for p in problems}}
    return [
        {
            "data_source": problem.source or "crt",
            "prompt": [dict(turn) for turn in prompt.messages],
            "reward_model": {"style": "rule", "ground_truth": problem.answer},
            "extra_info": {
                "index": index,
                "problem_id": problem.id,
                "question": problem.question,
                "answer": problem.answer,
                "options": list(problem.options),
                "tolerance": problem.tolerance,
                "accepted": list(problem.accepted),
                "verifier": problem.verifier,
                "budget": prompt.budget,
                "opens_thinking": prompt.opens_thinking,
                "prompt_ids": list(prompt.token_ids),
                "max_tokens": max_tokens,
                **columns[problem.id],
            },
        }
        for index, (problem, prompt) in enumerate(zip(problems, prompts, strict=True))
    ]


def write_parquet(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Whole or absent; the types are written out, because some columns may be empty."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    text, number, numbers = pa.string(), pa.int64(), pa.list_(pa.int64())
    info = {
        "index": number, "problem_id": text, "question": text, "answer": text,
        "options": pa.list_(text), "tolerance": pa.float64(), "budget": number,
        "accepted": pa.list_(text), "verifier": text,
        "opens_thinking": pa.bool_(), "prompt_ids": numbers, "max_tokens": number,
        **dict.fromkeys(REFERENCE, numbers),
    }  # fmt: skip
    schema = {
        "data_source": text,
        "prompt": pa.list_(pa.struct({"role": text, "content": text})),
        "reward_model": pa.struct({"style": text, "ground_truth": text}),
        "extra_info": pa.struct(info),
    }
    table = pa.Table.from_pylist(list(rows), schema=pa.schema(schema))
    with written_whole(path) as file:
        pq.write_table(table, file)


def read_reference(path: Path) -> dict[str, ReferenceColumns]:
    """Problem id → the reference's results on it, from a data file."""
    import pyarrow.parquet as pq

    fields = [f"extra_info.{name}" for name in ("problem_id", *REFERENCE)]
    infos = pq.ParquetFile(path).read(columns=fields)["extra_info"].to_pylist()
    return {info.pop("problem_id"): info for info in infos}


def problem_of(info: Any) -> Problem:
    """The problem of a row's `extra_info`, as the grader wants it."""
    return Problem(
        info["problem_id"],
        info["question"],
        info["answer"],
        options=tuple(info["options"]),
        tolerance=info["tolerance"],
        accepted=tuple(info.get("accepted") or ()),
        verifier=info.get("verifier") or "",
    )
