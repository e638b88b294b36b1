"""Tables say what they hold, and let nothing through that is not text."""

import csv
import io
import json

import pytest

from crt.algorithm.statistics import Interval
from crt.evaluation import render
from crt.evaluation.metrics import counts_by_dataset
from crt.evaluation.tables import Cell, Column, Entry, Table, paper_tables
from tests.support.counts import count_row

HOSTILE = "\x1b[31mred\x1b[0m|a*b_c<script>&$\\x{}%#~^\u202e\n=1+1"
TABLE = Table(
    "t",
    "Title",
    (Column("gsm8k", "Acc", "acc", ("gsm8k",), 2, "higher"),),
    (
        ("plain", (Cell(Interval(84.641, 83.2, 86.0, 100), marks=frozenset(["best"])),)),
        (HOSTILE, (Cell(Interval(-1.5, float("nan"), float("nan"), 3)),)),
        ("unknown", (Cell(),)),
    ),
    ("a note",),
)


def test_terminal_lets_no_control_character_through():
    for colour in (False, True):
        text = render.terminal([TABLE], colour=colour)
        left = text.replace("\x1b[1m", "").replace("\x1b[0m", "").replace("\x1b[3m", "")
        assert "\x1b" not in left if not colour else "\x1b[31m" not in left
        assert "\u202e" not in text
    assert "84.64*" in render.terminal([TABLE])
    assert "84.64 [83.20, 86.00]" in render.terminal([TABLE], intervals=True)


def test_markdown_escapes_what_would_be_markup():
    [line] = [x for x in render.markdown([TABLE]).splitlines() if "red" in x]
    assert r"\|a\*b\_c&lt;script&gt;&amp;$" in line
    assert line.count(" | ") == 1 and "\x1b" not in line
    assert "| plain | **84.64** |" in render.markdown([TABLE])
    assert "| unknown | – |" in render.markdown([TABLE])


def test_latex_escapes_what_would_be_a_command():
    [line] = [x for x in render.latex([TABLE]).splitlines() if "red" in x]
    assert r"\&\$\textbackslash{}x\{\}\%\#\textasciitilde{}\textasciicircum{}" in line
    assert r"a*b\_c\textless{}script\textgreater{}" in line
    assert r"plain & \textbf{84.64} \\" in render.latex([TABLE])


def test_latex_has_minus_signs_indices_and_a_label():
    cell, negative = Cell(Interval(0.5, 0.4, 0.6, 9)), Cell(Interval(-4.1, -5.0, -3.2, 9))
    columns = tuple(Column("", title, title.lower(), (), 1) for title in ("AES1", "R_zip wrong"))
    text = render.latex([Table("table_all", "T", columns, (("a", (cell, negative)),))], True)
    assert r"a & 0.5 [0.4, 0.6] & $-$4.1 [$-$5.0, $-$3.2] \\" in text
    assert r"\textbf{Method} & AES$_1$ & R$_{\mathrm{zip}}$ wrong \\" in text
    assert r"\label{tab:table-all}" in text and "multicolumn" not in text  # no empty headings


def test_a_table_wider_than_the_screen_is_one_block_per_row():
    columns = tuple(Column("gsm8k", f"metric {i}", "acc", ("gsm8k",), 2) for i in range(8))
    cells = tuple(Cell(Interval(1000.0 + i, 0.0, 1.0, 9)) for i in range(8))
    table = Table("t", "Title", columns, (("ours", cells), ("base", cells)))
    wide = render.terminal([table], width=120)
    assert "┃" in wide and "…" not in wide
    narrow = render.terminal([table], width=60)
    assert "┃" not in narrow and "…" not in narrow
    assert "ours\n  gsm8k metric 0  1000.00\n  gsm8k metric 1  1001.00\n" in narrow
    assert all(len(line) <= 60 for line in narrow.splitlines())


