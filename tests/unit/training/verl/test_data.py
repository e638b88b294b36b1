"""The files verl reads."""

import pyarrow.parquet as pq

from crt.algorithm.batch import Batch
from crt.data.prompts import Prompt
from crt.training.verl.data import read_info, read_reference, write_prompts, write_reference
from crt.types import Problem

PROBLEMS = [
    Problem("a", "How many?", "7", "set"),
    Problem("b", "Which?", "B", options=("x", "y"), tolerance=0.5),
]


def prompt(name: str, budget: int | None) -> Prompt:
    return Prompt(name, ({"role": "user", "content": name},), name, (3, 4, 5), name == "b", budget)


def test_a_row_comes_back_as_it_was(tmp_path):
    asked = [*PROBLEMS, PROBLEMS[0]]  # a problem may come again
    sent = [prompt("a", None), prompt("b", 100), prompt("a", None)]
    write_prompts(tmp_path / "x.parquet", asked, sent, 512)
    rows = pq.read_table(tmp_path / "x.parquet").to_pylist()
    infos = [read_info(row["extra_info"]) for row in rows]
    assert [info["problem"] for info in infos] == asked
    assert [info["budget"] for info in infos] == [None, 100, None]
    assert [info["opens_thinking"] for info in infos] == [False, True, False]
    assert infos[1]["prompt_ids"] == [3, 4, 5] and infos[1]["max_tokens"] == 512
    assert rows[0]["prompt"] == [{"role": "user", "content": "a"}]
    assert rows[1]["reward_model"]["ground_truth"] == "B"


def test_the_reference_comes_back_as_it_was(tmp_path):
    frozen = Batch(("b", "c"), [[1, 0], [0, 0]], [[10, 30], [5, 7]], [[0, 1], [0, 0]])
    write_reference(tmp_path / "reference.json", frozen)
    back = read_reference(tmp_path / "reference.json")
    assert back is not None and back.problem_ids == ("b", "c")
    for name in ("correct", "length", "truncated"):
        assert (getattr(back, name) == getattr(frozen, name)).all()
    write_reference(tmp_path / "reference.json", None)  # nothing could be graded
    assert read_reference(tmp_path / "reference.json") is None
