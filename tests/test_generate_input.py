"""Lines out of files and pipes, whatever pieces they come in."""

import asyncio
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairstep.errors import ConfigError
from fairstep.serving import generate_input
from fairstep.serving.generate_input import InputLines


async def all_of(lines: InputLines) -> list[bytes]:
    return [line async for line in lines]


def read(path: Path) -> list[bytes]:
    with InputLines.opened(str(path)) as lines:
        return asyncio.run(all_of(lines))


def test_lines_come_without_their_ends_and_empty_ones_do_not_count(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_bytes(b"\xef\xbb\xbfone\r\n\n  \t\ntwo\nthree")
    assert read(path) == [b"one", b"two", b"three"]
    with InputLines.opened(str(path)) as lines:
        assert lines.total == 3


def test_an_empty_file_has_no_lines(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_bytes(b"")
    assert read(tmp_path / "in.jsonl") == []


@given(st.lists(st.binary(max_size=9).filter(lambda line: b"\n" not in line)), st.integers(1, 7))
def test_any_cut_into_pieces_gives_the_same_lines(parts: list[bytes], size: int) -> None:
    reading, writing = os.pipe()
    os.write(writing, b"\n".join([b"", *parts]))
    os.close(writing)
    before, generate_input.CHUNK_BYTES = generate_input.CHUNK_BYTES, size
    try:
        assert asyncio.run(all_of(InputLines(reading, "pipe", None))) == [
            line.strip() for line in parts if line.strip()
        ]
    finally:
        generate_input.CHUNK_BYTES = before
        os.close(reading)


def test_a_pipe_is_waited_for_without_blocking_the_loop() -> None:
    reading, writing = os.pipe()

    async def script() -> None:
        lines = InputLines(reading, "pipe", None)
        os.write(writing, b"one\ntw")
        assert await anext(lines) == b"one"
        waiting = asyncio.create_task(anext(lines))
        await asyncio.sleep(0)
        assert not waiting.done()
        os.write(writing, b"o\n")
        assert await waiting == b"two"
        os.close(writing)
        assert await all_of(lines) == []

    asyncio.run(asyncio.wait_for(script(), 30))
    os.close(reading)


@pytest.mark.parametrize("name", ["missing.jsonl", "."])
def test_what_cannot_be_read_is_told(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        read(tmp_path / name)
