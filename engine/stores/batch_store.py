"""Batches in a Database: what was asked, how far each is, and where its output is."""

import msgspec

from .database import Database

MOST_OF_TENANT = 1000  # that have ended; the oldest are forgotten
SCHEMA = (
    """
    CREATE TABLE IF NOT EXISTS batches (
        id TEXT PRIMARY KEY, tenant TEXT NOT NULL, created INTEGER NOT NULL, ended INTEGER NOT NULL, batch BLOB NOT NULL
    )
    """,
    "CREATE INDEX IF NOT EXISTS batches_of_tenant ON batches (tenant, created)",
)
SAVE = """
INSERT INTO batches VALUES (?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET ended = excluded.ended, batch = excluded.batch
"""
TOO_MANY = """
DELETE FROM batches WHERE id IN (
    SELECT id FROM batches WHERE tenant = ? AND ended ORDER BY created DESC, rowid DESC LIMIT -1 OFFSET ?
)
"""
ENDS = ("completed", "expired", "cancelled", "failed")


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """The lines of an input file, to be answered before `expires`. Instants are Unix seconds.

    status: in_progress, cancelling, completed, expired, cancelled or failed. output, errors: files, once they have a
    line.
    """

    id: str
    tenant: str
    endpoint: str
    input: str
    created: int
    expires: int
    total: int
    window: str = "24h"
    metadata: dict[str, str] = {}
    status: str = "in_progress"
    completed: int = 0
    failed: int = 0
    output: str | None = None
    errors: str | None = None
    ended: int | None = None
    cancelling: int | None = None


class BatchStore:
    """Raises StoreFailed."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def save(self, batch: Batch) -> None:
        """Keep a batch as it is now."""
        with self._database.transaction():
            ended = int(batch.status in ENDS)
            self._database.change(SAVE, batch.id, batch.tenant, batch.created, ended, msgspec.json.encode(batch))
            if ended:
                self._database.change(TOO_MANY, batch.tenant, MOST_OF_TENANT)

    def find(self, batch_id: str, tenant: str) -> Batch | None:
        row = self._database.row("SELECT batch FROM batches WHERE id = ? AND tenant = ?", batch_id, tenant)
        return None if row is None else msgspec.json.decode(row[0], type=Batch)

    def of_tenant(self, tenant: str) -> list[Batch]:
        """The newest first."""
        sql = "SELECT batch FROM batches WHERE tenant = ? ORDER BY created DESC, rowid DESC"
        return [msgspec.json.decode(batch, type=Batch) for (batch,) in self._database.rows(sql, tenant)]

    def unfinished(self) -> list[Batch]:
        """Those that no process has ended, the oldest first."""
        sql = "SELECT batch FROM batches WHERE NOT ended ORDER BY created, rowid"
        return [msgspec.json.decode(batch, type=Batch) for (batch,) in self._database.rows(sql)]
