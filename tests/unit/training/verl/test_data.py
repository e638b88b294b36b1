"""The files verl reads."""

import numpy as np
import pyarrow.parquet as pq

from crt.algorithm.batch import Batch
from crt.data.prompts import Prompt
from crt.training.verl.advantages import REFERENCE
from crt.training.verl.data import problem_of, read_reference, rows_of, write_parquet
from crt.types import Problem

PROBLEMS = [
    Problem("a", "How many?", "7", "set"),
    Problem("b", "Which?", "B", options=("x", "y"), tolerance=0.5),
]


def prompt(name: str, budget: int | None) -> Prompt:
    return Prompt(name, ({"role": "user", "content": name},), name, (3, 4, 5), name == "b", budget)


def test_a_row_comes_back_as_it_was(tmp_path):
    frozen = Batch(("b",), [[1, 0]], np.array([[10, 30]]), [[0, 1]])
    asked = [*PROBLEMS, PROBLEMS[0]]  # a problem may come again
    sent = [prompt("a", None), prompt("b", 100), prompt("a", None)]
    write_parquet(tmp_path / "x.parquet", rows_of(asked, sent, frozen, 512))
    rows = pq.read_table(tmp_path / "x.parquet").to_pylist()
    assert [row["extra_info"]["problem_id"] for row in rows] == ["a", "b", "a"]
    first, second = rows[0]["extra_info"], rows[1]["extra_info"]
    assert first["max_tokens"] == 512
    assert first["budget"] is None and second["budget"] == 100
    assert second["prompt_ids"] == [3, 4, 5] and second["opens_thinking"] is True
    assert second["reference_correct"] == [1, 0] and second["reference_length"] == [10, 30]
    assert second["reference_truncated"] == [0, 1]
    assert first["reference_correct"] == []  # could not be graded
    assert problem_of(second) == Problem("b", "Which?", "B", "", ("x", "y"), 0.5)
    assert read_reference(tmp_path / "x.parquet") == {
        "a": {name: [] for name in REFERENCE},
        "b": {name: second[name] for name in REFERENCE},
    }
    assert rows[0]["prompt"] == [{"role": "user", "content": "a"}]
    assert rows[1]["reward_model"]["ground_truth"] == "B"
