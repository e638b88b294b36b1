"""Every line of a contract has its curve, and its row in the page."""

from datetime import UTC, datetime

from crt.reporting import summary
from crt.reporting.figures import contract
from crt.reporting.load import load_report_data
from crt.reporting.report import contract_rows, figures_of, page

LINES = {
    "lines": [
        {"metric": "accuracy", "at_least": "reference", "tolerance": 0.01},
        {"metric": "tokens", "at_most": 95},
    ]
}
ACCURACY, TOKENS = "accuracy at least reference", "tokens at most 95.0"


def stands(step: int) -> dict:
    error = {"standard_error": 0.02, "multiplier": 1.0}
    return {
        ACCURACY: {"value": 0.8, "bound": 0.75, "margin": 0.06, **error},
        TOKENS: {"value": 98.0 - step, "bound": 95.0, "margin": step - 3.0, **error},
    }


def contracted_run(make_run, make_series, answers, folder):
    run = make_run(folder / "run", steps=4, finished=True, method={"type": "crt_1s"},
                   contract=LINES)  # fmt: skip
    for step in range(5, 9):
        run.add_step({**run.steps[-1], "step": step, "lines": stands(step - 4)})
    courses = [(step, answers(100 - 10 * step, [2] * 40)) for step in (0, 2, 4)]
    make_series(run.path / "evaluations" / "own", courses)
    return run.path


def test_a_panel_per_line(make_run, make_series, answers, tmp_path):
    data = load_report_data([contracted_run(make_run, make_series, answers, tmp_path)])
    [figure] = contract.figures(data)
    assert [panel["title"]["text"] for panel in figure.spec["vconcat"]] == [ACCURACY, TOKENS]
    rows = contract.make_rows(data.runs[0])
    # shares in %, and the bound with what is tolerated
    assert (rows[ACCURACY][0]["value"], rows[ACCURACY][0]["bound"]) == (80.0, 74.0)
    assert [row["state"] for row in rows[TOKENS]] == ["broken", "broken", "kept", "kept"]


def test_the_page_has_a_row_per_line_and_the_badge_counts_them(
    make_run, make_series, answers, tmp_path
):
    data = load_report_data([contracted_run(make_run, make_series, answers, tmp_path)])
    rows = {name: words for name, *words in contract_rows(data)}
    assert rows[TOKENS][-1] == "passed"  # 60 tokens in every response
    assert rows[ACCURACY][-1] == "not passed"  # 40 problems are too few for a point
    badge = summary.certificate(data)
    assert badge.state == "open" and badge.badge == "contract not certified · 1 of 2 lines"
    text = page(data, figures_of(data), datetime(2026, 1, 2, tzinfo=UTC))
    assert TOKENS in text and "(Bonferroni)" in text


def test_a_run_without_a_contract_shows_none(the_run):
    data = load_report_data([the_run])
    assert contract.figures(data) == [] and contract_rows(data) == []
