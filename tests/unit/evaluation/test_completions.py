"""Completions of somebody else's: matched, counted, graded; what is not known is not made up."""

import json

import pytest

from crt.config import GradingConfig
from crt.errors import DataError
from crt.evaluation import load, score

PROBLEMS = [
    {"id": "p", "question": "What is 1 + 1?", "answer": "2"},
    {"id": "q", "question": "What is  2 + 2?", "answer": "4"},
]
GOOD = [
    {"problem_id": "p", "response": "\\boxed{2}", "tokens": 10, "stop": "stop"},
    {"problem_id": "p", "response": "\\boxed{3}", "tokens": 20, "stop": "stop"},
    {"question": "What is 2 + 2?", "response": "\\boxed{4}", "tokens": 30, "finish_reason": "stop"},
    {"problem_id": "q", "response": "\\boxed{4}", "tokens": 40, "finish_reason": "length"},
]


@pytest.fixture
def file(tmp_path):
    """Writes lines, beside the problems they are of."""
    (tmp_path / "two.jsonl").write_text("".join(json.dumps(row) + "\n" for row in PROBLEMS))

    def write(rows, name="mine.jsonl"):
        path = tmp_path / name
        path.write_text("".join(r if isinstance(r, str) else json.dumps(r) + "\n" for r in rows))
        return path

    return write


def scored(path, out=None, **settings):
    notes: list[str] = []
    found = score(path, [str(path.parent / "two.jsonl")], out, note=notes.append, **settings)
    return found, notes


def figures(path, **settings):
    from crt.evaluation.metrics import all_metrics

    found, _ = scored(path, **settings)
    values = all_metrics(found.counts)["sets"]["two"].values
    return {name: value.value for name, value in values.items()}


def test_by_id_and_by_question_with_figures_by_hand(file):
    found = figures(file(GOOD))
    # p: 1 of 2; q: one right, one right but cut off, which is wrong: 1 of 2
    assert found["acc"] == 50.0
    assert found["len"] == ((10 + 20) / 2 + (30 + 40) / 2) / 2
    assert found["truncated"] == 25.0
    assert figures(file(GOOD), truncated="grade")["acc"] == 75.0


def test_a_line_may_hold_several_responses(file):
    rows = [{"id": "p", "response": ["\\boxed{2}", "\\boxed{3}"], "tokens": [5, 7]}]
    found, notes = scored(file(rows))
    assert found.counts["two"].rollouts.tolist() == [2]
    assert found.counts["two"].tokens.tolist() == [12]
    assert "1 of 2 problems have no completion, such as q" in notes[0]


def test_without_counts_length_is_unknown_and_never_characters(file):
    rows = [{k: v for k, v in row.items() if k != "tokens"} for row in GOOD]
    found, _ = scored(file(rows))
    assert "len" not in figures(file(rows))
    assert any("Len is unknown" in warning for warning in found.warnings)


def test_the_cap_tells_what_was_cut_off_when_the_file_does_not(file):
    rows = [{"id": "p", "response": "\\boxed{2}", "tokens": n} for n in (99, 100)]
    assert figures(file(rows), max_tokens=100)["truncated"] == 50.0
    assert "truncated" not in figures(file(rows))  # unknown, not 0


def test_a_tokenizer_counts_with_the_end(file, tiny):
    # "\boxed{", "2", "}" and the EOS that is not in the text
    rows = [{"id": "p", "response": "\\boxed{2}"}]
    assert figures(file(rows), tokenizer=str(tiny))["len"] == 4


def test_responses_that_start_inside_a_thought(file):
    rows = [{"id": "p", "response": "I guess \\boxed{2}"}]
    assert figures(file(rows))["acc"] == 100.0
    assert figures(file(rows), opens_thinking=True)["no_answer"] == 100.0


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("not json\n", "line 2: not JSON"),
        ("[1]\n", "line 2: a line is an object, this is list"),
        ('{"id": "p"}\n', "line 2: no response"),
        ('{"response": "x"}\n', "line 2: neither a problem id nor a question"),
        ('{"id": "zz", "response": "x"}\n', "line 2: problem 'zz' is not in two"),
        ('{"question": "Why?", "response": "x"}\n', r"line 2: the question 'Why\?' is not in two"),
        ('{"id": "p", "response": "x", "tokens": -1}\n', "line 2: tokens is -1"),
        ('{"id": "p", "response": "x", "tokens": 1e9}\n', r"line 2: tokens is 1000000000\.0"),
        ('{"id": "p", "response": "x", "tokens": 1%s}\n' % ("0" * 400), "line 2: tokens is 10"),
        ('{"id": "p", "response": "x", "stop": "tired"}\n', "line 2: stop is 'tired'"),
        ('{"id": "p", "response": ["x", "y"], "tokens": [1]}\n', "line 2: a list beside"),
    ],
)
def test_a_bad_line_is_named_or_left_out_and_counted(file, line, told):
    path = file([GOOD[0], line])
    with pytest.raises(DataError, match=told):
        scored(path)
    found, notes = scored(path, skip_bad=True)
    assert found.counts["two"].rollouts.tolist() == [1]
    assert any("1 lines left out" in note for note in notes)


