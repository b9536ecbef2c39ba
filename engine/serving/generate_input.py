"""The lines that `fairstep generate` reads, from a file or a pipe; a pipe never blocks the event loop.

Knows no JSON: a line is bytes. Lines with nothing but white space do not count.
"""

import asyncio
import os
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from ..errors import ConfigError

STDIN = "-"
CHUNK_BYTES = 1024**2
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class InputLines:
    """An async iterator of lines without their ends. `total`: how many there are, None where only reading tells."""

    def __init__(self, descriptor: int, name: str, total: int | None) -> None:
        self.name = name
        self.total = total
        self._descriptor = descriptor
        self._lines: deque[bytes] = deque()
        self._rest = b""  # a line not yet whole
        self._ended = False
        self._begun = False

    @classmethod
    @contextmanager
    def opened(cls, file: str) -> Iterator[Self]:
        """The lines of a file, or of stdin for "-". Raises ConfigError when it cannot be read."""
        if file == STDIN:
            yield cls(sys.stdin.fileno(), "stdin", None)
            return
        try:
            source = open(file, "rb", buffering=0)  # noqa: SIM115 (closed below; what is yielded may raise OSError too)
            total = _count(Path(file)) if Path(file).is_file() else None
        except OSError as problem:
            raise ConfigError(f"the input {file} cannot be read: {problem.strerror}") from None
        with source:
            yield cls(source.fileno(), file, total)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        while not self._lines:
            if self._ended:
                raise StopAsyncIteration
            self._take(await self._read())
        return self._lines.popleft()

    def _take(self, chunk: bytes) -> None:
        self._ended = not chunk
        if not self._begun:
            chunk, self._begun = chunk.removeprefix(BYTE_ORDER_MARK), True
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        if self._ended:
            lines.append(self._rest)
        self._lines.extend(line.strip() for line in lines if line.strip())

    async def _read(self) -> bytes:
        try:
            await self._readable()
            return os.read(self._descriptor, CHUNK_BYTES)
        except OSError as problem:
            raise ConfigError(f"the input {self.name} cannot be read: {problem.strerror}") from None

    async def _readable(self) -> None:
        """Wait until reading would not block; files never do, and selectors do not take them."""
        loop = asyncio.get_running_loop()
        ready = asyncio.Event()
        try:
            loop.add_reader(self._descriptor, ready.set)
        except (PermissionError, NotImplementedError):
            return
        try:
            await ready.wait()
        finally:
            loop.remove_reader(self._descriptor)


def _count(path: Path) -> int:
    with path.open("rb") as file:
        return sum(1 for line in file if line.strip())
