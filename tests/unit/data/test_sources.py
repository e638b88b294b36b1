import json
import re
import sys
import tracemalloc

import pytest

from crt.data import sources
from crt.data.sources import read_file, read_hub
from crt.errors import DataError, install_command


def written(folder, name, content):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_jsonl_rows_carry_their_line_number(tmp_path):
    path = written(tmp_path, "a.jsonl", '{"x": 1}\n\n{"x": 2}\n')
    assert [(row.place, row.value) for row in read_file(path)] == [
        (f"{path}, line 1", {"x": 1}),
        (f"{path}, line 3", {"x": 2}),
    ]


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        (b'{"x":', "not JSON: Expecting value at column 6"),
        (b'{"x": "\xff"}', "not UTF-8 at byte 7"),
        (b'{"x": "a\0"}', "contains a NUL byte"),
        (b"[1, 2]", "a JSON list, not an object"),
        (b"null", "a JSON NoneType, not an object"),
        (b"[" * 200_000, "not usable JSON: "),
        (b'{"x": ' + b"9" * 5000 + b"}", "not usable JSON: Exceeds the limit"),
    ],
)
def test_a_bad_line_has_a_reason_and_the_next_is_still_read(tmp_path, line, fault):
    path = written(tmp_path, "a.jsonl", line + b'\n{"x": 2}\n')
    bad, good = read_file(path)
    assert bad.fault.startswith(fault)
    assert bad.place == f"{path}, line 1"
    assert good.value == {"x": 2}


def test_a_byte_order_mark_is_no_fault(tmp_path):
    path = written(tmp_path, "a.jsonl", b'\xef\xbb\xbf{"x": 1}\n')
    assert [row.value for row in read_file(path)] == [{"x": 1}]


def test_an_overlong_line_is_refused_and_never_held_whole(tmp_path):
    path = tmp_path / "a.jsonl"
    with path.open("wb") as file:
        for _ in range(100):
            file.write(b"a" * 2**20)  # 100 MB without an end
        file.write(b'\n{"x": 2}\n')
    tracemalloc.start()
    bad, good = read_file(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert bad.fault == "longer than 16 MB"
    assert (good.place, good.value) == (f"{path}, line 2", {"x": 2})
    assert peak < 4 * sources.LONGEST_LINE


def test_utf16_is_named(tmp_path):
    for name in ("a.jsonl", "a.json", "a.csv"):
        path = written(tmp_path, name, '{"x": 1}\n'.encode("utf-16"))
        with pytest.raises(DataError, match="is UTF-16, not UTF-8"):
            list(read_file(path))


def test_json_is_an_array_of_objects(tmp_path):
    path = written(tmp_path, "a.json", '[{"x": 1}, 2]')
    good, bad = read_file(path)
    assert good.value == {"x": 1}
    assert (bad.place, bad.fault) == (f"{path}, item 2", "a JSON int, not an object")
    with pytest.raises(DataError, match="must be a JSON array of objects, not a dict"):
        list(read_file(written(tmp_path, "b.json", '{"x": 1}')))
    with pytest.raises(DataError, match=r"not JSON: .* at line 2, column 1"):
        list(read_file(written(tmp_path, "c.json", "[1,\n")))
    with pytest.raises(DataError, match="not UTF-8 at byte 2"):
        list(read_file(written(tmp_path, "d.json", b'["\xff"]')))
    with pytest.raises(DataError, match="not usable JSON"):
        list(read_file(written(tmp_path, "e.json", "[" * 200_000)))


def test_a_json_array_is_read_whole_and_so_has_a_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "LARGEST_JSON", 2**20)
    with pytest.raises(DataError, match="over 1 MB: write it as JSONL, one row per line"):
        list(read_file(written(tmp_path, "a.json", b" " * (2**20 + 1))))


def test_csv_rows_carry_the_line_they_start_on(tmp_path):
    path = written(tmp_path, "a.csv", 'question,answer\n"two\nlines",1\nthree,\n')
    assert [(row.place, row.value) for row in read_file(path)] == [
        (f"{path}, line 2", {"question": "two\nlines", "answer": "1"}),
        (f"{path}, line 4", {"question": "three", "answer": None}),
    ]


def test_csv_rows_of_another_width_are_bad(tmp_path):
    path = written(tmp_path, "a.csv", "question,answer\na\nb,1,2\n")
    assert [row.fault for row in read_file(path)] == [
        "fewer fields than the header has",
        "1 more fields than the header has",
    ]


def test_broken_quoting_stops_a_csv(tmp_path):
    with pytest.raises(DataError, match="line 2: not CSV"):
        list(read_file(written(tmp_path, "a.csv", 'question,answer\n"a"b,1\n')))


def test_parquet_rows(tmp_path):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"question": ["a", "b"], "gold": [[0], [1]]}), path)
    assert [(row.place, row.value) for row in read_file(path)] == [
        (f"{path}, row 1", {"question": "a", "gold": [0]}),
        (f"{path}, row 2", {"question": "b", "gold": [1]}),
    ]
    with pytest.raises(DataError, match="not a readable Parquet file"):
        list(read_file(written(tmp_path, "b.parquet", "nothing of the kind")))


def test_files_that_are_not_there_or_not_data(tmp_path):
    with pytest.raises(DataError, match="does not exist"):
        list(read_file(tmp_path / "none.jsonl"))
    (tmp_path / "folder.jsonl").mkdir()
    with pytest.raises(DataError, match="cannot be read: Is a directory"):
        list(read_file(tmp_path / "folder.jsonl"))
    with pytest.raises(DataError, match=r"must end in one of \.jsonl"):
        list(read_file(tmp_path / "a.pickle"))


def test_hub_rows_come_from_every_config_in_order(tmp_path):
    datasets = pytest.importorskip("datasets")
    for config in ("algebra", "geometry"):
        (tmp_path / config).mkdir()
        written(tmp_path / config, "train.jsonl", json.dumps({"problem": f"in {config}"}))
    requests = []

    def load(hub_id, config, **options):
        requests.append((hub_id, config, options))
        return datasets.load_dataset(
            str(tmp_path / config), split=options["split"], cache_dir=str(tmp_path / "cache")
        )

    rows = list(read_hub("owner/math", ("algebra", "geometry"), "train", "abc123", load))
    assert [(row.place, row.value["problem"]) for row in rows] == [
        ("owner/math (algebra, train), row 1", "in algebra"),
        ("owner/math (geometry, train), row 1", "in geometry"),
    ]
    # nothing but these reaches the hub client: in particular no trust_remote_code
    assert requests[0] == ("owner/math", "algebra", {"split": "train", "revision": "abc123"})


def test_a_hub_that_does_not_answer_is_one_sentence():
    def load(*_, **__):
        raise ConnectionError("no route to host\nand a long trace")

    with pytest.raises(DataError, match=r"owner/a \(test\) cannot be loaded .* no route to host; "):
        list(read_hub("owner/a", (None,), "test", None, load))


def test_data_that_needs_a_package_says_which(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)  # as if not installed
    with pytest.raises(DataError, match=re.escape(f"needs pyarrow: {install_command('data')}")):
        list(read_file(written(tmp_path, "a.parquet", "")))
