"""pages.py: every page is free, cached or held; shared pages live as long as their last holder; LRU, tails first."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fairstep.stepping.pages import PagePool


def key(name: int) -> bytes:
    return bytes([name])


def test_the_null_page_is_never_handed_out_and_every_other_is() -> None:
    pool, table = PagePool(5, 4), []
    pool.allocate(table, 5)
    assert sorted(table) == [1, 2, 3, 4, 5]
    assert not pool.can_allocate(1) and pool.can_allocate(0)
    pool.check([table])


def test_needed_rounds_up_to_whole_pages() -> None:
    pool = PagePool(5, 4)
    assert [pool.needed(tokens) for tokens in (0, 1, 4, 5, 8, 9)] == [0, 1, 1, 2, 2, 3]


def test_more_than_is_left_is_not_handed_out() -> None:
    pool, table = PagePool(2, 4), []
    with pytest.raises(AssertionError, match="3 pages asked for, 2 left"):
        pool.allocate(table, 3)
    assert table == []


def test_a_page_without_a_key_is_free_again_and_one_with_a_key_stays_cached() -> None:
    pool, table = PagePool(4, 4), []
    pool.allocate(table, 2)
    named = table[0]
    pool.name(named, key(1))
    pool.release(table)
    assert table == [] and (pool.held, pool.cached, pool.available) == (0, 1, 4)
    assert pool.find(key(1)) == named
    pool.check([])


def test_a_shared_page_is_held_until_its_last_table_is_released() -> None:
    pool, one, other = PagePool(4, 4), [], []
    pool.allocate(one, 2)
    pool.share(other, one)
    pool.check([one, other])
    pool.release(one)
    assert pool.held == 2
    pool.check([other])
    pool.release(other)
    assert pool.held == 0


def test_the_least_recently_used_page_is_evicted_first_and_of_one_table_the_tail() -> None:
    pool, old, new = PagePool(4, 4), [], []
    pool.allocate(old, 2)
    pool.allocate(new, 2)
    for name, page in enumerate(old + new):
        pool.name(page, key(name))
    pool.release(old)
    pool.release(new)
    table: list[int] = []
    evicted = []
    for _ in range(4):
        pool.allocate(table, 1)
        evicted.append(next(name for name in range(4) if pool.find(key(name)) is None and name not in evicted))
    assert evicted == [1, 0, 3, 2]


def test_sharing_a_cached_page_keeps_it_from_being_evicted() -> None:
    pool, first, second = PagePool(2, 4), [], []
    pool.allocate(first, 1)
    page = first[0]
    pool.name(page, key(1))
    pool.release(first)
    pool.share(second, [page])
    assert pool.can_allocate(1) and not pool.can_allocate(2)
    pool.allocate(second, 1)
    assert pool.find(key(1)) == page
    pool.check([second])


def test_room_beside_shared_pages_counts_those_that_are_no_longer_evictable() -> None:
    pool, one, two = PagePool(4, 4), [], []
    pool.allocate(one, 1)
    pool.allocate(two, 1)
    pool.name(one[0], key(1))
    pool.name(two[0], key(2))
    held, cached = one[0], two[0]
    pool.release(two)
    assert pool.available == 3
    assert pool.can_allocate(3, sharing=[held]) and not pool.can_allocate(3, sharing=[held, cached])
    assert pool.can_allocate(2, sharing=[held, cached])


def test_the_first_page_under_a_key_keeps_it() -> None:
    pool, one, two = PagePool(4, 4), [], []
    pool.allocate(one, 1)
    pool.allocate(two, 1)
    pool.name(one[0], key(1))
    pool.name(two[0], key(1))
    assert pool.find(key(1)) == one[0]
    pool.release(two)
    assert pool.cached == 0, "the second has no key, so it is free"
    pool.check([one])


def test_forgotten_pages_are_found_no_more_but_stay_held() -> None:
    pool, table = PagePool(4, 4), []
    pool.allocate(table, 2)
    pool.name(table[0], key(1))
    pool.forget(table)
    assert pool.find(key(1)) is None and pool.held == 2
    pool.release(table)
    assert pool.cached == 0
    pool.check([])


def test_a_free_page_cannot_be_shared() -> None:
    with pytest.raises(AssertionError, match="page 3 is free"):
        PagePool(4, 4).share([], [3])


def test_check_finds_a_table_that_nobody_counted() -> None:
    pool, table = PagePool(4, 4), []
    pool.allocate(table, 1)
    with pytest.raises(AssertionError, match="held by no table"):
        pool.check([])
    with pytest.raises(AssertionError, match="held by no table"):
        pool.check([table, table])


class PoolMachine(RuleBasedStateMachine):
    """Random holders against a model that knows only tables and names."""

    @initialize(pages=st.integers(1, 12))
    def begin(self, pages: int) -> None:
        self.pool = PagePool(pages, 4)
        self.tables: list[list[int]] = []
        self.names: dict[bytes, int] = {}

    @rule(count=st.integers(0, 5))
    def allocate(self, count: int) -> None:
        held = {page for table in self.tables for page in table}
        assert self.pool.can_allocate(count) == (count <= self.pool.pages - len(held))
        if self.pool.can_allocate(count):
            table: list[int] = []
            self.pool.allocate(table, count)
            assert not held & set(table) and len(set(table)) == count
            self.names = {name: page for name, page in self.names.items() if page not in table}
            self.tables.append(table)

    @precondition(lambda self: self.tables)
    @rule(which=st.integers(0, 9), name=st.integers(0, 9))
    def name(self, which: int, name: int) -> None:
        for page in self.tables[which % len(self.tables)]:
            if page not in self.names.values():
                self.pool.name(page, key(name))
                self.names.setdefault(key(name), page)

    @rule(names=st.lists(st.integers(0, 9), unique=True), fresh=st.integers(0, 3))
    def share_and_allocate(self, names: list[int], fresh: int) -> None:
        pages = [page for name in names if (page := self.pool.find(key(name))) is not None]
        if self.pool.can_allocate(fresh, sharing=pages):
            table: list[int] = []
            self.pool.share(table, pages)
            self.pool.allocate(table, fresh)
            self.names = {name: page for name, page in self.names.items() if page not in table[len(pages) :]}
            self.tables.append(table)

    @precondition(lambda self: self.tables)
    @rule(which=st.integers(0, 9), forget=st.booleans())
    def release(self, which: int, forget: bool) -> None:
        table = self.tables.pop(which % len(self.tables))
        if forget:
            self.pool.forget(table)
            self.names = {name: page for name, page in self.names.items() if page not in table}
        self.pool.release(table)
        assert table == []

    @invariant()
    def nothing_is_lost(self) -> None:
        if not hasattr(self, "pool"):
            return
        self.pool.check(self.tables)
        assert {name: self.pool.find(name) for name in self.names} == self.names
        held = {page for table in self.tables for page in table}
        assert (self.pool.held, self.pool.cached) == (len(held), len(set(self.names.values()) - held))


TestPool = PoolMachine.TestCase
TestPool.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)
