"""The page: whole in one file, inert, and honest about what it leaves out."""

import base64
import json
import re
import zlib
from datetime import UTC, datetime

import pytest

from crt.reporting import summary
from crt.reporting.load import load_report_data, table_rows
from crt.reporting.report import Column, data_json, figures_of, page, reproduction

NOW = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)
HOSTILE = (
    "</script><script>window.hacked=1</script><img src=x onerror=window.hacked=1>"
    "{{payload}}{{script}} <!-- \u202e \\boxed{1}"
)


def made(*places, **options) -> str:
    data = load_report_data(places)
    return page(data, figures_of(data), NOW, **options)


def payload(text: str) -> dict:
    found = re.search(r'<script type="application/json" id="payload">(.*?)</script>', text, re.S)
    return json.loads(found[1])


def chunk(text: str, number: int) -> dict:
    found = re.search(rf'id="chunk-{number}">(.*?)</script>', text)
    return json.loads(zlib.decompress(base64.b64decode(found[1]), -15))


def test_nothing_is_loaded_from_anywhere(run_with_series):
    text = made(run_with_series)
    assert not re.search(r'(?:src|href)="(?!#|data:)', text)
    assert "default-src 'none'" in text


def test_only_our_two_scripts_may_run(run_with_series):
    text = made(run_with_series)
    policy = re.search(r'content="(default-src[^"]*)"', text)[1]
    assert policy.count("sha256-") == 2
    assert "script-src 'sha256-" in policy and "unsafe-eval" not in policy
    assert re.findall(r"<script>", text) == ["<script>"]


def test_hostile_text_stays_text(evaluated, tmp_path):
    said = [[(HOSTILE, 9, True), (HOSTILE, 8, False)]]
    evaluated(tmp_path / "a<b>", said, questions=[HOSTILE])
    evaluated(tmp_path / "b", said, questions=[HOSTILE])
    text = made(tmp_path / "a<b>", tmp_path / "b")
    assert "window.hacked" not in re.sub(r'<script type="application/json".*?</script>', "", text)
    assert text.count("</script>") == 4  # the payload, one packed question, the library, ours
    assert "a&lt;b&gt;" in text and "<b>a<b>" not in text
    (first,) = payload(text)["explorer"]["groups"][0]["questions"]
    assert first["text"].startswith("</script><script>") and "⟨U+202E⟩" in first["text"]
    answer = chunk(text, 0)["columns"][0][0]
    assert "".join(piece for _, piece in answer["pieces"]) == HOSTILE.replace("\u202e", "⟨U+202E⟩")


def test_one_question_with_the_answer_of_each(evaluated, tmp_path):
    """Of two questions that both answer right the one nearest to the means, the longest first."""
    evaluated(tmp_path / "base", [[("far", 30, True)], [(f"near {HOSTILE}", 90, True)]])
    evaluated(tmp_path / "crt", [[("x", 20, True)], [("y", 40, True)]])
    # means 60 and 30: 90 / 60 and 40 / 30 are nearer than 60 / 30 and 30 / 20
    text = made(tmp_path / "base", tmp_path / "crt")
    shown = text[text.index('id="example"') :].partition("</section>")[0]
    assert re.findall(r"<h3>(\w+) <small>(\d+) tokens", shown) == [("base", "90"), ("crt", "40")]
    assert "near &lt;/script&gt;" in shown and "<img" not in shown
    evaluated(tmp_path / "wrong", [[("x", 20, False)], [("y", 31, False)]])
    assert 'id="example"' not in made(tmp_path / "base", tmp_path / "wrong")


def test_the_first_the_shortest_right_and_a_wrong_answer_are_there(evaluated, answers, tmp_path):
    mine = [[("first", 50, True), ("short", 20, True), ("bad", 10, False), ("long", 90, True)]]
    evaluated(tmp_path / "a", mine)
    evaluated(tmp_path / "b", [[("sole", 5, True)] * 4])
    text = made(tmp_path / "a", tmp_path / "b")
    ours, theirs = chunk(text, 0)["columns"]
    said = {kind: a["pieces"][0][1] for a in ours for kind in a["kinds"]}
    assert said == {"sample": "first", "shortest": "short", "wrong": "bad"}
    assert [a["kinds"] for a in theirs] == [["sample", "shortest"]]  # once, in two roles


def test_what_does_not_fit_is_left_out_and_said(evaluated, answers, tmp_path):
    right = [2] * 40
    for name, tokens in (("a", 300), ("b", 100)):
        evaluated(tmp_path / name, answers(tokens, right))
    full = payload(made(tmp_path / "a", tmp_path / "b"))["explorer"]["groups"][0]
    small = payload(made(tmp_path / "a", tmp_path / "b", budget=3000))["explorer"]["groups"][0]
    assert all(q["chunk"] is not None for q in full["questions"])
    kept = [q for q in small["questions"] if q["chunk"] is not None]
    assert 0 < len(kept) < 40 and len(small["questions"]) == 40


