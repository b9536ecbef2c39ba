"""The lines that `fairstep generate` writes: appended in order, each at once, so that a run that was ended goes on.

Knows nothing of what is in a record but its first key, by which a line of ours is known.
"""

import os
import stat
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO, Self

import msgspec

from ..errors import ConfigError, FairstepError

STDOUT = "-"
FIRST_KEY = "index"
OPENING = f'{{"{FIRST_KEY}":'.encode()  # how each of our lines begins


class OutputFile:
    """A file of JSON lines, which one process writes at a time. keeps: not so for what is no file (a pipe, stdout)."""

    def __init__(self, file: BinaryIO, name: str, *, keeps: bool) -> None:
        self.name = name
        self._file = file
        self.keeps = keeps

    @classmethod
    @contextmanager
    def opened(cls, file: str, *, overwrite: bool = False) -> Iterator[Self]:
        """Open for reading and appending, "-" is stdout. Raises ConfigError."""
        if file == STDOUT:
            yield cls(sys.stdout.buffer, "stdout", keeps=False)
            return
        try:
            opened, keeps = _open(file)
        except OSError as problem:
            raise ConfigError(f"the output {file} cannot be written: {problem.strerror}") from None
        try:
            if keeps:
                _lock(opened, file)
            if keeps and overwrite:
                opened.truncate(0)
            yield cls(opened, file, keeps=keeps)
        finally:
            with suppress(OSError):  # what could not be written was told by append()
                opened.close()

    def kept(self) -> Iterator[dict[str, Any]]:
        """The whole lines that an earlier run wrote. A torn last one is cut off once all others were taken.

        Raises ConfigError at a line that is not ours, and then changes nothing.
        """
        if not self.keeps:
            return
        self._file.seek(0)
        whole = 0
        for number, line in enumerate(self._file, start=1):
            if not line.endswith(b"\n"):
                if line[: len(OPENING)] != OPENING[: len(line)]:
                    raise self._not_ours(number)
                self._file.truncate(whole)
                break
            yield self._record(line, number)
            whole += len(line)
        self._file.seek(0, os.SEEK_END)

    def append(self, record: Mapping[str, Any]) -> None:
        """Write one line, whole and at once. Raises FairstepError when it cannot be written."""
        try:
            self._file.write(msgspec.json.encode(record) + b"\n")
            self._file.flush()
        except BrokenPipeError:
            raise
        except OSError as problem:
            raise FairstepError(f"the output {self.name} could not be written to: {problem.strerror}") from None

    def _record(self, line: bytes, number: int) -> dict[str, Any]:
        try:
            record = msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise self._not_ours(number) from None
        if not line.startswith(OPENING) or not isinstance(record, dict):
            raise self._not_ours(number)
        return record

    def _not_ours(self, number: int) -> ConfigError:
        return ConfigError(
            f"line {number} of the output {self.name} was not written by fairstep generate: choose another file, or "
            "--overwrite to replace it"
        )


def _open(file: str) -> tuple[BinaryIO, bool]:
    """The file, and whether it is one that can be read again."""
    if os.path.exists(file) and not stat.S_ISREG(os.stat(file).st_mode):
        return open(file, "wb"), False
    return open(file, "a+b"), True


def _lock(file: BinaryIO, name: str) -> None:
    """Keep others out for as long as this process has the file open."""
    try:
        import fcntl
    except ImportError:  # not a Unix
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ConfigError(f"another process is writing to the output {name}: let it end first") from None
    except OSError:  # a file system without locks
        return
