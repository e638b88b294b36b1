"""The paper's printed rows, from counts by problem through to the printed tables."""

import pytest

from crt.evaluation.columns import Entry
from crt.evaluation.render import as_rows, markdown
from crt.evaluation.tables import paper_tables
from crt.evaluation.tally import Count, tallies

SETS = ("gsm8k", "math500", "sat_math32", "amc23", "aime24", "olympiadbench")
ROWS = {  # accuracy and length on the six sets, then AES1 and AES2 in- and out-domain
    "DeepSeek-1.5B": (
        (84.43, 85.19, 89.84, 69.84, 30.42, 13.25),
        (1869, 4987, 1373, 8634, 14044, 15527),
        (0.0, 0.0, 0.0, 0.0),
    ),
    "ThinkPrune-500": (
        (78.91, 85.25, 81.45, 71.88, 27.92, 13.63),
        (995, 4455, 609, 7715, 13378, 14791),
        (0.0441, -0.1168, -0.13, -0.33),
    ),
    "ThinkPrune-1k": (
        (81.54, 85.69, 81.45, 72.97, 28.96, 14.44),
        (1128, 4206, 759, 7548, 13001, 14326),
        (0.1515, 0.0811, -0.03, -0.17),
    ),
    "L1": (
        (86.34, 85.69, 97.66, 72.34, 29.38, 12.56),
        (2272, 4891, 2377, 8134, 13565, 15533),
        (-0.0022, -0.0022, 0.12, 0.12),
    ),
    "O1-Pruner-1.0": (
        (80.36, 85.75, 86.91, 70.78, 28.54, 12.81),
        (1272, 4174, 1225, 7606, 12930, 14410),
        (0.1022, -0.0013, -0.01, -0.12),
    ),
    "O1-Pruner-4.0": (
        (84.39, 85.56, 91.21, 71.88, 30.63, 12.62),
        (1561, 4452, 1500, 7848, 12669, 14547),
        (0.1288, 0.1288, 0.12, 0.12),
    ),
    "ShorterBetter": (
        (71.24, 82.47, 84.77, 74.84, 27.08, 11.62),
        (294, 3205, 200, 6068, 11714, 12908),
        (0.0207, -0.4482, 0.10, -0.03),
    ),
    "ACPO": (
        (82.78, 85.44, 91.02, 71.25, 30.42, 12.62),
        (1252, 4175, 1282, 7251, 12367, 14189),
        (0.1673, 0.1261, 0.14, 0.14),
    ),
    "CRT": (
        (84.64, 86.06, 93.16, 74.38, 28.54, 13.63),
        (1172, 3826, 1582, 6934, 12674, 13956),
        (0.2901, 0.2901, 0.21, 0.21),
    ),
}


def printed(accuracies, lengths):
    """Counts that average to what is printed: two problems of 10,000 rollouts a set."""
    zips = {f"zip{k}_{v}": 0 for k in ("", "_correct", "_wrong") for v in ("sum", "n")}
    n = 10_000
    return tallies(
        [
            Count(name, f"{name}-{i}", n, n, round(100 * acc), 0, length * n, 0, **zips)
            for name, acc, length in zip(SETS, accuracies, lengths, strict=True)
            for i in range(2)
        ]
    )


@pytest.fixture(scope="module")
def tables():
    made = {name: printed(acc, length) for name, (acc, length, _) in ROWS.items()}
    base = made["DeepSeek-1.5B"]
    return paper_tables([Entry(name, found, base) for name, found in made.items()])


@pytest.mark.parametrize("method", ROWS)
@pytest.mark.parametrize(("table", "place", "digit"), [("in", 0, 0.0005), ("out", 2, 0.011)])
def test_the_scores_of_tables_1_and_2(tables, method, table, place, digit):
    scores = {
        cell["figure"]: cell["value"]
        for cell in as_rows(tables)
        if cell["table"] == f"table_{table}_domain" and cell["method"] == method
    }
    expected = ROWS[method][2][place : place + 2]
    assert (scores["aes1"], scores["aes2"]) == pytest.approx(expected, abs=digit)


def test_the_averages_of_crt_and_what_is_best(tables):
    table = next(table for table in tables if table.key == "table_in_domain")
    rows = dict(table.rows)
    values = [round(cell.interval.value, 2) for cell in rows["CRT"]]
    assert values[:6] == [84.64, 1172.0, 86.06, 3826.0, 85.35, 2499.0]  # print: 2499.2
    best = {
        (column.head, column.title): name
        for name, cells in table.rows
        for column, cell in zip(table.columns, cells, strict=True)
        if "best" in cell.marks
    }
    assert best[("gsm8k", "Acc")] == "L1"
    assert best[("math500", "Acc")] == "CRT"
    assert best[("Avg", "Len")] == "ShorterBetter"
    assert best[("Metrics", "AES2")] == "CRT"


def test_markdown_prints_the_row_as_the_paper_does(tables):
    table = next(table for table in tables if table.key == "table_in_domain")
    line = next(x for x in markdown([table]).splitlines() if x.startswith("| CRT"))
    assert line == (
        "| CRT | 84.64 | 1172 | **86.06** | 3826 | 85.35 | 2499.0 | **0.2901** | **0.2901** |"
    )


def test_the_tables_are_all_there(tables):
    keys = [table.key for table in tables]
    assert keys[:3] == ["table_in_domain", "table_out_domain", "table_all"]
    assert "stability_gsm8k" in keys and "redundancy_gsm8k" in keys and keys[-1] == "certificate"
