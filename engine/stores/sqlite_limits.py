"""Month counts in a SQLite file, which survive the process, also one that is killed. Knows no limits, only counts.

A call returns when its transaction is in the write-ahead log, handed to the operating system: a killed process loses
nothing, a power cut may lose the last moments (synchronous=NORMAL). That takes some 25 us; what waits for the disk, the
log's way into the file, happens in a thread. Several processes may share a file.
"""

import logging
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import TypeVar

from ..admission.limit_store import Draw
from ..errors import StoreFailed

KEPT_MONTHS = 13
BUSY_SECONDS = 1.0  # that another process may hold the file, before it is given up
CHECKPOINT_EVERY = 1000  # transactions
TABLE = """
CREATE TABLE IF NOT EXISTS month_counts (
    tenant TEXT NOT NULL, counted TEXT NOT NULL, month INTEGER NOT NULL, count INTEGER NOT NULL,
    PRIMARY KEY (tenant, counted, month)
) WITHOUT ROWID
"""
COUNT = "SELECT count FROM month_counts WHERE tenant = ? AND counted = ? AND month = ?"
ADD = """
INSERT INTO month_counts VALUES (?1, ?2, ?3, max(0, ?4))
ON CONFLICT DO UPDATE SET count = max(0, count + ?4)
"""
Kind = TypeVar("Kind")
log = logging.getLogger(__name__)


class SqliteLimits:
    """A LimitStore over one file, used by one thread at a time. Raises StoreFailed, also where it can't be opened."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._database = self._told(self._open)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="fairstep-month-counts")
        self._checkpoint: Future[None] | None = None
        self._since = 0  # transactions since the last checkpoint began

    def count(self, tenant: str, counted: str, month: int) -> int:
        return self._told(lambda: self._count(tenant, counted, month))

    def take(self, draws: Sequence[Draw]) -> Draw | None:
        return self._told(lambda: self._written(draws, checked=True))

    def add(self, draws: Sequence[Draw]) -> None:
        self._told(lambda: self._written(draws, checked=False))

    def forget(self, before: int) -> None:
        """Drop the counts of months more than a year before month number `before`."""
        self._told(lambda: self._database.execute("DELETE FROM month_counts WHERE month < ?", (before - KEPT_MONTHS,)))

    def close(self) -> None:
        self._thread.shutdown()
        self._database.close()

    def _open(self) -> sqlite3.Connection:
        database = sqlite3.connect(self._path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        try:
            database.execute("PRAGMA journal_mode=WAL")
            database.execute("PRAGMA synchronous=NORMAL")
            database.execute("PRAGMA wal_autocheckpoint=0")
            database.execute(TABLE)
        except BaseException:
            database.close()
            raise
        return database

    def _count(self, tenant: str, counted: str, month: int) -> int:
        row = self._database.execute(COUNT, (tenant, counted, month)).fetchone()
        return 0 if row is None else int(row[0])

    def _written(self, draws: Sequence[Draw], *, checked: bool) -> Draw | None:
        """One transaction that begins by claiming the file, so that nobody counts between look and write."""
        self._database.execute("BEGIN IMMEDIATE")
        try:
            for draw in draws if checked else ():
                if not draw.fits(self._count(draw.tenant, draw.counted, draw.month)):
                    self._database.execute("ROLLBACK")
                    return draw
            self._database.executemany(ADD, [(each.tenant, each.counted, each.month, each.amount) for each in draws])
            self._database.execute("COMMIT")
        except BaseException:
            if self._database.in_transaction:
                self._database.execute("ROLLBACK")
            raise
        self._let_checkpoint()
        return None

    def _let_checkpoint(self) -> None:
        """Begin a checkpoint if it is time for one; counting goes on meanwhile."""
        self._since += 1
        if self._since >= CHECKPOINT_EVERY and (self._checkpoint is None or self._checkpoint.done()):
            self._since = 0
            self._checkpoint = self._thread.submit(_checkpoint, self._path)

    def _told(self, action: Callable[[], Kind]) -> Kind:
        try:
            return action()
        except sqlite3.Error as error:
            raise StoreFailed(f"the counts in {self._path} cannot be kept: {error}") from error


def _checkpoint(path: Path) -> None:
    """Take what the log holds into the file, as far as nobody reads it. After a failure it grows until the next."""
    try:
        with closing(sqlite3.connect(path, timeout=BUSY_SECONDS)) as database:
            database.execute("PRAGMA wal_checkpoint(PASSIVE)")
    except sqlite3.Error as error:
        log.warning("the log of the counts in %s stays long: %s", path, error)
