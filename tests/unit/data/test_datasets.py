import random
import subprocess
import sys

import pytest

from crt.data.datasets import DATASETS, content_hash, load, load_mixture
from crt.errors import DataError
from crt.types import Problem
from tests.support.files import write_jsonl


@pytest.fixture(autouse=True)
def no_folder_of_the_user(monkeypatch):
    monkeypatch.delenv("CRT_DATA", raising=False)


def counted(count):
    return [
        {"id": f"q{i}", "question": f"What is {i}+1?", "answer": str(i + 1)} for i in range(count)
    ]


FORMS = {  # a row of each set as the hub has it, and what becomes of it
    "gsm8k/train": (
        {"question": "Half of 4?", "answer": "<<4/2=2>>\n#### 2"},
        ("Half of 4?", "2"),
    ),
    "math/train": (
        {"problem": "Half?", "level": "Level 1", "type": "A", "solution": r"$\boxed{\frac{1}{2}}$"},
        ("Half?", r"\frac{1}{2}"),
    ),
    "math500": (
        {"problem": "Half?", "solution": "", "answer": "0.5", "unique_id": "test/a/1.json"},
        ("Half?", "0.5"),
    ),
    "sat_math": (
        {
            "query": "Q: 1+1? Answer Choices: (A)1 (B)2\nA: Among A through B, the answer is",
            "choices": ["(A)1", "(B)2"],
            "gold": [1],
        },
        ("1+1?\n(A) 1\n(B) 2", "B"),
    ),
    "sat_math32": (
        {"Question": "1+1?", "Possible Answers": "A) 1 B) 2", "Answer": "B"},
        ("1+1?\n(A) 1\n(B) 2", "B"),
    ),
    "amc23": ({"id": 0, "question": "1+1?", "answer": "2"}, ("1+1?", "2")),
    "aime24": ({"id": 60, "problem": "1+1?", "answer": "002", "solution": ""}, ("1+1?", "002")),
    "olympiadbench": (
        {
            "id": 1606,
            "question": "Roots?",
            "final_answer": ["$1$,$2$"],
            "is_multiple_answer": True,
            "unit": None,
            "error": None,
        },
        ("Roots?", "1, 2"),
    ),
}


@pytest.mark.parametrize("name", FORMS)
def test_each_set_is_read_in_the_hubs_form(name):
    row, (question, answer) = FORMS[name]
    loaded = load(name, load_dataset=lambda hub_id, config, **_: [row] if config in FIRST else [])
    assert [(p.question, p.answer) for p in loaded] == [(question, answer)]
    assert loaded.problems[0].source == name.partition("/")[0]


FIRST = (None, "main", "algebra", "OE_TO_maths_en_COMP")


@pytest.mark.parametrize("name", FORMS)
def test_a_local_file_with_the_sets_name_wins_over_the_hub(tmp_path, name):
    row, (question, answer) = FORMS[name]
    write_jsonl(tmp_path / f"{name.replace('/', '_')}.jsonl", [row])
    loaded = load(name, folder=tmp_path, load_dataset=lambda *_, **__: pytest.fail("asked the hub"))
    assert [(p.question, p.answer) for p in loaded] == [(question, answer)]


def test_the_folder_may_come_from_the_environment(tmp_path, monkeypatch):
    write_jsonl(tmp_path / "amc23.jsonl", counted(3))
    monkeypatch.setenv("CRT_DATA", str(tmp_path))
    assert len(load("amc23")) == 3
    monkeypatch.setenv("CRT_DATA", str(tmp_path / "none"))
    with pytest.raises(DataError, match=r"CRT_DATA=.*none is not a folder"):
        load("amc23")


def test_math_on_the_hub_is_seven_configs():
    requests = []

    def hub(hub_id, config, **options):
        requests.append((hub_id, config, options["split"], options["revision"]))
        return [{"problem": f"{config}?", "solution": r"\boxed{1}"}]

    assert len(load("math/train", revision="abc", load_dataset=hub)) == 7
    assert requests[0] == ("EleutherAI/hendrycks_math", "algebra", "train", "abc")


