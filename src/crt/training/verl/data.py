"""verl's data files: a row a prompt, with the reference's results beside it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from crt.algorithm.batch import Batch
from crt.data.prompts import Prompt
from crt.io import written_whole
from crt.training.verl.hook import REFERENCE, reference_columns
from crt.types import Problem


def rows_of(
    problems: Sequence[Problem],
    prompts: Sequence[Prompt],
    reference: Batch | None,
    max_tokens: int,
) -> list[dict[str, Any]]:
    """verl's columns; what is ours is in `extra_info`: prompt token ids, the cap, the reference."""
    columns = {
        problem.id: reference_columns(reference, problem.id)
        for problem in {each.id: each for each in problems}.values()
    }
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
    """Whole or absent."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    numbers, words = pa.list_(pa.int64()), pa.list_(pa.string())
    info = {
        "index": pa.int64(), "problem_id": pa.string(), "question": pa.string(),
        "answer": pa.string(), "options": words, "tolerance": pa.float64(), "budget": pa.int64(),
        "opens_thinking": pa.bool_(), "prompt_ids": numbers, "max_tokens": pa.int64(),
        **dict.fromkeys(REFERENCE, numbers),
    }  # fmt: skip
    turn = {"role": pa.string(), "content": pa.string()}
    truth = {"style": pa.string(), "ground_truth": pa.string()}
    columns = {
        "data_source": pa.string(),
        "prompt": pa.list_(_struct(pa, turn)),
        "reward_model": _struct(pa, truth),
        "extra_info": _struct(pa, info),
    }
    schema = pa.schema(list(columns.items()))
    with written_whole(path) as file:
        pq.write_table(pa.Table.from_pylist(list(rows), schema=schema), file)


def _struct(pa: Any, fields: dict[str, Any]) -> Any:
    return pa.struct(list(fields.items()))


def problem_of(info: Any) -> Problem:
    """The problem of a row's `extra_info`, as the grader wants it."""
    return Problem(
        info["problem_id"],
        info["question"],
        info["answer"],
        options=tuple(info["options"]),
        tolerance=info["tolerance"],
    )
