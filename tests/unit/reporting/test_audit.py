"""The audit's page and its lines: whole, inert, and honest about what is not known."""

import json
import re
from datetime import UTC, datetime

import pytest

from crt.evaluation import score
from crt.evaluation.audit import Load, audit
from crt.reporting.audit import lines, page, write_audit

NOW = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)
RIGHT, WRONG = "3 x 4 = 12. Wait. \\boxed{12}", "It is 7. \\boxed{7}"
HOSTILE = (
    "</script><script>window.hacked=1</script><img src=x onerror=window.hacked=1> \x1b[31m "
    "{{payload}} \u202e 12. \\boxed{12}"
)


@pytest.fixture
def evaluated(tmp_path):
    def make(*groups, name="mine", question="What is 3 times 4?", **fields):
        problems = [
            {"id": f"p{i}", "question": question, "answer": "12"} for i in range(len(groups))
        ]
        (tmp_path / "some.jsonl").write_text("".join(json.dumps(p) + "\n" for p in problems))
        known = {"tokens": 40, "stop": "stop"} | fields
        rows = [
            {"id": f"p{i}", "response": text, **known}
            for i, group in enumerate(groups)
            for text in group
        ]
        (tmp_path / "mine.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        data = [str(tmp_path / "some.jsonl")]
        return score(tmp_path / "mine.jsonl", data, tmp_path / "out", name=name)

    return make


def made(evaluation, **settings) -> str:
    return page(evaluation, audit(evaluation, **settings), ["mine.jsonl"], NOW)


def payload(text: str) -> dict:
    found = re.search(r'<script type="application/json" id="payload">(.*?)</script>', text, re.S)
    return json.loads(found[1])


def test_seven_lines_of_at_most_eighty_columns(evaluated):
    evaluation = evaluated([RIGHT, WRONG], [RIGHT, RIGHT], [WRONG, RIGHT])
    told = lines(audit(evaluation, month=Load(123_456_789, 99.5)))
    assert [line[:17].strip() for line in told] == [
        *("right", "tokens", "after the answer", "cut at 25/50/75 %", "shortest right"),
        *("could save", "a month"),
    ]
    assert max(map(len, told)) <= 80
    assert told[0].split(maxsplit=1)[1].startswith("66.7 % (")
    assert told[5].endswith("by the shortest of 2: an estimate")
    assert told[6].split(maxsplit=2)[2].startswith("491,358.02, of which ")  # 40 tokens each


def test_what_is_not_known_is_left_out(evaluated):
    told = lines(audit(evaluated([RIGHT, RIGHT], tokens=None)))
    assert [line[:17].strip() for line in told] == ["right", "answer stated", "cut at 25/50/75 %"]
    assert "(" not in told[0]  # one problem has no interval


def test_the_page_has_three_figures_and_the_answers(evaluated):
    text = made(evaluated([RIGHT, WRONG], [RIGHT, RIGHT]), month=Load(1000, 2.0))
    found = payload(text)
    assert list(found["figures"]) == ["overthinking", "difficulty", "shortest"]
    (group,) = found["explorer"]["groups"]
    assert [question["acc"] for question in group["questions"]] == [[50], [100]]
    points = found["figures"]["shortest"][0]["spec"]["data"]["values"]
    assert [(row["question"], row["shortest"], row["mean"]) for row in points] == [
        (0, 40, 40),
        (1, 40, 40),
    ]
    assert "<title>mine · crt audit</title>" in text
    assert "1,000 requests a month take 40,000 generated tokens" not in text  # with its interval
    assert "1,000 requests a month take 40,000 (40,000 – 40,000) generated tokens" in text
    assert (
        "an estimate and no bound" in text
        and "rests on 2 responses" in text
        and "crt audit mine.jsonl" in text
    )


def test_nothing_is_loaded_and_nothing_of_a_stranger_runs(evaluated):
    text = made(evaluated([HOSTILE, HOSTILE], [HOSTILE], name=HOSTILE, question=HOSTILE))
    assert not re.search(r'(?:src|href)="(?!#|data:)', text)
    assert "default-src 'none'" in text and re.findall(r"<script>", text) == ["<script>"]
    inert = re.sub(r'<script type="application/json".*?</script>', "", text)
    assert "<img" not in inert and "\u202e" not in text and "\x1b" not in text


def test_a_page_without_lengths_or_verdicts_is_made_all_the_same(evaluated):
    text = made(evaluated([RIGHT, WRONG], [WRONG], tokens=None))
    assert list(payload(text)["figures"]) == ["overthinking"]
    assert "Len is unknown" in text


def test_page_and_figures_are_written_beside_each_other(evaluated, tmp_path):
    evaluation = evaluated([RIGHT, WRONG])
    found = audit(evaluation)
    path = write_audit(evaluation, found, tmp_path / "new" / "folder", ["a b.jsonl"])
    assert "crt audit &#39;a b.jsonl&#39;" in path.read_text()
    assert json.loads((path.parent / "audit.json").read_text()) == json.loads(json.dumps(found))
