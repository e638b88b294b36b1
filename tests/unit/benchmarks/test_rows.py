import json
from pathlib import Path

import pytest
from harness.page import BEGIN, END
from rows import NAMES, ROWS, chosen

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


def test_a_name_chooses_a_row_or_all_that_begin_with_it():
    assert chosen(["step"]) == {"step-pocket", "step-135M"}
    assert chosen(["guard", "serving"]) == {"guard-cached", "guard-fresh", "serving"}
    assert chosen(["sampling-30M"]) == {"sampling-30M-generate", "sampling-30M-vllm"}
    assert chosen([]) == set(NAMES)
    assert chosen(["ste"]) == set()


def test_every_row_has_one_module_that_is_there():
    assert len(set(NAMES)) == len(NAMES)
    for module in ROWS:
        assert (BENCHMARKS / "rows" / f"{module}.py").is_file()


def test_the_page_has_its_place_for_the_table():
    text = (BENCHMARKS.parent / "docs" / "results" / "performance.md").read_text()
    assert text.count(BEGIN) == text.count(END) == 1


def test_the_results_are_those_of_rows_there_are():
    path = BENCHMARKS / "results.json"
    if not path.is_file():
        pytest.skip("nothing was measured yet")
    names = [row["name"] for row in json.loads(path.read_text())]
    assert names == [name for name in NAMES if name in names]
