"""response_store.py: events without a gap, whatever fails, and nothing of another tenant."""

from dataclasses import replace
from pathlib import Path

import pytest

from fairstep.errors import StoreFailed
from fairstep.stores import response_store
from fairstep.stores.database import Database
from fairstep.stores.response_store import (
    EVENTS_KEPT_SECONDS,
    KEPT_SECONDS,
    SCHEMA,
    ResponseStore,
    StoredEvent,
    StoredResponse,
)

ONE = StoredResponse("one", "t", 100.0, True, None, b"{}", b"[0]")


def events(first: int, count: int) -> list[StoredEvent]:
    return [StoredEvent(number, b"%d" % number, (number,)) for number in range(first, first + count)]


@pytest.fixture
def store() -> ResponseStore:
    return ResponseStore(Database(None, SCHEMA))


def test_a_response_is_found_by_its_tenant_alone(store: ResponseStore) -> None:
    store.create(ONE, events(0, 2))
    assert store.find("one", "t") == ONE
    assert store.find("one", "u") is None and not store.delete("one", "u")
    assert store.delete("one", "t") and not store.delete("one", "t")
    assert store.find("one", "t") is None and store.events("one") == []


def test_events_are_added_until_it_has_ended(store: ResponseStore) -> None:
    store.create(ONE, events(0, 2))
    assert store.add("one", events(2, 3))
    assert store.find("one", "t") == ONE
    assert store.add("one", events(5, 1), b"[1]", 200.0)
    assert store.find("one", "t") == replace(ONE, whole=b"[1]", ended=200.0)
    assert not store.add("one", events(6, 1)), "it ended"
    assert store.events("one") == events(0, 6)
    assert store.events("one", after=3) == events(4, 2)
    assert not store.add("two", events(0, 1))
    store.check()


def test_all_or_none_of_what_is_added_is_kept(store: ResponseStore) -> None:
    store.create(ONE, events(0, 2))
    with pytest.raises(StoreFailed):
        store.add("one", [*events(2, 1), *events(0, 1)], b"[9]", 300.0)
    assert store.events("one") == events(0, 2) and store.find("one", "t") == ONE


def test_what_no_process_ended_is_found_again_in_order(tmp_path: Path) -> None:
    store = ResponseStore(Database(tmp_path / "responses", SCHEMA))
    for number, name in enumerate("abc"):
        store.create(replace(ONE, id=name, created=100.0 - number), events(0, 1))
    store.add("b", [], None, 5.0)
    again = ResponseStore(Database(tmp_path / "responses", SCHEMA))
    assert [each.id for each in again.unfinished()] == ["c", "a"]
    again.begin_again("a")
    assert [each.attempts for each in again.unfinished()] == [1, 2]


def test_events_are_forgotten_before_their_response_and_nothing_unfinished_ever(
    store: ResponseStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(response_store, "FORGET_EVERY", 1)
    store.create(ONE, events(0, 2))
    store.create(replace(ONE, id="live"), events(0, 2))
    store.add("one", [], None, 100.0)
    store.create(replace(ONE, id="two", created=100.0 + EVENTS_KEPT_SECONDS), [])
    assert store.events("one") == [] and store.find("one", "t") is not None
    store.create(replace(ONE, id="three", created=100.0 + KEPT_SECONDS), [])
    assert store.find("one", "t") is None
    assert store.events("live") == events(0, 2) and store.find("live", "t") is not None
    store.check()


def test_a_tenant_with_too_many_loses_its_own_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(response_store, "FORGET_EVERY", 1)
    store = ResponseStore(Database(None, SCHEMA), most_of_tenant=3)
    store.create(replace(ONE, id="other", tenant="u", ended=1.0), events(0, 1))
    for number in range(6):
        store.create(replace(ONE, id=str(number), created=100.0 + number, ended=100.0 + number), events(0, 1))
    assert [name for name in "012345" if store.find(name, "t")] == ["3", "4", "5"]
    assert store.find("other", "u") is not None
    store.check()


def test_of_all_tenants_together_there_are_about_so_many() -> None:
    store = ResponseStore(Database(None, SCHEMA), most=30)
    for number in range(200):
        store.create(replace(ONE, id=str(number), tenant=str(number), ended=float(number)), events(0, 1))
    left = [number for number in range(200) if store.find(str(number), str(number))]
    assert left[-30:] == list(range(170, 200)) and len(left) <= 30 + response_store.FORGET_EVERY
    store.check()
