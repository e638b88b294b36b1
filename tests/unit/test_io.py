import os
import subprocess
import sys

import pytest

from crt.errors import DataError
from crt.io import (
    append_row,
    checked_sum,
    read_json,
    read_rows,
    read_sealed,
    sha256,
    write_json,
    write_sealed,
    write_text,
    written_whole,
)


def test_a_file_is_there_whole_or_not_at_all(tmp_path):
    path = tmp_path / "a.txt"
    write_text(path, "old")
    with pytest.raises(RuntimeError), written_whole(path) as file:
        file.write(b"half of the ne")
        raise RuntimeError("the power goes")
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]  # nothing is left lying about


def test_a_killed_writer_leaves_the_old_file(tmp_path):
    path = tmp_path / "a.json"
    write_json(path, {"step": 1})
    code = f"""
import os, pathlib
from crt.io import written_whole
with written_whole(pathlib.Path({str(path)!r})) as file:
    file.write(b'{{"step": 2'); file.flush()
    os.kill(os.getpid(), 9)
"""
    assert subprocess.run([sys.executable, "-c", code]).returncode == -9
    assert read_json(path) == {"step": 1}


def test_a_last_line_that_was_cut_off_does_not_count(tmp_path):
    path = tmp_path / "steps.jsonl"
    append_row(path, {"step": 1})
    append_row(path, {"step": 2, "note": "a\nb"})
    with path.open("ab") as file:
        file.write(b'{"step": 3, "acc')
    assert [row["step"] for row in read_rows(path)] == [1, 2]


def test_a_row_is_not_written_behind_half_a_line(tmp_path):
    path = tmp_path / "times.jsonl"
    path.write_bytes(b'{"step": 1}\n{"step": 2, "acc')
    append_row(path, {"step": 2})
    assert [row["step"] for row in read_rows(path)] == [1, 2]


def test_what_is_sealed_cannot_be_changed_unseen(tmp_path):
    path = tmp_path / "record.json"
    write_sealed(path, {"accuracy": 0.875, "steps": {10: "b", 9: "a"}})
    assert read_sealed(path) == {"accuracy": 0.875, "steps": {"10": "b", "9": "a"}}
    path.write_text(path.read_text().replace("0.875", "0.975"))
    with pytest.raises(DataError, match=r"record\.json is damaged, or was edited"):
        read_sealed(path)
    path.write_text('{"accuracy": 0.5}')  # as an older version wrote it
    assert read_sealed(path) == {"accuracy": 0.5}


def test_a_file_that_is_not_the_one_that_was_noted(tmp_path):
    (tmp_path / "weights").write_bytes(b"abc")
    sums = {"weights": sha256(tmp_path / "weights"), "words": "0"}
    assert checked_sum(tmp_path / "weights", sums) == sums["weights"]
    (tmp_path / "weights").write_bytes(b"abd")
    with pytest.raises(DataError, match="weights is damaged"):
        checked_sum(tmp_path / "weights", sums)
    with pytest.raises(DataError, match="words is missing"):
        checked_sum(tmp_path / "words", sums)


def test_no_file_no_rows(tmp_path):
    assert read_rows(tmp_path / "none.jsonl") == []


def test_damage_in_the_middle_is_named(tmp_path):
    path = tmp_path / "steps.jsonl"
    path.write_bytes(b'{"step": 1}\n{"st\xff}\n{"step": 3}\n')
    with pytest.raises(DataError, match=r"steps\.jsonl, line 2 is damaged"):
        read_rows(path)


@pytest.mark.parametrize("content", [b"{", b"\xff", b"[" * 100_000])
def test_damaged_json_is_named(tmp_path, content):
    (tmp_path / "c.json").write_bytes(content)
    with pytest.raises(DataError, match=r"c\.json is damaged"):
        read_json(tmp_path / "c.json")


def test_json_has_no_nan(tmp_path):
    with pytest.raises(ValueError):
        write_json(tmp_path / "c.json", {"accuracy": float("nan")})
    assert not (tmp_path / "c.json").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_may_not_be_written_is_named(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(DataError, match=r"a\.txt cannot be written"):
        write_text(tmp_path / "a.txt", "x")


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(DataError, match="cannot be written: No such file"):
        write_text(tmp_path / "none" / "a.txt", "x")
    with pytest.raises(DataError, match="cannot be written: No such file"):
        append_row(tmp_path / "none" / "a.jsonl", {})


def test_checksum(tmp_path):
    (tmp_path / "a").write_bytes(b"abc")
    assert sha256(tmp_path / "a").startswith("ba7816bf8f01cfea")


def test_what_is_no_file_is_not_written_over(tmp_path):
    """A rename over /dev/null would put an end to it for the whole machine."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DataError, match="is there and is no file"):
        write_text(tmp_path / "pipe", "x")
    assert (tmp_path / "pipe").is_fifo()
