"""limit_store.py, and the same of every other store: all or nothing, by tenant, counter and month."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairstep.admission.limit_store import Draw, LimitStore, MemoryLimits
from fairstep.stores.sqlite_limits import SqliteLimits


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LimitStore]:
    if request.param == "memory":
        yield MemoryLimits()
        return
    database = SqliteLimits(tmp_path / "counts.sqlite")
    yield database
    database.close()


def draw(amount: int, most: int = 100, *, tenant: str = "a", counted: str = "tokens", month: int = 600) -> Draw:
    return Draw(tenant, counted, month, amount, most)


def count(store: LimitStore, tenant: str = "a", counted: str = "tokens", month: int = 600) -> int:
    return store.count(tenant, counted, month)


def test_what_fits_is_counted(store: LimitStore) -> None:
    assert store.take([draw(60)]) is None
    assert store.take([draw(40)]) is None
    assert count(store) == 100


def test_all_are_counted_or_none(store: LimitStore) -> None:
    requests, tokens = draw(1, 5, counted="requests"), draw(101, 100)
    store.add([draw(1)])
    assert store.take([requests, tokens]) == tokens
    assert count(store, counted="requests") == 0
    assert count(store) == 1


def test_more_than_the_limit_fits_where_nothing_was_counted(store: LimitStore) -> None:
    assert store.take([draw(300)]) is None
    assert store.take([draw(1)]) == draw(1)
    assert count(store) == 300


def test_counters_are_apart_by_tenant_counter_and_month(store: LimitStore) -> None:
    store.add([draw(1), draw(2, tenant="b"), draw(3, counted="requests"), draw(4, month=601)])
    found = [count(store), count(store, "b"), count(store, counted="requests"), count(store, month=601)]
    assert found == [1, 2, 3, 4]


def test_giving_back_ends_at_nothing(store: LimitStore) -> None:
    store.add([draw(5)])
    store.add([draw(-3)])
    assert count(store) == 2
    store.add([draw(-3)])
    assert count(store) == 0


def test_the_next_month_starts_anew(store: LimitStore) -> None:
    store.take([draw(100)])
    assert store.take([draw(1)]) is not None
    assert store.take([draw(1, month=601)]) is None


def test_memory_keeps_two_months() -> None:
    store = MemoryLimits()
    for month in (600, 601, 602, 600):
        store.add([draw(1, month=month)])
    assert [count(store, month=month) for month in (600, 601, 602)] == [0, 1, 1]


@given(st.lists(st.lists(st.tuples(st.sampled_from("ab"), st.integers(-20, 60)), max_size=2), max_size=20))
def test_both_stores_count_alike(takes: list[list[tuple[str, int]]]) -> None:
    memory, database = MemoryLimits(), SqliteLimits(Path(":memory:"))
    for each in takes:
        draws = [draw(amount, counted=name) for name, amount in dict(each).items()]
        if all(one.amount > 0 for one in draws):
            assert memory.take(draws) == database.take(draws)
        else:
            memory.add(draws)
            database.add(draws)
        for name in "ab":
            assert count(memory, counted=name) == count(database, counted=name)
    database.close()