def test_no_screen_is_so_narrow_that_a_figure_is_cut():
    columns = tuple(
        Column("all data sets", f"tokens saved {i}", "acc", ("a",), 2) for i in range(4)
    )
    cells = tuple(Cell(Interval(10.0 + i, 7.0, 13.0, 9)) for i in range(4))
    table = Table("t", "Title", columns, (("ours", cells),))
    for width in range(55, 130, 3):
        text = render.terminal([table], intervals=True, width=width)
        assert all(f"1{i}.00 [7.00, 13.00]" in text for i in range(4)), width
        assert all(len(line) <= width for line in text.splitlines()), width


def test_a_pipe_is_as_wide_as_columns_says(monkeypatch):
    for width in (40, 48, 90):
        monkeypatch.setenv("COLUMNS", str(width))
        assert max(map(len, render.terminal([TABLE]).splitlines())) <= width


def test_csv_and_json_hold_value_interval_and_n():
    rows = list(csv.DictReader(io.StringIO(render.as_csv([TABLE]))))
    assert (rows[0]["value"], rows[0]["low"], rows[0]["problems"]) == ("84.641", "83.2", "100")
    assert rows[0]["best"] == "True"
    assert rows[1]["low"] == "" and rows[2]["value"] == ""
    [table] = json.loads(render.as_json([TABLE]))
    assert table["cells"][1]["low"] is None  # JSON has no NaN
    assert table["cells"][0]["value"] == 84.641


def test_rows_tell_a_set_from_an_average():
    over = Column("Avg", "Acc", "acc", ("gsm8k",), 2)
    rows = render.as_rows([Table("t", "T", (*TABLE.columns, over), (("a", (Cell(), Cell())),))])
    assert [(row["kind"], row["sets"]) for row in rows] == [("set", "gsm8k"), ("average", "gsm8k")]


def test_a_name_that_a_spreadsheet_would_run_is_quoted():
    table = Table("t", "T", TABLE.columns, (("=cmd()", (Cell(),)),))
    assert "'=cmd()" in render.as_csv([table])


def entry(name, correct, base=None, tokens=100):
    """40 problems of 4 rollouts; `correct(i)` of them right."""
    made = counts_by_dataset(
        count_row("gsm8k", f"p{i}", 4, 4, correct(i), 0, 4 * tokens, 0, 1) for i in range(40)
    )
    return Entry(name, made, made if base is None else base)


@pytest.fixture
def table():
    base = entry("base", lambda i: i % 4)
    others = [
        entry("same", lambda i: (i + 1) % 4, base.counts, tokens=90),  # same mean, shuffled
        entry("better", lambda i: min(4, i % 4 + 2), base.counts, tokens=50),
    ]
    return paper_tables([base, *others])[0]


def marks(table, name, title):
    place = [column.title for column in table.columns].index(title)
    return dict(table.rows)[name][place].marks


def test_a_difference_the_interval_does_not_support_is_marked(table):
    assert "base_unsure" in marks(table, "same", "Acc")
    assert "base_unsure" not in marks(table, "better", "Acc")
    assert "base_unsure" not in marks(table, "same", "Len")  # 90 against 100, every problem
    assert "base_unsure" not in marks(table, "base", "Acc")


def test_the_best_is_marked_and_whether_its_lead_is_sure(table):
    assert marks(table, "better", "Acc") == {"best"}
    base = entry("base", lambda i: i % 4)
    rival = entry("rival", lambda i: (i + 1) % 4 + (i == 0), base.counts)
    unsure = paper_tables([base, rival])[0]
    assert marks(unsure, "rival", "Acc") == {"best", "lead_unsure", "base_unsure"}
    assert "°≈" in render.markdown([unsure])


def test_equals_share_the_mark_and_when_all_are_equal_there_is_none():
    base = entry("base", lambda i: 1)
    two = [entry(name, lambda i: 2, base.counts) for name in ("one", "two")]
    table = paper_tables([base, *two])[0]
    assert "best" in marks(table, "one", "Acc") and "best" in marks(table, "two", "Acc")
    assert not any("best" in marks(table, name, "Len") for name in ("base", "one", "two"))


def test_a_partial_average_is_said_to_be_one(table):
    assert "without math500" in table.notes[0]
