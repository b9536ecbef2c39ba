"""Answers by idempotency key in a SQLite file, so that a restart forgets none. Knows no HTTP."""

from .answers import KEPT_SECONDS, MIB, ROW_BYTES, Answer, Holdings
from .database import Database

SCHEMA = (
    """
    CREATE TABLE IF NOT EXISTS answers (
        scope BLOB PRIMARY KEY, tenant TEXT NOT NULL, saved REAL NOT NULL, fingerprint BLOB NOT NULL,
        status INTEGER NOT NULL, media_type TEXT NOT NULL, body BLOB NOT NULL
    )
    """,
    "CREATE INDEX IF NOT EXISTS answers_by_age ON answers (saved)",
    "CREATE INDEX IF NOT EXISTS answers_of_tenant ON answers (tenant, saved)",
)
FIND = "SELECT fingerprint, status, media_type, body FROM answers WHERE scope = ? AND saved > ?"
SAVE = "INSERT INTO answers VALUES (?, ?, ?, ?, ?, ?, ?)"
HELD = "SELECT tenant, sum(length(body) + ?) FROM answers GROUP BY tenant"
TOO_OLD = "DELETE FROM answers WHERE saved <= ? RETURNING tenant, length(body)"
OLDEST = """
DELETE FROM answers WHERE scope = (SELECT scope FROM answers WHERE tenant = ? ORDER BY saved, rowid LIMIT 1)
RETURNING tenant, length(body)
"""


class SqliteAnswers:
    """An AnswerStore in an open Database, of at most so many bytes. Raises StoreFailed."""

    def __init__(self, database: Database, most_bytes: int = 256 * MIB) -> None:
        self._database = database
        self._most = most_bytes
        self._holdings: Holdings | None = self._counted()  # None: to be counted anew

    def find(self, scope: bytes, now: float) -> Answer | None:
        row = self._database.row(FIND, scope, now - KEPT_SECONDS)
        return None if row is None else Answer(*row)

    def save(self, scope: bytes, tenant: str, answer: Answer, now: float) -> None:
        try:
            with self._database.transaction():
                if self.find(scope, now) is None:
                    holdings = self._holdings = self._holdings or self._counted()
                    self._make_room(holdings, answer.size, now)
                    kept = answer.fingerprint, answer.status, answer.media_type, answer.body
                    self._database.change(SAVE, scope, tenant, now, *kept)
                    holdings.add(tenant, answer.size)
        except BaseException:
            self._holdings = None
            raise

    def check(self) -> None:
        """Assert that bytes are counted right."""
        assert self._holdings is None or self._counted().of == self._holdings.of, "bytes of answers are miscounted"

    def _make_room(self, holdings: Holdings, coming: int, now: float) -> None:
        for tenant, length in self._database.rows(TOO_OLD, now - KEPT_SECONDS):
            holdings.remove(tenant, length + ROW_BYTES)
        begun = False
        while (loser := holdings.loser(coming, begun=begun)) is not None:
            for tenant, length in self._database.rows(OLDEST, loser):
                holdings.remove(tenant, length + ROW_BYTES)
            begun = True

    def _counted(self) -> Holdings:
        holdings = Holdings(self._most)
        for tenant, size in self._database.rows(HELD, ROW_BYTES):
            holdings.add(tenant, size)
        return holdings
