"""Files that tenants keep here: a row each in a Database, and what is in them in a folder. Nobody finds another's."""

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import TypeVar

from ..errors import StoreFailed
from .database import Database

MOST_OF_TENANT = 1000
SCHEMA = (
    """
    CREATE TABLE IF NOT EXISTS files (
        id TEXT PRIMARY KEY, tenant TEXT NOT NULL, created INTEGER NOT NULL, name TEXT NOT NULL, purpose TEXT NOT NULL
    )
    """,
    "CREATE INDEX IF NOT EXISTS files_of_tenant ON files (tenant, created)",
)
COLUMNS = "id, tenant, created, name, purpose"
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StoredFile:
    """name: as its owner calls it. purpose: `batch`, or `batch_output`. created: Unix seconds."""

    id: str
    tenant: str
    created: int
    name: str
    purpose: str


class FileStore:
    """Raises StoreFailed. When it is opened, what an earlier process left half done in the folder is removed."""

    def __init__(self, database: Database, folder: Path) -> None:
        self._database = database
        self._folder = folder
        self._told(lambda: folder.mkdir(exist_ok=True))
        known = {name for (name,) in database.rows("SELECT id FROM files")}
        for path in self._told(lambda: list(folder.iterdir())):
            if path.name not in known:
                self._told(path.unlink)

    def path(self, file_id: str) -> Path:
        """Where its content is."""
        return self._folder / file_id

    def incoming(self, name: str) -> Path:
        """A place for what is not a file yet."""
        return self._folder / f"incoming-{name}"

    def add(self, file: StoredFile, source: Path | None = None) -> None:
        """Keep a new file, with what is in `source`, which is moved; or empty."""
        path = self.path(file.id)
        self._told(path.touch if source is None else lambda: os.replace(source, path))
        try:
            self._database.change("INSERT INTO files VALUES (?, ?, ?, ?, ?)", *astuple(file))
        except StoreFailed:
            with suppress(OSError):
                path.unlink()
            raise

    def find(self, file_id: str, tenant: str) -> StoredFile | None:
        row = self._database.row(f"SELECT {COLUMNS} FROM files WHERE id = ? AND tenant = ?", file_id, tenant)
        return None if row is None else StoredFile(*row)

    def of_tenant(self, tenant: str) -> list[StoredFile]:
        """The newest first."""
        sql = f"SELECT {COLUMNS} FROM files WHERE tenant = ? ORDER BY created DESC, rowid DESC"
        return [StoredFile(*row) for row in self._database.rows(sql, tenant)]

    def can_add(self, tenant: str) -> bool:
        """Whether the tenant has fewer files than it may have."""
        row = self._database.row("SELECT count(*) FROM files WHERE tenant = ?", tenant)
        return row is not None and row[0] < MOST_OF_TENANT

    def size(self, file_id: str) -> int:
        """Bytes."""
        return self._told(lambda: self.path(file_id).stat().st_size)

    def delete(self, file_id: str, tenant: str) -> bool:
        """Forget one; whether it was there."""
        if not self._database.change("DELETE FROM files WHERE id = ? AND tenant = ?", file_id, tenant):
            return False
        with suppress(OSError):  # if it stays, the next opening removes it
            self.path(file_id).unlink()
        return True

    def _told(self, action: Callable[[], T]) -> T:
        try:
            return action()
        except OSError as problem:
            raise StoreFailed(f"the files in {self._folder} cannot be kept: {problem.strerror}") from problem
