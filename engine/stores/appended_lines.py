"""A file of JSON lines that one process at a time appends to: each line is there whole or not at all."""

from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from ..errors import StoreFailed


class AppendedLines:
    """What a killed process wrote of its last line is cut off when the file is opened. Raises StoreFailed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._file = path.open("ab+", buffering=0)
            self._size = self._whole()
            self._file.truncate(self._size)
        except OSError as problem:
            raise self._failed(problem) from problem

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def append(self, line: bytes) -> None:
        """Write one line, given without its end. After a failure the file is as it was."""
        try:
            self._file.truncate(self._size)  # what a failed write left
            line += b"\n"
            if self._file.write(line) != len(line):
                raise self._failed(OSError(28, "No space left on device"))
        except OSError as problem:
            raise self._failed(problem) from problem
        self._size += len(line)

    def __iter__(self) -> Iterator[Any]:
        """The values of all lines."""
        with self._path.open("rb") as lines:
            for line in lines:
                yield msgspec.json.decode(line)

    def _whole(self) -> int:
        """Bytes up to the end of the last whole line."""
        with self._path.open("rb") as lines:
            return sum(len(line) for line in lines if line.endswith(b"\n"))

    def _failed(self, problem: OSError) -> StoreFailed:
        return StoreFailed(f"{self._path.name} cannot be written: {problem.strerror}")
