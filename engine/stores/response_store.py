"""Responses and their events in a Database: what was told of each, so that it can be told again, or gone on with.

An event is in the store before anybody hears it. Belongs to a tenant: nobody else finds it.
"""

from collections.abc import Sequence
from dataclasses import astuple, dataclass

import msgspec

from .database import Database, Row

KEPT_SECONDS = 7 * 24 * 3600.0  # a response that has ended
EVENTS_KEPT_SECONDS = 3600.0  # its events
MOST, MOST_OF_TENANT = 100_000, 10_000
FORGET_EVERY = 50  # responses: in between there are a few more
SCHEMA = (
    """
    CREATE TABLE IF NOT EXISTS responses (
        id TEXT PRIMARY KEY, tenant TEXT NOT NULL, created REAL NOT NULL, background INTEGER NOT NULL,
        deadline REAL, request BLOB NOT NULL, whole BLOB NOT NULL, attempts INTEGER NOT NULL, ended REAL
    )
    """,
    "CREATE INDEX IF NOT EXISTS responses_of_tenant ON responses (tenant, created)",
    "CREATE INDEX IF NOT EXISTS responses_by_end ON responses (ended)",
    """
    CREATE TABLE IF NOT EXISTS events (
        response TEXT NOT NULL, number INTEGER NOT NULL, event BLOB NOT NULL, drawn BLOB NOT NULL,
        PRIMARY KEY (response, number)
    ) WITHOUT ROWID
    """,
)
COLUMNS = "id, tenant, created, background, deadline, request, whole, attempts, ended"
FIND = f"SELECT {COLUMNS} FROM responses WHERE id = ? AND tenant = ?"
UNFINISHED = f"SELECT {COLUMNS} FROM responses WHERE ended IS NULL ORDER BY created, rowid"
EVENTS = "SELECT event, drawn FROM events WHERE response = ? AND number > ? ORDER BY number"
OLDEST_TOO_MANY = """
SELECT id FROM responses WHERE tenant = ? AND ended IS NOT NULL ORDER BY created DESC, rowid DESC LIMIT -1 OFFSET ?
"""
TOO_MANY = "SELECT id FROM responses WHERE ended IS NOT NULL ORDER BY ended DESC, rowid DESC LIMIT -1 OFFSET ?"


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """request: what makes it again, whole: the object as it is told; both JSON. Instants are Unix seconds.

    background: it survives its client, and the process. deadline: when its time is up. attempts: how many processes
    have begun it. ended: None while it is being made.
    """

    id: str
    tenant: str
    created: float
    background: bool
    deadline: float | None
    request: bytes
    whole: bytes
    attempts: int = 1
    ended: float | None = None


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """An event as JSON, and the token ids that it brought."""

    number: int
    event: bytes
    drawn: tuple[int, ...] = ()


class ResponseStore:
    """Holds about `most` responses that have ended, `most_of_tenant` of one tenant. Raises StoreFailed."""

    def __init__(self, database: Database, most: int = MOST, most_of_tenant: int = MOST_OF_TENANT) -> None:
        self._database = database
        self._most = most
        self._most_of_tenant = most_of_tenant
        self._created = 0

    def create(self, response: StoredResponse, events: Sequence[StoredEvent]) -> None:
        """Keep a new one, and forget what is too old or too much."""
        row = astuple(response)
        with self._database.transaction():
            if self._created % FORGET_EVERY == 0:
                self._forget(response.tenant, response.created)
            self._database.change("INSERT INTO responses VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", *row)
            self._add(response.id, events)
        self._created += 1

    def add(
        self, response_id: str, events: Sequence[StoredEvent], whole: bytes | None = None, ended: float | None = None
    ) -> bool:
        """Keep more events, the object as it is now, and that it has ended; False if it is not there any more."""
        with self._database.transaction():
            sql = "UPDATE responses SET whole = coalesce(?, whole), ended = ? WHERE id = ? AND ended IS NULL"
            if not self._database.change(sql, whole, ended, response_id):
                return False
            self._add(response_id, events)
        return True

    def find(self, response_id: str, tenant: str) -> StoredResponse | None:
        row = self._database.row(FIND, response_id, tenant)
        return None if row is None else _response(row)

    def events(self, response_id: str, after: int = -1) -> list[StoredEvent]:
        """Those with numbers above `after`."""
        rows = self._database.rows(EVENTS, response_id, after)
        return [
            StoredEvent(after + 1 + place, event, tuple(msgspec.msgpack.decode(drawn)))
            for place, (event, drawn) in enumerate(rows)
        ]

    def unfinished(self) -> list[StoredResponse]:
        """Those that no process has ended, the oldest first."""
        return [_response(row) for row in self._database.rows(UNFINISHED)]

    def begin_again(self, response_id: str) -> None:
        """Another process begins it."""
        self._database.change("UPDATE responses SET attempts = attempts + 1 WHERE id = ?", response_id)

    def delete(self, response_id: str, tenant: str) -> bool:
        """Forget one; whether it was there."""
        with self._database.transaction():
            there = self._database.change("DELETE FROM responses WHERE id = ? AND tenant = ?", response_id, tenant)
            if there:
                self._database.change("DELETE FROM events WHERE response = ?", response_id)
        return bool(there)

    def check(self) -> None:
        """Assert that events are numbered without a gap and belong to a response."""
        orphans = "SELECT DISTINCT response FROM events WHERE response NOT IN (SELECT id FROM responses)"
        assert not self._database.rows(orphans), "events of no response"
        gaps = "SELECT response FROM events GROUP BY response HAVING max(number) + 1 != count(*) OR min(number) != 0"
        assert not self._database.rows(gaps), "events are missing"

    def _add(self, response_id: str, events: Sequence[StoredEvent]) -> None:
        for event in events:
            drawn = msgspec.msgpack.encode(event.drawn)
            self._database.change(
                "INSERT INTO events VALUES (?, ?, ?, ?)", response_id, event.number, event.event, drawn
            )

    def _forget(self, tenant: str, now: float) -> None:
        old = "SELECT id FROM responses WHERE ended <= ?"
        self._database.change(f"DELETE FROM events WHERE response IN ({old})", now - EVENTS_KEPT_SECONDS)
        self._database.change("DELETE FROM responses WHERE ended <= ?", now - KEPT_SECONDS)
        too_many = self._database.rows(OLDEST_TOO_MANY, tenant, self._most_of_tenant - 1)
        for (response_id,) in {*too_many, *self._database.rows(TOO_MANY, self._most - 1)}:
            self._database.change("DELETE FROM events WHERE response = ?", response_id)
            self._database.change("DELETE FROM responses WHERE id = ?", response_id)


def _response(row: Row) -> StoredResponse:
    response_id, tenant, created, background, *rest = row
    return StoredResponse(response_id, tenant, created, bool(background), *rest)
