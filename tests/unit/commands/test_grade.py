"""crt grade: one verdict a line, or one sentence and nothing written."""

import io
import json
import sys
from pathlib import Path

import pytest

from crt.cli import main
from tests.support.files import write_jsonl

RIGHT = {"id": "a", "response": r"<think>hm</think> \boxed{\frac12}", "answer": 0.5, "rollout": 3}
WRONG = {"id": "b", "response": r"\boxed{7}", "answer": "8"}
CUT = {"id": "c", "response": "<think> it is", "answer": "8", "prompt": "long" * 100}


def jsonl(path: Path, *records: object) -> str:
    return str(write_jsonl(path, records))


def rows(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


def test_one_verdict_a_line_with_the_fields_that_identify_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["grade", jsonl(tmp_path / "in.jsonl", RIGHT, WRONG, CUT)]) == 0
    printed = capsys.readouterr()
    assert rows(printed.out) == [
        {
            "id": "a",
            "rollout": 3,
            "answer": 0.5,
            "verdict": "correct",
            "extracted": r"\frac12",
            "reason": "same: an expression for a number",
        },
        {
            "id": "b",
            "answer": "8",
            "verdict": "wrong",
            "extracted": "7",
            "reason": "whole numbers",
        },
        {  # the prompt is too long to identify anything
            "id": "c",
            "answer": "8",
            "verdict": "no_answer",
            "extracted": None,
            "reason": "thinking is not closed",
        },
    ]
    assert printed.err == (
        "graded 3: 1 correct, 1 wrong, 1 no answer, 0 ungraded (33.3 % correct)\n"
    )


def test_a_line_brings_options_tolerance_question_and_thinking(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records = [
        {"response": r"\boxed{4}", "answer": "B", "options": ["3", "4"]},
        {"response": r"\boxed{4.4}", "answer": "4", "tolerance": 0.5},
        {"response": r"\boxed{5\%}", "answer": "5", "question": "What percent is it?"},
        {"response": r"\boxed{5}", "answer": "5", "thinking_opened": True},
    ]
    main(["grade", jsonl(tmp_path / "in.jsonl", *records)])
    verdicts = [row["verdict"] for row in rows(capsys.readouterr().out)]
    assert verdicts == ["correct", "correct", "correct", "no_answer"]


CAPITALS = {
    "a letter": {"options": ["Paris", "Rome"], "answer": "B"},
    "an index": {"options": ["Paris", "Rome"], "answer": 1},
    "choices": {"choices": ["Paris", "Rome"], "answer": 1},
    "labels": {"choices": "A) Paris B) Rome", "answer": "(b)"},
    "words": {"options": ["Paris", "Rome"], "answer": "Rome"},
}


@pytest.mark.parametrize("written", CAPITALS)
def test_choices_are_read_as_the_data_loader_reads_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], written: str
) -> None:
    gold = {"question": "Italy's capital?", **CAPITALS[written]}
    assert main(["data", "show", jsonl(tmp_path / "data.jsonl", {"id": "p", **gold})]) == 0
    assert "(A) Paris\n(B) Rome\nanswer: B\n" in capsys.readouterr().out

    predictions = ["B", "Rome", "(B) Rome", "A", "Paris", "1"]
    responses = [{"id": "p", "response": rf"\boxed{{{prediction}}}"} for prediction in predictions]
    graded = jsonl(tmp_path / "in.jsonl", *({**gold, **response} for response in responses))
    assert main(["grade", graded]) == 0
    verdicts = [row["verdict"] for row in rows(capsys.readouterr().out)]
    assert verdicts == ["correct"] * 3 + ["wrong"] * 3

    scored = jsonl(tmp_path / "responses.jsonl", *responses)
    assert main(["score", scored, "--data", str(tmp_path / "data.jsonl"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["sets"]["data"]["acc"]["value"] == 50.0  # 3 of 6


def test_an_empty_list_of_options_is_no_multiple_choice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = {"question": "1+1?", "response": r"\boxed{2}", "answer": 2, "options": []}
    source = jsonl(tmp_path / "in.jsonl", line)
    assert main(["data", "show", source]) == 0
    assert "1+1?\nanswer: 2\n" in capsys.readouterr().out
    assert main(["grade", source]) == 0
    assert rows(capsys.readouterr().out)[0]["verdict"] == "correct"


def test_the_prompts_of_a_whole_file_may_have_opened_the_thinking(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["grade", "--thinking-opened", jsonl(tmp_path / "in.jsonl", WRONG)])
    assert rows(capsys.readouterr().out)[0]["verdict"] == "no_answer"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{bad", "not JSON: Expecting"),
        ("[1]", "a JSON list, not an object"),
        ('{"response": "5", "answer": ' + "9" * 5000 + "}", "not usable JSON: Exceeds the limit"),
        ('{"answer": "5"}', "no response"),
        ('{"response": "5"}', "no answer"),
        ('{"response": 5, "answer": "5"}', "response 5 is not text"),
        ('{"response": "5", "answer": true}', "answer True is bool, not text"),
        ('{"response": "5", "answer": "5", "options": "AB"}', "options 'AB' are not a list"),
        ('{"response": "5", "answer": "E", "options": ["1", "2"]}', "answer 'E' is not a letter"),
        (
            '{"response": "5", "answer": "5", "tolerance": -1}',
            "tolerance -1 is not a number",
        ),
        (
            '{"response": "5", "answer": "5", "tolerance": NaN}',
            "tolerance nan is not a number",
        ),
    ],
)
def test_a_bad_line_is_refused_by_number_and_nothing_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], line: str, reason: str
) -> None:
    out = tmp_path / "out.jsonl"
    source = jsonl(tmp_path / "in.jsonl", WRONG, "", line)  # an empty line counts, and is no error
    assert main(["grade", source, "--out", str(out)]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith(f"crt grade: {source}, line 3: {reason}")
    assert "--skip-bad" in printed.err and printed.err.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["in.jsonl"]


def test_skip_bad_goes_on_and_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = jsonl(tmp_path / "in.jsonl", "{bad", WRONG, "null", RIGHT)
    assert main(["grade", source, "--skip-bad"]) == 0
    printed = capsys.readouterr()
    assert [row["id"] for row in rows(printed.out)] == ["b", "a"]
    assert printed.err.endswith("; 2 bad lines left out\n")


def test_out_replaces_a_file_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.jsonl"
    out.write_text("old\n")
    assert main(["grade", jsonl(tmp_path / "in.jsonl", WRONG), "--out", str(out)]) == 0
    assert rows(out.read_text())[0]["verdict"] == "wrong"
    assert capsys.readouterr().out == ""
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.jsonl", "out.jsonl"]


def test_standard_input(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(json.dumps(WRONG).encode())))
    assert main(["grade", "-"]) == 0
    assert rows(capsys.readouterr().out)[0]["id"] == "b"


