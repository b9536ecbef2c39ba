"""batch_store.py: batches as they are, by tenant, the unfinished found again."""

import pytest
from msgspec.structs import replace

from fairstep.stores import batch_store
from fairstep.stores.batch_store import SCHEMA, Batch, BatchStore
from fairstep.stores.database import Database

ONE = Batch(id="b1", tenant="t", endpoint="/v1/completions", input="f", created=100, expires=200, total=3)


def test_a_batch_is_found_as_it_was_saved_last() -> None:
    store = BatchStore(Database(None, SCHEMA))
    store.save(ONE)
    later = replace(ONE, status="cancelling", completed=2, metadata={"a": "b"})
    store.save(later)
    store.save(replace(ONE, id="b2", created=101))
    assert store.find("b1", "t") == later and store.find("b1", "u") is None
    assert [batch.id for batch in store.of_tenant("t")] == ["b2", "b1"]
    assert [batch.id for batch in store.unfinished()] == ["b1", "b2"]
    store.save(replace(later, status="cancelled", ended=300))
    assert [batch.id for batch in store.unfinished()] == ["b2"]


def test_the_oldest_that_have_ended_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_store, "MOST_OF_TENANT", 2)
    store = BatchStore(Database(None, SCHEMA))
    store.save(ONE)
    for number in range(2, 6):
        store.save(replace(ONE, id=f"b{number}", created=100 + number, status="completed"))
    assert [batch.id for batch in store.of_tenant("t")] == ["b5", "b4", "b1"]
