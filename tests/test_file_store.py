"""file_store.py: rows and files agree, whatever an earlier process left."""

from dataclasses import replace
from pathlib import Path

import pytest

from fairstep.errors import StoreFailed
from fairstep.stores import file_store
from fairstep.stores.database import Database
from fairstep.stores.file_store import SCHEMA, FileStore, StoredFile

ONE = StoredFile("file-1", "t", 100, "a.jsonl", "batch")


@pytest.fixture
def database() -> Database:
    return Database(None, SCHEMA)


def test_a_file_belongs_to_a_tenant(database: Database, tmp_path: Path) -> None:
    store = FileStore(database, tmp_path / "files")
    source = store.incoming("x")
    source.write_bytes(b"hello")
    store.add(ONE, source)
    store.add(replace(ONE, id="file-2", created=101))
    assert not source.exists() and store.path("file-1").read_bytes() == b"hello"
    assert (store.size("file-1"), store.size("file-2")) == (5, 0)
    assert store.find("file-1", "t") == ONE and store.find("file-1", "u") is None
    assert [file.id for file in store.of_tenant("t")] == ["file-2", "file-1"] and store.of_tenant("u") == []
    assert not store.delete("file-1", "u") and store.delete("file-1", "t") and not store.delete("file-1", "t")
    assert not store.path("file-1").exists()


def test_what_was_left_half_done_is_removed_when_it_is_opened(database: Database, tmp_path: Path) -> None:
    store = FileStore(database, tmp_path)
    store.add(ONE)
    store.incoming("x").write_bytes(b"half")
    store.path("file-9").write_bytes(b"no row")
    FileStore(database, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["file-1"]


def test_what_cannot_be_kept_leaves_nothing(database: Database, tmp_path: Path) -> None:
    store = FileStore(database, tmp_path)
    store.add(ONE)
    store.path("file-1").unlink()
    with pytest.raises(StoreFailed, match="UNIQUE"):
        store.add(ONE)
    with pytest.raises(StoreFailed, match="No such file"):
        store.add(replace(ONE, id="file-2"), tmp_path / "absent")
    assert list(tmp_path.iterdir()) == [] and store.find("file-2", "t") is None


def test_a_tenant_may_have_so_many(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_store, "MOST_OF_TENANT", 1)
    store = FileStore(database, tmp_path)
    assert store.can_add("t")
    store.add(ONE)
    assert not store.can_add("t") and store.can_add("u")