def test_three_sentences_with_the_figures(run_with_series):
    first, second, third = summary.sentences(load_report_data([run_with_series]))
    assert first == (
        "small trains pocket on pocket:40 with CRT in two stages, seed 3: 6 steps, Stage I for 4 "
        "of them; the recommended checkpoint is that of step 6 (the shortest that kept the "
        "reference's accuracy on the validation problems)."
    )
    # 9 of 12 problems always right, 3 in one of two: 87.5 %
    assert second == (
        "On 12 problems (24 responses) step-0006 takes 40 tokens where base takes 100, 60 % fewer, "
        "and is right in 87.5 % instead of 87.5 % (+0.0 points, 95 % interval +0.0 to +0.0)."
    )
    assert third.startswith(
        "The certificate did not pass: with 95 % confidence accuracy fell by at most"
    )
    assert "needs about 299 problems" in third and "has 12" in third


def test_of_several_runs_the_best_is_spoken_of(make_run, evaluated, answers, tmp_path):
    for name, tokens in (("slow", 90), ("quick", 40)):
        run = make_run(tmp_path / name, name=name)
        evaluated(run.path / "evaluations" / "base", answers(100, [2] * 12))
        evaluated(run.path / "evaluations" / "end", answers(tokens, [2] * 12))
    found = summary.sentences(load_report_data([tmp_path / "slow", tmp_path / "quick"]))
    assert found[0] == "2 runs: quick, slow; 2 of them are not finished."
    # 60 of 100 tokens saved, nothing lost
    start = "quick has the highest AES2, +0.60: on 12 problems (24 responses) end takes 40 tokens"
    assert found[1].startswith(start)


def test_a_certificate_that_did_not_pass(evaluated, answers, tmp_path):
    evaluated(tmp_path / "base", answers(100, [2] * 12))
    evaluated(tmp_path / "worse", answers(50, [2] * 6 + [1] * 6))
    found = summary.certificate(load_report_data([tmp_path / "base", tmp_path / "worse"]))
    assert found.state == "open" and "did not pass" in found.sentence


def test_nothing_is_claimed_before_anything_is_measured(make_run, tmp_path):
    data = load_report_data([make_run(tmp_path / "run", steps=1).path])
    found = summary.sentences(data)
    assert "1 of at most 40 steps so far" in found[0]
    assert found[1] == "No checkpoint has been measured yet."
    assert "Nothing was evaluated on held-out problems yet" in found[2]
    assert summary.certificate(data).state == "none"
    assert "no certificate yet" in page(data, figures_of(data), NOW)


def test_rollouts_of_training_can_be_read_before_an_evaluation(make_run, tmp_path):
    text = made(make_run(tmp_path / "run").path)
    (group,) = payload(text)["explorer"]["groups"]
    assert [column["name"] for column in group["columns"]] == [f"step {s}" for s in range(1, 7)]
    first = group["questions"][0]
    # t0 is answered twice a step, one of them right
    assert first["text"] == "t0" and first["acc"] == [50] * 6 and first["len"] == [21] * 6
    assert chunk(text, first["chunk"])["columns"][5][0]["pieces"][0][1].startswith("Step 6 says")


@pytest.mark.parametrize("refresh", [0, 7])
def test_a_page_says_whether_it_refreshes_itself(run_with_series, refresh):
    text = made(run_with_series, refresh=refresh)
    assert payload(text)["refresh"] == refresh
    assert f'data-state="{"live" if refresh else "still"}"' in text


def test_the_base_has_one_accuracy_per_measurement(run_with_series, evaluated, answers):
    folder = run_with_series / "evaluations"
    evaluated(folder / "base", answers(100, [2] * 19 + [0]), data="held-out")
    evaluated(folder / "crt", answers(40, [2] * 20), data="held-out", model="x/step-0006")
    data = load_report_data([run_with_series])
    # 19 of 20; 9 of 12 and half of 3; the record beside the last checkpoint
    assert summary.base_accuracies(data) == (
        "The base was measured 3 times: 95.0 % on 20 problems of held-out; 87.5 % on 12 problems "
        "of own; 92.0 % on 8 validation problems. The problems and the sampled responses differ, "
        "and so do the accuracies: compare within one measurement only."
    )


def test_one_measurement_needs_no_note(evaluated, answers, tmp_path):
    evaluated(tmp_path / "base", answers(100, [2] * 12))
    assert summary.base_accuracies(load_report_data([tmp_path / "base"])) == ""


def test_the_table_rests_on_most_problems(run_with_series, evaluated, answers):
    folder = run_with_series / "evaluations"
    evaluated(folder / "base", answers(100, [2] * 20), data="held-out")
    evaluated(folder / "crt", answers(40, [2] * 20), data="held-out", model="x/step-0006")
    rows = table_rows(load_report_data([run_with_series]))
    assert [(row["name"], row["problems"]) for row in rows] == [("base", 20), ("crt", 20)]
    assert [row["recommended"] for row in rows] == [False, True]


def test_the_commands_end_with_the_repeated_run(run_with_series):
    lines = reproduction(load_report_data([run_with_series])).splitlines()
    assert lines[-1] == f"crt report {run_with_series}-again"


def test_a_column_writes_numbers():
    column = Column("AES₂", "aes2", 2, "", signed=True)
    assert [column.number(value) for value in (0.5, -0.25, -0.001)] == ["+0.50", "−0.25", "0.00"]


def test_data_cannot_leave_its_element():
    hostile = ["</script><script>alert(1)</script>", "<!--", "\u2028\u2029"]
    text = data_json(hostile)
    assert "<" not in text and "\u2028" not in text
    assert json.loads(text) == hostile
