import json
from dataclasses import replace

import pytest
from harness.page import BEGIN, END, update_page
from harness.results import Row, compared, merged, on, read_rows, write_rows
from harness.timing import Timing

from crt.errors import DataError

ROW = Row("step", "a step", "stock", 4.0, 3.0, 5.0, 4.0, "higher", 1.0, 4.0, "s", repeats=3)


@pytest.mark.parametrize(
    "low, high, better, met",
    [
        (4.0, 5.0, "higher", "yes"),
        (3.9, 5.0, "higher", "unsure"),
        (3.0, 3.9, "higher", "no"),
        (3.0, 4.0, "lower", "yes"),
        (4.1, 5.0, "lower", "no"),
    ],
)
def test_a_goal_is_met_when_the_whole_interval_says_so(low, high, better, met):
    assert replace(ROW, low=low, high=high, better=better).met == met


def test_of_too_few_repeats_nothing_is_said():
    sure = replace(ROW, low=6.0, high=7.0)
    assert (sure.met, replace(sure, repeats=2).met) == ("yes", "unsure")


def test_times_as_fast_and_times_the_cost():
    ours, theirs = [Timing(2.0, 1.0, 10.0)] * 3, [Timing(6.0, 4.0, 10.0)] * 3
    fast = compared("a", "", "", ours, theirs, goal=2, scale=1000)
    # 0.2 s against 0.6 s a unit; in CPU seconds 0.1 against 0.4
    assert (fast.ratio, fast.cpu_ratio, fast.ours, fast.theirs) == (3.0, 4.0, 200.0, 600.0)
    cost = compared("a", "", "", ours, theirs, goal=2, better="lower")
    assert (cost.ratio, cost.cpu_ratio) == (0.3333, 0.25)


def test_a_busy_machine_is_told():
    assert not on(ROW, 0.05, {}).busy
    assert "others used 0.8 cores" in on(ROW, 0.8, {}).line()


def test_a_row_measured_again_leaves_the_others_alone(tmp_path):
    path, order = tmp_path / "results.json", ("step", "serving")
    assert read_rows(path) == []
    for row in (replace(ROW, name="serving"), ROW, replace(ROW, ratio=6.0)):
        write_rows(path, merged(read_rows(path), row, order))
    told = json.loads(path.read_text())
    assert [(row["name"], row["ratio"]) for row in told] == [("step", 6.0), ("serving", 4.0)]
    needed = {"name", "ratio", "low", "high", "goal", "ours", "theirs", "machine"}
    assert all(needed <= row.keys() for row in told)
    # a row that no benchmark measures any more goes
    assert [row.name for row in merged(read_rows(path), ROW, ("step",))] == ["step"]


def test_words_around_the_table_stay(tmp_path):
    page = tmp_path / "performance.md"
    page.write_text(f"# Speed\n\n{BEGIN}\nold\n{END}\n\nTried: \\1 and nothing came of it.\n")
    for _ in range(2):  # a second time changes nothing
        update_page(page, [ROW])
        text = page.read_text()
        assert text.startswith("# Speed\n") and text.endswith(
            "Tried: \\1 and nothing came of it.\n"
        )
        assert text.count("| `step` |") == 1 and "old" not in text


def test_a_page_without_a_place_for_the_table_is_refused(tmp_path):
    page = tmp_path / "performance.md"
    page.write_text("# Speed\n")
    with pytest.raises(DataError, match="needs the lines"):
        update_page(page, [ROW])