def test_nothing_usable_and_no_such_file(file, tmp_path):
    with pytest.raises(DataError, match="has no usable completion"):
        scored(file(["\n"]))
    with pytest.raises(DataError, match="cannot be read"):
        scored(tmp_path / "absent.jsonl")


def test_an_evaluations_own_responses_can_be_scored_again(file, tmp_path):
    first, _ = scored(file(GOOD), tmp_path / "first")
    responses = tmp_path / "first/rollouts.jsonl.zst"
    again = score(responses, [str(tmp_path / "two.jsonl")], tmp_path / "again")
    assert again.counts["two"].correct.tolist() == first.counts["two"].correct.tolist()
    assert again.counts["two"].tokens.tolist() == [30, 70]


def test_what_is_written_is_read_back(file, tmp_path):
    found, _ = scored(file(GOOD), tmp_path / "out", name="mine")
    back = load(tmp_path / "out")
    assert back.name == "mine"
    assert [record.text for record in back.rollouts()] == [row["response"] for row in GOOD]
    assert back.counts["two"].correct.tolist() == found.counts["two"].correct.tolist() == [1, 1]
    assert back.manifest["sampling"]["rollouts"] == 2
    assert back.manifest["sampling"]["temperature"] is None  # unknown
    assert [row["id"] for row in back.problems()] == ["p", "q"]


def test_an_evaluation_is_shown_in_one_line(file, tmp_path):
    found, _ = scored(file(GOOD), tmp_path / "out", name="mine")
    out = str(tmp_path / "out")
    assert repr(found) == f"Evaluation('mine', problems of two (2), folder={out!r})"


def test_a_problem_that_is_in_two_sets_needs_its_set(file, tmp_path):
    path = file([{"question": "What is 1 + 1?", "response": "\\boxed{2}"}])
    (tmp_path / "other.jsonl").write_text(json.dumps({**PROBLEMS[0], "id": "o"}) + "\n")
    both = [str(tmp_path / "two.jsonl"), str(tmp_path / "other.jsonl")]
    with pytest.raises(DataError, match="in several sets: say which with `data`"):
        score(path, both)
    path = file([{"question": "What is 1 + 1?", "response": "\\boxed{2}", "data": "other"}])
    assert list(score(path, both).counts) == ["other"]


# ---- Verdicts made elsewhere, and other verifiers


def test_verdicts_of_the_file_are_taken(file, tmp_path):
    # by our own grading p is right, q wrong; the file says otherwise
    rows = [
        {"problem_id": "p", "response": "\\boxed{2}", "correct": False},
        {"problem_id": "q", "response": "\\boxed{5}", "verdict": "correct"},
    ]
    found, notes = scored(file(rows), tmp_path / "out")
    verdicts = [rollout.verdict for rollout in found.rollouts()]
    assert verdicts == ["wrong", "correct"]
    assert any("2 of 2 verdicts are those of the file" in note for note in notes)
    assert found.manifest["grader"] == "verdicts of the file"
    again, notes = scored(file(rows), tmp_path / "again", regrade=True)
    assert [rollout.verdict for rollout in again.rollouts()] == ["correct", "wrong"]
    assert not any("verdicts" in note for note in notes)


def test_lines_without_a_verdict_are_graded(file, tmp_path):
    rows = [
        {"problem_id": "p", "response": ["\\boxed{2}", "\\boxed{2}"], "correct": [False, None]},
        {"problem_id": "q", "response": "\\boxed{4}"},
    ]
    found, notes = scored(file(rows), tmp_path / "out")
    assert [rollout.verdict for rollout in found.rollouts()] == ["wrong", "correct", "correct"]
    assert any("1 of 3 verdicts" in note for note in notes)


@pytest.mark.parametrize("field", [{"verdict": "good"}, {"correct": "yes"}, {"correct": 0.5}])
def test_a_verdict_that_is_none_is_refused(file, field):
    with pytest.raises(DataError, match="--regrade"):
        scored(file([{"problem_id": "p", "response": "2", **field}]))


def test_another_verifier_is_in_the_manifest(file, tmp_path):
    rows = [{"problem_id": "p", "response": "so 2"}, {"problem_id": "q", "response": "so 5"}]
    found, _ = scored(file(rows), tmp_path / "out", grading=GradingConfig(verifier="number"))
    assert [rollout.verdict for rollout in found.rollouts()] == ["correct", "wrong"]
    assert "verifier=number" in found.manifest["grader"]


def thinking(file, response, **row):
    found, _ = scored(file([{"problem_id": "p", "response": response, "tokens": 9, **row}]))
    return found.counts["two"].thinking.tolist()


def test_thinking_is_counted_as_far_as_it_can_be(file):
    assert thinking(file, "\\boxed{2}") == [0.0]  # nothing is marked
    assert thinking(file, "<think>so \\boxed{2}") == [9.0]  # it never ends
    assert thinking(file, "so", opens_thinking=True) == [9.0]
    assert thinking(file, "<think>so</think>\\boxed{2}", thinking_tokens=6) == [6.0]
    # marked, but where is not known in tokens; or more than there are
    for more in ({}, {"thinking_tokens": 10}, {"thinking_tokens": "6"}):
        assert str(thinking(file, "<think>so</think>\\boxed{2}", **more)) == "[nan]"
