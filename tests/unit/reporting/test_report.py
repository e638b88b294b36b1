"""The command: files, watching, and what it refuses."""

import threading
import time

import pytest

from crt.cli import main
from crt.io import write_json
from crt.reporting.load import load_report_data
from crt.reporting.report import ReportOptions, fingerprint, watch


def test_page_and_figures(run_with_series, tmp_path, capsys):
    out, figures = tmp_path / "pages" / "x.html", tmp_path / "figures"
    options = ["--out", str(out), "--figures", str(figures), "--format", "svg"]
    code = main(["report", str(run_with_series), *options])
    assert code == 0 and f"{out} (" in capsys.readouterr().out
    assert out.read_text().startswith("<!doctype html>")
    assert {path.name for path in figures.iterdir()} >= {"tradeoff.svg", "training.svg"}
    assert not [*figures.glob("*.pdf"), *figures.glob("*.png")]


def test_the_page_goes_into_the_first_folder(run_with_series, capsys):
    assert main(["report", str(run_with_series)]) == 0
    assert (run_with_series / "report.html").is_file()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--format", "gif"], "--format 'gif': a figure is svg, pdf, png"),
        (["--texts", "-1"], "--texts -1 is not a number of megabytes"),
        (["--every", "0"], "--every 0 is not a number of seconds"),
    ],
)
def test_bad_settings_are_one_sentence(run_with_series, options, sentence, capsys):
    assert main(["report", str(run_with_series), *options]) == 2
    assert sentence in capsys.readouterr().err


def test_a_folder_without_anything(tmp_path, capsys):
    (tmp_path / "runs").mkdir()  # as a refused `crt train` may leave it
    assert main(["report", str(tmp_path)]) == 2
    assert "is not a run, an evaluation" in capsys.readouterr().err
    assert not (tmp_path / "report.html").exists()


def test_a_folder_that_cannot_be_made(run_with_series, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert main(["report", str(run_with_series), "--out", str(tmp_path / "file" / "x.html")]) == 2
    assert "cannot be made" in capsys.readouterr().err


def test_a_new_step_changes_the_fingerprint(make_run, tmp_path):
    run = make_run(tmp_path / "run", steps=2)
    before = fingerprint([run.path])
    assert fingerprint([run.path]) == before
    run.add_step({"step": 3, "stage": 1})
    assert fingerprint([run.path]) != before


def test_watching_follows_a_run_to_its_end(make_run, tmp_path):
    run = make_run(tmp_path / "run", steps=2)
    out = tmp_path / "report.html"
    pages: list[str] = []
    told: list[int] = []

    def go_on(data) -> None:
        pages.append(out.read_text())
        told.append(len(data.runs[0].steps))
        if len(told) == 1:  # the run goes on only after the first page was seen
            run.add_step({**run.steps[-1], "step": 3})
            write_json(run.path / "progress.json", {"finished": True})

    found = watch(ReportOptions((run.path,), out), every=0.2, on_written=go_on, on_error=print)
    assert told == [2, 3] and found.runs[0].finished
    assert all('data-state="live"' in page for page in pages)
    assert 'data-state="still"' in out.read_text()  # the last one waits for nothing


def test_watching_outlives_a_file_that_is_damaged_for_a_moment(make_run, tmp_path):
    run = make_run(tmp_path / "run", steps=2)
    notes: list[str] = []
    record = run.checkpoint(2) / "record.json"
    whole = record.read_text()

    def damage(_) -> None:
        if not notes:
            record.write_text("{")

    def repair(sentence: str) -> None:
        notes.append(sentence)
        record.write_text(whole)
        write_json(run.path / "progress.json", {"finished": True})

    found = watch(
        ReportOptions((run.path,), tmp_path / "x.html"),
        every=0.2,
        on_written=damage,
        on_error=repair,
    )
    assert found.runs[0].finished and "record.json is damaged" in notes[0]


def test_watching_that_is_interrupted_leaves_a_page_that_does_not_wait(make_run, tmp_path):
    run = make_run(tmp_path / "run", steps=2)
    out = tmp_path / "report.html"

    def stop(_) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        watch(ReportOptions((run.path,), out), every=0.2, on_written=stop, on_error=print)
    assert 'data-state="still"' in out.read_text()


def test_a_reader_never_meets_half_a_page(make_run, tmp_path):
    run = make_run(tmp_path / "run", steps=2)
    out = tmp_path / "report.html"
    halves: list[str] = []
    ended = threading.Event()

    def read() -> None:
        while not ended.is_set():
            if out.exists() and not out.read_text().endswith("</html>\n"):
                halves.append(out.name)
            time.sleep(0.001)

    reader = threading.Thread(target=read)
    reader.start()
    for _ in range(5):
        assert main(["report", str(run.path), "--out", str(out)]) == 0
    ended.set()
    reader.join()
    assert halves == [] and load_report_data([run.path]).runs
