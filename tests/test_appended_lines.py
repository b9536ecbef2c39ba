"""appended_lines.py: a line is there whole or not at all."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairstep.errors import StoreFailed
from fairstep.stores.appended_lines import AppendedLines


@given(st.lists(st.integers(0, 10**6), max_size=10), st.data())
def test_a_torn_last_line_is_cut_off_wherever_it_was_torn(values: list[int], data: st.DataObject) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "lines"
        with AppendedLines(path) as lines:
            for value in values:
                lines.append(b"%d" % value)
        whole = path.read_bytes()
        path.write_bytes(whole[: data.draw(st.integers(0, len(whole)))])
        kept = path.read_bytes().count(b"\n")
        with AppendedLines(path) as lines:
            assert list(lines) == values[:kept]
            for value in values[kept:]:
                lines.append(b"%d" % value)
            assert list(lines) == values
        assert path.read_bytes() == whole


def test_a_file_that_cannot_be_opened_or_written_is_told(tmp_path: Path) -> None:
    with pytest.raises(StoreFailed, match="lines"):
        AppendedLines(tmp_path / "absent" / "lines")
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("no device that is always full")
    lines = AppendedLines(tmp_path / "lines")
    lines.append(b"1")
    real = lines._file
    with full.open("ab", buffering=0) as lines._file, pytest.raises(StoreFailed):
        lines.append(b"2")
    lines._file = real
    lines.append(b"3")
    assert list(lines) == [1, 3]
    real.close()
