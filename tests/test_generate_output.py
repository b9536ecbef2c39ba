"""What an earlier run wrote is kept line by line; what is not ours is never touched."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairstep.errors import ConfigError, FairstepError
from fairstep.serving.generate_output import OutputFile

RECORDS = [{"index": 0, "text": "wörld\n\u2028"}, {"index": 1, "id": "b", "error": {"message": "no"}}, {"index": 2}]


def write(path: Path, records: list[dict[str, object]] = RECORDS) -> bytes:
    with OutputFile.opened(str(path)) as output:
        for record in records:
            output.append(record)
    return path.read_bytes()


def test_records_come_back_and_more_are_appended(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    whole = write(path)
    assert whole.count(b"\n") == len(RECORDS)
    with OutputFile.opened(str(path)) as output:
        assert list(output.kept()) == RECORDS
        output.append({"index": 3})
    assert path.read_bytes() == whole + b'{"index":3}\n'


@given(st.data())
def test_a_file_cut_at_any_byte_keeps_its_whole_lines_and_loses_the_torn_one(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("cut") / "out.jsonl"
    whole = write(path)
    cut = data.draw(st.integers(0, len(whole)))
    path.write_bytes(whole[:cut])
    lines = whole[:cut].count(b"\n")
    with OutputFile.opened(str(path)) as output:
        assert list(output.kept()) == RECORDS[:lines]
        for record in RECORDS[lines:]:
            output.append(record)
    assert path.read_bytes() == whole


@pytest.mark.parametrize(
    "content", [b"my notes", b"my notes\n", b'{"index":0}\nnotes\n', b'{"text":"a"}\n', b"[0]\n", b'{"index":\xff}\n']
)
def test_a_file_that_is_not_ours_is_refused_and_stays(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "out.jsonl"
    path.write_bytes(content)
    with OutputFile.opened(str(path)) as output, pytest.raises(ConfigError, match="not written by fairstep generate"):
        list(output.kept())
    assert path.read_bytes() == content


def test_overwrite_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    path.write_bytes(b"my notes\n")
    with OutputFile.opened(str(path), overwrite=True) as output:
        assert list(output.kept()) == []
    assert path.read_bytes() == b""


def test_two_cannot_write_the_same_file(tmp_path: Path) -> None:
    path = str(tmp_path / "out.jsonl")
    with OutputFile.opened(path), pytest.raises(ConfigError, match="another process"):
        OutputFile.opened(path, overwrite=True).__enter__()
    with OutputFile.opened(path):  # free again
        pass


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a device of Linux")
def test_a_full_disk_is_told() -> None:
    with (
        pytest.raises(FairstepError, match="/dev/full could not be written to: No space left"),
        OutputFile.opened("/dev/full") as output,
    ):
        assert list(output.kept()) == []
        output.append({"index": 0})


def test_what_cannot_be_opened_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be written"):
        OutputFile.opened(str(tmp_path / "no" / "out.jsonl")).__enter__()


def test_a_reader_that_leaves_is_no_error_of_ours() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with OutputFile.opened(f"/dev/fd/{writing}") as output, pytest.raises(BrokenPipeError):
        output.append({"index": 0})
    os.close(writing)