def test_known_empty_golds_of_math_are_mended():
    start = "You are given a sequence of $58$ terms; each term has the form $P+n$"
    row = {"problem": f"{start} where …", "solution": r"so the answer is $\boxed{}$."}
    loaded = load("math/train", load_dataset=lambda _, c, **__: [row] if c == "algebra" else [])
    assert loaded.problems[0].answer == "0"


@pytest.mark.parametrize(
    ("row", "problem_id"),
    [
        ({"id": "test/a/1.json"}, "test/a/1.json"),  # the source's own
        ({"id": 60}, "amc23-60"),  # a bare number is unique only inside its set
        ({"id": "60"}, "amc23-60"),
    ],
)
def test_own_ids_are_kept(tmp_path, row, problem_id):
    write_jsonl(tmp_path / "amc23.jsonl", [{"question": "Q?", "answer": "1", **row}])
    assert load("amc23", folder=tmp_path).problems[0].id == problem_id


def test_ids_without_own_ones_do_not_depend_on_the_order(tmp_path):
    rows = [{"question": f"Q{i}?", "answer": "1"} for i in range(20)]
    before = {p.question: p.id for p in load(str(write_jsonl(tmp_path / "a.jsonl", rows)))}
    random.Random(1).shuffle(rows)
    after = {p.question: p.id for p in load(str(write_jsonl(tmp_path / "a.jsonl", rows)))}
    assert before == after
    assert len(set(after.values())) == 20


def test_the_same_row_twice_without_ids_is_two_problems(tmp_path):
    path = write_jsonl(tmp_path / "a.jsonl", [{"question": "Q?", "answer": "1"}] * 2)
    first, second = load(str(path))
    assert second.id == f"{first.id}-2"


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ('{"answer": "1"}', "no question"),
        ('{"question": "Q?"}', "no answer"),
        ('{"question": "Q?", "answer": ""}', "empty answer"),
        ('{"question": "Q?", "answer": [[1]]}', "list, not text"),
        ('{"question": "Q?", "answer": "1", "id": "q0"}', "the id 'q0' was used before"),
        ('{"question": "Q?", "answer": "1", "id": [0]}', "neither text nor a whole number"),
        ('{"question": "Q?"', "not JSON"),
    ],
)
def test_a_bad_line_is_refused_by_file_line_and_reason(tmp_path, bad, reason):
    path = write_jsonl(
        tmp_path / "a.jsonl", [*counted(1), bad, {"question": "Last?", "answer": "9"}]
    )
    with pytest.raises(DataError, match=rf"a\.jsonl, line 2: .*{reason}.*--skip-bad"):
        load(str(path))
    loaded = load(str(path), skip_bad=True)
    assert [p.answer for p in loaded] == ["1", "9"]
    assert loaded.skipped == 1
    assert reason in loaded.faults[0]


def test_a_file_with_nothing_usable_is_refused_even_so(tmp_path):
    empty = tmp_path / "a.jsonl"
    empty.write_text("")
    with pytest.raises(DataError, match="no usable problem: it is empty"):
        load(str(empty), skip_bad=True)
    empty.write_text("nothing\n")
    with pytest.raises(DataError, match=r"no usable problem: .*line 1: not JSON"):
        load(str(empty), skip_bad=True)


