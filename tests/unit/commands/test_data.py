import json

import pytest

from crt.cli import main
from tests.support.files import write_jsonl


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.delenv("CRT_DATA", raising=False)
    sums = [{"id": f"q{i}", "question": f"What is {i}+1?", "answer": str(i + 1)} for i in range(4)]
    made = tmp_path / "data"
    made.mkdir()
    write_jsonl(made / "gsm8k_train.jsonl", sums)
    write_jsonl(made / "amc23.jsonl", [{"id": "a", "question": "what is  1+1?", "answer": "3"}])
    return made


def data(*words):
    return main(["data", *map(str, words)])


def test_list_says_what_is_local(folder, capsys):
    assert data("list", "--folder", folder) == 0
    lines = capsys.readouterr().out.splitlines()
    assert f"gsm8k\ttrain\t4\t{folder / 'gsm8k_train.jsonl'}\tMIT" in lines
    assert "gsm8k\ttest\t-\topenai/gsm8k\tMIT" in lines


def test_show_prints_problems(folder, capsys):
    assert data("show", "gsm8k/train:3", "-n", 1, "--folder", folder) == 0
    shown = capsys.readouterr().out
    assert shown.count("answer: ") == 1
    assert "3 problems from" in shown


def test_check_finds_a_training_problem_in_a_test(folder, capsys):
    names = ["gsm8k/train", "amc23"]
    assert data("check", *names, "--folder", folder) == 0
    out = capsys.readouterr().out
    assert "gsm8k/train and amc23\t1\t1\t0" in out  # one question, and its golds differ
    assert "gsm8k/train and amc23: same question: q1 = a" in out
    assert data("check", *names, "--folder", folder, "--strict") == 1


def test_check_of_clean_data_is_quiet(folder, capsys):
    assert data("check", "gsm8k/train", "--folder", folder, "--strict") == 0
    assert capsys.readouterr().out.splitlines()[1:] == ["gsm8k/train\t0\t0\t0"]


def test_export_can_be_read_again(folder, tmp_path, capsys):
    choice = {"id": "s", "stem": "1+1?", "options": ["(A)1", "(B)2"], "answer": "B"}
    write_jsonl(folder / "sat_math.jsonl", [choice])
    out = tmp_path / "sat.jsonl"
    assert data("export", "sat_math", "--out", out, "--folder", folder) == 0
    again = tmp_path / "again.jsonl"
    assert data("export", out, "--out", again) == 0
    first, second = (json.loads(path.read_text()) for path in (out, again))
    assert {**first, "source": ""} == {**second, "source": ""}
    assert first["question"] == "1+1?\n(A) 1\n(B) 2"


def test_export_never_overwrites_by_itself(folder, tmp_path, capsys):
    out = tmp_path / "out.jsonl"
    out.write_text("mine")
    assert data("export", "amc23", "--out", out, "--folder", folder) == 2
    assert "is there already" in capsys.readouterr().err
    assert out.read_text() == "mine"
    assert data("export", "amc23", "--out", out, "--folder", folder, "--force") == 0
    assert json.loads(out.read_text())["id"] == "a"


def test_a_refused_export_leaves_no_file(folder, tmp_path, capsys):
    (folder / "aime24.jsonl").write_text("broken\n")
    out = tmp_path / "out.jsonl"
    assert data("export", "aime24", "--out", out, "--folder", folder) == 2
    assert "aime24.jsonl, line 1: not JSON" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_skip_bad_counts_on_standard_error(folder, capsys):
    with (folder / "amc23.jsonl").open("a") as file:
        file.write('{"question": "Q?", "answer": ""}\n')
    assert data("show", "amc23", "--folder", folder) == 2
    assert data("show", "amc23", "--folder", folder, "--skip-bad") == 0
    told = capsys.readouterr().err
    assert "amc23: 1 bad rows left out" in told
    assert "line 2: empty answer" in told


def test_columns_of_a_file(tmp_path, capsys):
    path = tmp_path / "mine.csv"
    path.write_text("prompt,gold\n1+1?,2\n")
    assert data("show", path, "--columns", "question=prompt,answer=gold") == 0
    assert "1+1?\nanswer: 2" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words", [["show", "amc23", "--columns", "question"], ["show", "x", "-n", "0"]]
)
def test_a_wrong_option_is_refused(words, capsys):
    with pytest.raises(SystemExit) as ended:
        data(*words)
    assert ended.value.code == 2
