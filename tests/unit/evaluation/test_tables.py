"""The paper's printed rows, from counts by problem through to the printed tables."""

from copy import deepcopy

import pytest

from crt.errors import ConfigError, DataError
from crt.evaluation.metrics import counts_by_dataset
from crt.evaluation.render import as_rows, markdown
from crt.evaluation.store import Evaluation, incomparable
from crt.evaluation.tables import Entry, compare, paper_tables
from tests.support.counts import count_row

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
    n = 10_000
    return counts_by_dataset(
        [
            count_row(name, f"{name}-{i}", n, n, round(100 * acc), 0, length * n, 0)
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


MANIFEST = {
    "format": 1,
    "name": "one",
    "model": {"name": "m", "hash": "abc", "kind": "local"},
    "data": [{"name": "gsm8k", "hash": "1" * 64, "problems": 2, "skipped": 0}],
    "prompt": {"settings": {"instruction": "{question}"}, "budget": None, "hash": "t"},
    "sampling": {"rollouts": 4, "temperature": 0.6, "top_p": 0.95, "max_tokens": 512, "seed": 0},
    "grader": "1.0",
    "truncated": "wrong",
}


def changed(**parts):
    made = deepcopy(MANIFEST)
    for path, value in parts.items():
        *outer, last = path.split("__")
        place = made
        for key in outer:
            place = place[key]
        place[last] = value
    return made


def evaluation(name, manifest, problems=("p", "q")):
    rows = [count_row("gsm8k", p, 4, 4, 2, 0, 40, 0, 1) for p in problems]
    return Evaluation(name, manifest, counts_by_dataset(rows))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"sampling__max_tokens": 1024}, r"the cap \(max_tokens\): 512 and 1024"),
        ({"sampling__temperature": 1.0}, "the temperature: 0.6 and 1.0"),
        ({"sampling__rollouts": 16}, "number of rollouts: 4 and 16"),
        ({"grader": "2.0"}, "the grader: '1.0' and '2.0'"),
        ({"truncated": "grade"}, "truncated responses: 'wrong' and 'grade'"),
        ({"prompt__hash": "u"}, "chat template: 't' and 'u'"),
        ({"prompt__budget": 500}, "token budget: None and 500"),
        ({"data": [{"name": "gsm8k", "hash": "2" * 64}]}, "problems of gsm8k: 1{12} and 2{12}"),
    ],
)
def test_what_forbids_a_comparison_is_named(change, told):
    pair = [evaluation("one", MANIFEST), evaluation("two", changed(**change))]
    with pytest.raises(DataError, match=told):
        compare(pair)
    assert any("differ in" in warning for warning in compare(pair, anyway=True).warnings)


def test_answers_to_other_problems_are_refused_or_only_the_common_ones_compared():
    pair = [evaluation("one", MANIFEST), evaluation("two", MANIFEST, ("p",))]
    with pytest.raises(DataError, match="problems of gsm8k that were answered: 2 and 1"):
        compare(pair)
    certificate = compare(pair, anyway=True).tables[-1]
    change = dict(certificate.rows)["two"][0].interval
    assert change is not None and change.problems == 1


def test_the_seed_and_the_model_may_differ():
    other = changed(sampling__seed=1, model__hash="def")
    assert incomparable(evaluation("one", MANIFEST), evaluation("two", other)) == ([], [])


def test_what_is_unknown_is_said_and_not_refused():
    pair = [evaluation("one", MANIFEST), evaluation("two", changed(sampling__max_tokens=None))]
    [warning] = compare(pair).warnings
    assert "not known" in warning and "cap" in warning


def test_names_and_base():
    one, two = evaluation("one", MANIFEST), evaluation("two", MANIFEST)
    assert [name for name, _ in compare([one, two], base="two").tables[0].rows] == ["two", "one"]
    with pytest.raises(ConfigError, match="Did you mean `two`"):
        compare([one, two], base="twoo")
    with pytest.raises(ConfigError, match="two evaluations are called 'one'"):
        compare([one, one])
    with pytest.raises(ConfigError, match="two evaluations or more"):
        compare([one])