def test_columns_can_be_named(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text("prompt,gold\n1+1?,2\n")
    (problem,) = load(str(path), columns={"question": "prompt", "answer": "gold"})
    assert (problem.question, problem.answer, problem.source) == ("1+1?", "2", str(path))
    with pytest.raises(DataError, match=r"no column 'Gold' \(columns: prompt, gold\)"):
        load(str(path), columns={"answer": "Gold"})
    with pytest.raises(DataError, match="no field 'reply'"):
        load(str(path), columns={"reply": "gold"})


def test_any_hub_id_with_columns():
    def hub(hub_id, config, split, revision):
        assert (hub_id, config, split, revision) == ("owner/sums", "easy", "train", None)
        return [{"prompt": "1+1?", "gold": 2}]

    columns = {"question": "prompt", "answer": "gold"}
    loaded = load("owner/sums", "train", columns=columns, config="easy", load_dataset=hub)
    assert (loaded.problems[0].answer, loaded.origin) == ("2", "owner/sums@main")


def test_subsets_go_by_seed_not_by_order(tmp_path):
    rows = counted(50)
    write_jsonl(tmp_path / "math500.jsonl", rows)
    twenty = load("math500:20", folder=tmp_path, seed=1).problems
    assert load("math500:8", folder=tmp_path, seed=1).problems == twenty[:8]
    assert load("math500:20", folder=tmp_path, seed=2).problems != twenty
    write_jsonl(tmp_path / "math500.jsonl", rows[::-1])
    assert load("math500:20", folder=tmp_path, seed=1).problems == twenty


def test_a_subset_is_the_same_on_every_machine(tmp_path):
    # ranked by sha256(b"0\0q8") and so on, not by Python's hash
    write_jsonl(tmp_path / "math500.jsonl", counted(10))
    assert [p.id for p in load("math500:3", folder=tmp_path)] == ["q8", "q7", "q5"]


@pytest.mark.parametrize(
    ("name", "split", "reason"),
    [
        ("amc23:99", None, "asks for 99 problems, but there are 3"),
        ("amc23:0", None, "at least 1"),
        ("pocket:999999999999", None, "at most 10,000,000"),
        ("amc24", None, "Did you mean `amc23`"),
        ("nonsense!", None, "There are: gsm8k"),
        ("math500", "train", "has no split 'train': it has test"),
        ("gsm8k/dev", None, "has no split 'dev': it has train and test"),
        ("gsm8k/train", "test", "names the split 'train', but 'test' was asked for"),
        ("nowhere.jsonl", None, "does not exist"),
    ],
)
def test_a_wrong_name_is_one_sentence(tmp_path, name, split, reason):
    write_jsonl(tmp_path / "amc23.jsonl", counted(3))
    with pytest.raises(DataError, match=reason):
        load(name, split, tmp_path)


def test_the_papers_mixture_is_one_list(tmp_path):
    write_jsonl(tmp_path / "gsm8k_train.jsonl", [FORMS["gsm8k/train"][0]])
    write_jsonl(tmp_path / "math_train.jsonl", [FORMS["math/train"][0]])
    mixed = load_mixture(["gsm8k", "math"], folder=tmp_path)
    assert [(p.source, p.answer) for p in mixed] == [("gsm8k", "2"), ("math", r"\frac{1}{2}")]
    with pytest.raises(DataError, match="more than once"):
        load_mixture(["gsm8k", "gsm8k/train"], folder=tmp_path)


def test_the_hash_follows_the_content(tmp_path):
    one, two = Problem("1", "Q?", "1"), Problem("2", "Q?", "2")
    assert content_hash([one, two]) == content_hash([one, two])
    assert len({content_hash(c) for c in ([one, two], [two, one], [one], [])}) == 4


def test_pocket_problems_are_made_up():
    loaded = load("pocket:5", "train", seed=3)
    assert len(loaded) == 5
    assert load("pocket:5", "train", seed=3) == loaded


def test_nothing_heavy_is_imported_for_a_local_file(tmp_path):
    path = write_jsonl(tmp_path / "a.jsonl", counted(1))
    code = (
        f"import sys; from crt.data.datasets import load; load({str(path)!r}); "
        "print([m for m in ('datasets', 'pyarrow', 'torch') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_set_has_a_source_and_a_licence():
    for name, dataset in DATASETS.items():
        assert dataset.hub or dataset.generator, name
        assert dataset.licence, name
