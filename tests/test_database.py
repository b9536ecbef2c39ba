"""database.py: all of a transaction or nothing, and errors in words."""

import sqlite3
from pathlib import Path

import pytest

from fairstep.errors import StoreFailed
from fairstep.stores.database import Database

SCHEMA = ("CREATE TABLE IF NOT EXISTS things (name TEXT PRIMARY KEY, size INTEGER NOT NULL)",)


@pytest.mark.parametrize("kept", [False, True])
def test_a_transaction_that_fails_changes_nothing(kept: bool, tmp_path: Path) -> None:
    database = Database(tmp_path / "things" if kept else None, SCHEMA)
    assert database.change("INSERT INTO things VALUES ('a', 1)") == 1
    with pytest.raises(ZeroDivisionError), database.transaction():
        database.change("INSERT INTO things VALUES ('b', 2)")
        raise ZeroDivisionError
    with pytest.raises(StoreFailed, match="UNIQUE"), database.transaction():
        database.change("INSERT INTO things VALUES ('c', 3)")
        database.change("INSERT INTO things VALUES ('a', 4)")
    assert database.rows("SELECT * FROM things") == [("a", 1)]
    assert database.row("SELECT size FROM things WHERE name = ?", "b") is None
    database.close()


def test_what_was_written_is_there_when_it_is_opened_again(tmp_path: Path) -> None:
    for expected in (0, 1):
        database = Database(tmp_path / "things", SCHEMA)
        assert database.rows("SELECT count(*) FROM things") == [(expected,)]
        with database.transaction():
            database.change("INSERT OR REPLACE INTO things VALUES ('a', 1)")
        database.close()


def test_a_file_that_cannot_be_opened_is_told_with_its_path(tmp_path: Path) -> None:
    with pytest.raises(StoreFailed, match="absent"):
        Database(tmp_path / "absent" / "things", SCHEMA)
    (tmp_path / "text").write_text("this is no database, whatever its name says" * 50)
    with pytest.raises(StoreFailed, match="text"):
        Database(tmp_path / "text", SCHEMA)


def test_a_file_that_another_holds_is_told_and_works_again_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairstep.stores.database.BUSY_SECONDS", 0.01)
    database = Database(tmp_path / "things", SCHEMA)
    holder = sqlite3.connect(tmp_path / "things", isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreFailed, match="locked"), database.transaction():
        raise AssertionError("it has not begun")
    holder.execute("ROLLBACK")
    holder.close()
    with database.transaction():
        database.change("INSERT INTO things VALUES ('a', 1)")
    database.close()


def test_a_full_disk_is_told_and_loses_nothing(tmp_path: Path) -> None:
    database = Database(tmp_path / "things", SCHEMA)
    database.change("INSERT INTO things VALUES ('a', 1)")
    database.rows("PRAGMA max_page_count = 4")  # as many as there are
    with pytest.raises(StoreFailed, match="full"), database.transaction():
        database.change("INSERT INTO things VALUES (?, 2)", "b" * 100_000)
    assert database.rows("SELECT name FROM things") == [("a",)]
    database.close()