def test_a_missing_or_empty_file_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["grade", str(tmp_path / "none.jsonl")]) == 2
    assert "No such file" in capsys.readouterr().err
    empty = tmp_path / "empty.jsonl"
    empty.write_text("\n")
    assert main(["grade", str(empty)]) == 2
    assert "no line to grade (0 bad)" in capsys.readouterr().err


def test_a_grader_that_is_not_alive_stops_everything(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    assert main(["grade", jsonl(tmp_path / "in.jsonl", WRONG)]) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and "The grader is not alive" in printed.err


def test_another_verifier_and_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = jsonl(tmp_path / "in.jsonl", {"response": "3 + 4 = 7", "answer": "7"})
    for words in (["--verifier", "number"], ["--answer", "last_number"]):
        assert main(["grade", source, *words]) == 0
        assert rows(capsys.readouterr().out)[0]["verdict"] == "correct"
    assert main(["grade", source, "--verifier", "numbr"]) == 2
    assert "Did you mean `number`" in capsys.readouterr().err


def test_a_line_chooses_its_verifier_but_not_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = {"response": r"\boxed{the bard}", "answer": ["Shakespeare", "The Bard"]}
    assert main(["grade", jsonl(tmp_path / "a.jsonl", {**line, "verifier": "exact"})]) == 0
    assert rows(capsys.readouterr().out)[0]["verdict"] == "correct"
    program = {"response": "```\ndef f(): return 1\n```", "test_list": ["assert f() == 1"]}
    source = jsonl(tmp_path / "b.jsonl", {**program, "id": "p"})
    assert main(["grade", source]) == 2
    assert "allow it with grading.allow" in capsys.readouterr().err
    assert main(["grade", source, "--allow", "code"]) == 0
    assert rows(capsys.readouterr().out)[0]["verdict"] == "correct"
