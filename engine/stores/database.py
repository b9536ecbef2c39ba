"""A SQLite file in write-ahead mode that one process owns, with its errors told in words. Knows no table.

A transaction that has returned is handed to the operating system: a killed process loses nothing, a power cut may lose
the last moments (synchronous=NORMAL).
"""

import sqlite3
import weakref
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..errors import StoreFailed

BUSY_SECONDS = 1.0  # that somebody else may hold the file, before it is given up

Row = tuple[Any, ...]


class Database:
    """Used by one thread at a time. schema: statements that make what is not there yet.

    path None: in memory, for as long as it is open. Raises StoreFailed, also where the file cannot be opened.
    """

    def __init__(self, path: Path | None, schema: Sequence[str]) -> None:
        self._name = "memory" if path is None else str(path)
        with self._told():
            self._connection = sqlite3.connect(
                path or ":memory:", timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
            try:
                self._connection.execute("PRAGMA journal_mode=WAL")
                self._connection.execute("PRAGMA synchronous=NORMAL")
                for statement in schema:
                    self._connection.execute(statement)
            except BaseException:
                self._connection.close()
                raise
        self._closing = weakref.finalize(self, self._connection.close)  # when nobody has it any more, at the latest

    def rows(self, sql: str, *values: Any) -> list[Row]:
        """What a query finds."""
        with self._told():
            return self._connection.execute(sql, values).fetchall()

    def row(self, sql: str, *values: Any) -> Row | None:
        """The one row that a query finds, or None."""
        with self._told():
            found: Row | None = self._connection.execute(sql, values).fetchone()
            return found

    def change(self, sql: str, *values: Any) -> int:
        """Run a statement; how many rows it changed. Outside of transaction() it is one of its own."""
        with self._told():
            return self._connection.execute(sql, values).rowcount

    @contextmanager
    def transaction(self) -> Generator[None, None, None]:
        """All that is changed inside, or nothing. It begins by claiming the file."""
        with self._told():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    def close(self) -> None:
        self._closing()

    @contextmanager
    def _told(self) -> Generator[None, None, None]:
        try:
            yield
        except sqlite3.Error as error:
            raise StoreFailed(f"what is kept in {self._name} cannot be read or written: {error}") from error
