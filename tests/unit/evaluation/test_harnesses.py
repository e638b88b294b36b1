"""Completions of lm-eval, lighteval and inspect_ai, in the form in which these write them."""

import json
import zipfile

import pytest
import zstandard

from crt.errors import DataError
from crt.evaluation import score

QUESTION = "What is 1 + 1?"
TEMPLATE = "Solve this.\n\nQuestion: {}\n\nAnswer in a box."


@pytest.fixture
def graded(tmp_path):
    """The responses of a file after it was scored."""
    rows = [
        {"id": "p", "question": QUESTION, "answer": "2"},
        {"id": "q", "question": "What is 2 + 2?", "answer": "4"},
    ]
    (tmp_path / "two.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def of(path, **settings):
        found = score(
            path, [str(tmp_path / "two.jsonl")], tmp_path / f"out-{path.stem}", **settings
        )
        return [
            (each.problem_id, each.text, each.length, each.stop, str(each.verdict))
            for each in found.rollouts()
        ]

    return of


# ---- lm-eval: samples_TASK_TIME.jsonl


def sample(filter_name="strict-match", **fields):
    return {
        "doc_id": 0,
        "doc": {"question": QUESTION, "answer": "1 + 1 = 2 #### 2"},
        "target": "2",
        "arguments": {"gen_args_0": {"arg_0": TEMPLATE.format(QUESTION), "arg_1": {"until": []}}},
        "resps": [["\\boxed{2}", "\\boxed{3}"]],
        "filtered_resps": ["[invalid]"],
        "filter": filter_name,
        "metrics": ["exact_match"],
        "exact_match": 0.0,
        **fields,
    }


def write(path, records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def test_lm_eval_has_a_line_per_filter_and_all_responses_in_each(graded, tmp_path):
    path = write(tmp_path / "samples.jsonl", [sample(), sample("flexible-extract")])
    assert graded(path) == [
        ("p", "\\boxed{2}", None, None, "correct"),
        ("p", "\\boxed{3}", None, None, "wrong"),
    ]


def test_lm_eval_s_question_is_found_in_the_prompt_after_the_examples(graded, tmp_path):
    prompt = f"What is 2 + 2?\n\\boxed{{4}}\n\n{QUESTION}"
    record = sample(doc={"text": "?"}, arguments=[[prompt, {}]], resps=["\\boxed{2}"])
    assert graded(write(tmp_path / "samples.jsonl", [record]))[0][0] == "p"


# ---- inspect_ai: logs as JSON and as .eval


def inspected(epoch=1, content="\\boxed{2}", stop="stop", **fields):
    choice = {"message": {"role": "assistant", "content": content}, "stop_reason": stop}
    usage = {"input_tokens": 66, "output_tokens": 7, "total_tokens": 73}
    output = {"model": "m", "choices": [choice], "usage": usage}
    scores = {"match": {"value": "I", "answer": "No"}}
    return {
        **{"id": 1, "epoch": epoch, "input": QUESTION, "target": "2"},
        **{"output": output, "scores": scores},
        **fields,
    }


def packed(path, samples, compression=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(path, "w", compression) as log:
        log.writestr("header.json", "{}")
        for number, value in enumerate(samples):
            log.writestr(f"samples/{number}_epoch_1.json", json.dumps(value))
    return path


SAMPLES = [
    inspected(stop="max_tokens"),
    inspected(2, [{"type": "reasoning", "reasoning": "Hm."}, {"type": "text", "text": "3"}]),
    inspected(3, stop="content_filter", input=[
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": TEMPLATE.format(QUESTION)}]},
    ]),
]  # fmt: skip
READ = [
    ("p", "\\boxed{2}", 7, "length", "correct"),
    ("p", "<think>\nHm.\n</think>\n3", 7, "eos", "no_answer"),
    ("p", "\\boxed{2}", 7, None, "correct"),
]


def test_inspect_s_json(graded, tmp_path):
    path = tmp_path / "log.json"
    path.write_text(json.dumps({"version": 2, "eval": {}, "samples": SAMPLES}))
    assert graded(path) == READ


def test_inspect_s_eval(graded, tmp_path):
    assert graded(packed(tmp_path / "log.eval", SAMPLES)) == READ


def test_inspect_s_eval_packed_with_zstd(graded, tmp_path):
    """As newer versions write it: the same file, with method 93 and its content packed anew."""
    content = zstandard.ZstdCompressor().compress(json.dumps(SAMPLES[0]).encode())
    path = tmp_path / "log.eval"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as log:
        log.writestr("samples/1_epoch_1.json", content)
    with_93 = path.read_bytes().replace(
        b"PK\x03\x04\x14\x00\x00\x00\x00\x00", b"PK\x03\x04\x3f\x00\x00\x00\x5d\x00"
    )
    central = with_93.index(b"PK\x01\x02")
    size = len(json.dumps(SAMPLES[0]).encode()).to_bytes(4, "little")
    changed = bytearray(with_93)
    changed[central + 10 : central + 12] = b"\x5d\x00"  # the method
    changed[central + 24 : central + 28] = size  # unpacked
    path.write_bytes(bytes(changed))
    assert graded(path) == READ[:1]


# ---- lighteval: details_TASK_TIME.parquet


@pytest.mark.parametrize("names", [("doc", "model_response"), ("__doc__", "__model_response__")])
def test_lighteval_s_details(graded, tmp_path, names):
    parquet = pytest.importorskip("pyarrow.parquet")
    import pyarrow

    doc = {"query": TEMPLATE.format(QUESTION), "choices": ["2"], "id": "0"}
    answer = {
        "text": ["\\boxed{2}", "\\boxed{3}"],
        "output_tokens": [[5, 6, 7], [5, 6]],
        "reasonings": [None, "Three?"],
    }
    row = {names[0]: doc, names[1]: answer, "metric": {"em": 0.0}}
    path = tmp_path / "details_gsm8k.parquet"
    parquet.write_table(pyarrow.Table.from_pylist([row]), path)
    assert graded(path) == [
        ("p", "\\boxed{2}", 3, None, "correct"),
        ("p", "<think>\nThree?\n</think>\n\\boxed{3}", 2, None, "wrong"),
    ]


def test_lighteval_s_details_of_older_versions(graded, tmp_path):
    row = {"example": QUESTION, "full_prompt": "…", "predictions": ["\\boxed{2}"]}
    for texts in (["\\boxed{2}"], "\\boxed{2}"):
        rows = [row | {"cont_tokens": [[1, 2]], "predictions": texts}]
        path = write(tmp_path / f"{type(texts).__name__}.jsonl", rows)
        assert graded(path) == [("p", "\\boxed{2}", 2, None, "correct")]


# ---- What cannot be read


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("log.eval", b"PK no zip", "is no log of inspect_ai, or damaged"),
        ("log.json", b"{", "is damaged, it is not JSON"),
        ("log.json", b'{"samples": 3}', "has no list of samples"),
        ("log.json", b'{"samples": [3]}', "sample 1: neither a problem id nor a question"),
        ("a.jsonl", b'{"resps": []}', "line 1: a record of another tool that cannot be read"),
        ("a.jsonl", b'{"resps": [[1]], "doc": {"question": "What is 1 + 1?"}}', "no response"),
        ("a.jsonl", b'{"epoch": 1, "output": {"choices": []}, "input": "x"}', "cannot be read"),
        ("a.jsonl", b'{"epoch": 1, "output": {"choices": [{}]}, "input": []}', "cannot be read"),
        ("a.jsonl", b'{"predictions": 3, "example": 3}', "cannot be read"),
    ],
)
def test_what_cannot_be_read_is_named(graded, tmp_path, name, content, told):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=told):
        graded(tmp_path / name)


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_damaged_member_is_named(graded, tmp_path, method):
    path = packed(tmp_path / "log.eval", SAMPLES, method)
    content = bytearray(path.read_bytes())
    place = content.index(b"samples/0") + 40
    content[place : place + 20] = b"\xff" * 20
    path.write_bytes(bytes(content))
    with pytest.raises(DataError, match=r"or damaged|Invalid data stream"):
        graded(path)


def test_a_bad_sample_may_be_left_out(graded, tmp_path):
    path = tmp_path / "log.json"
    path.write_text(json.dumps({"samples": [{"epoch": 1, "output": {}}, SAMPLES[0]]}))
    assert graded(path, skip_bad=True) == READ[:1]
