"""bounded_queue.py: places by count, tokens and bytes; a flood costs nobody else its place."""

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from fairstep.admission.bounded_queue import BoundedQueue, QueueBounds, Size


class Door:
    """Lets requests in as the queue says, and remembers who was put out."""

    def __init__(self, bounds: QueueBounds) -> None:
        self.queue = BoundedQueue(bounds)
        self.inside: dict[int, str] = {}
        self.put_out: list[int] = []
        self._numbers = 0

    def come(self, tenant: str, *, tokens: int = 1, size: int = 1, entries: int = 1, weight: int = 1) -> int | None:
        more = Size(entries, tokens, size)
        victims = self.queue.victims(tenant, weight, more)
        if victims is None:
            return None
        for victim in victims:
            self.queue.leave(victim)
            del self.inside[victim]
        self.put_out += victims
        self._numbers += 1
        self.queue.enter(self._numbers, tenant, weight, more)
        self.inside[self._numbers] = tenant
        return self._numbers

    def held(self, tenant: str) -> int:
        return list(self.inside.values()).count(tenant)


def test_what_fits_comes_in_and_what_does_not_is_refused() -> None:
    door = Door(QueueBounds(entries=2, tokens=100, bytes=1000))
    assert door.come("a", tokens=60) and not door.come("a", tokens=60)
    assert not door.come("a", size=1000)
    assert door.come("a", tokens=40)
    assert not door.come("a", tokens=0)
    assert door.queue.used == Size(2, 100, 2)
    assert door.put_out == []


def test_of_10_000_against_5_with_1_000_places_the_5_lose_none() -> None:
    door = Door(QueueBounds(entries=1000))
    small = []
    for number in range(10_000):
        door.come("flood")
        if number % 2000 == 1999:
            small.append(door.come("small"))
    assert all(number in door.inside for number in small)
    assert (door.held("flood"), door.held("small")) == (995, 5)
    door.queue.check()


def test_the_newest_of_the_tenant_with_most_leaves() -> None:
    door = Door(QueueBounds(entries=6))
    numbers = [door.come(tenant) for tenant in "aabbba"]
    assert door.come("c")
    assert door.put_out == [numbers[5]]
    assert door.come("c")
    assert door.put_out == [numbers[5], numbers[4]]
    assert door.come("c") is None  # as much of c's waits as of a's and b's


def test_places_go_by_weight() -> None:
    door = Door(QueueBounds(entries=90))
    for _ in range(300):
        door.come("light")
        door.come("heavy", weight=2)
    assert (door.held("light"), door.held("heavy")) == (30, 60)


def test_tokens_and_bytes_are_shared_like_places() -> None:
    for kind in ("tokens", "size"):
        door = Door(QueueBounds(entries=100, tokens=1000, bytes=1000))
        for _ in range(50):
            door.come("flood", **{kind: 100})
        assert door.come("small", **{kind: 300})
        assert (door.held("flood"), door.held("small")) == (7, 1)
        door.queue.check()


def test_a_tenants_only_entry_always_has_a_place_and_is_never_put_out() -> None:
    door = Door(QueueBounds(entries=100, tokens=1000))
    for _ in range(10):
        door.come("flood", tokens=100)
    big = door.come("big", tokens=900)
    assert big and door.held("flood") == 1
    assert door.come("third", tokens=1) is None  # two only entries fill it
    assert door.inside[big] == "big"


def test_all_who_would_have_to_leave_leave_or_none() -> None:
    door = Door(QueueBounds(entries=100, tokens=1000))
    for _ in range(4):
        door.come("a", tokens=100)
    door.come("b", tokens=600)
    assert door.come("c", tokens=400) is None  # three of a's would not do
    assert door.put_out == []


def test_entries_without_tokens_are_not_put_out_for_tokens() -> None:
    door = Door(QueueBounds(entries=100, tokens=1000))
    numbers = [door.come("a", tokens=tokens) for tokens in (500, 500, 0, 0)]
    assert door.come("b", tokens=100)
    assert door.put_out == [numbers[1]]


def test_what_is_larger_than_a_bound_fits_where_nothing_else_is() -> None:
    door = Door(QueueBounds(tokens=100))
    assert door.come("a", tokens=500)
    assert door.come("b", tokens=1) is None
    door.queue.check()


def test_a_share_is_kept_to_except_by_an_only_entry() -> None:
    door = Door(QueueBounds(entries=10, tokens=100))
    assert door.queue.keeps_to(0.5, "a", Size(1, 90, 0))
    first = door.come("a", tokens=20)
    assert door.queue.keeps_to(0.5, "a", Size(1, 30, 0)) and not door.queue.keeps_to(0.5, "a", Size(1, 31, 0))
    assert door.queue.keeps_to(0.5, "a", Size(0, 80, 0), first)
    for _ in range(4):
        door.come("a", tokens=0)
    assert not door.queue.keeps_to(0.5, "a", Size(1, 0, 0))


def test_an_entry_of_several_sequences_leaves_one_by_one_and_is_not_put_out_meanwhile() -> None:
    door = Door(QueueBounds(entries=4))
    first = door.come("a")
    several = door.come("a", entries=3, tokens=50)
    assert several is not None
    assert door.queue.begin(several, 1) == Size(1)
    assert door.queue.used == Size(3, 51, 2)
    assert door.come("b") and door.come("b")
    assert door.come("c")
    assert door.put_out == [first, 4]  # a's older entry and b's newer one, not the one that has begun
    assert door.queue.begin(several, 2) == Size(2, 50, 1)
    assert several not in door.queue
    door.queue.check()


def test_an_entry_grows_where_it_stands() -> None:
    door = Door(QueueBounds(entries=4, tokens=100))
    mine = door.come("a", tokens=0)
    others = [door.come("b", tokens=50) for _ in range(2)]
    assert mine is not None
    assert door.queue.victims("a", 1, Size(0, 30, 0), mine) == [others[1]]
    door.queue.leave(others[1] or 0)
    door.queue.grow(mine, Size(0, 30, 0))
    assert door.queue.used == Size(2, 80, 2)
    door.queue.check()


arrival = st.tuples(st.sampled_from("abcd"), st.integers(0, 60), st.integers(1, 40), st.booleans())


@hypothesis_settings(deadline=None)
@given(st.lists(arrival, max_size=60), st.integers(4, 8))
def test_whoever_has_less_than_its_share_of_places_comes_in(
    arrivals: list[tuple[str, int, int, bool]], places: int
) -> None:
    door = Door(QueueBounds(entries=places, tokens=None, bytes=None))
    for tenant, tokens, size, leaves in arrivals:
        held, tenants = door.held(tenant), {*door.inside.values(), tenant}
        came = door.come(tenant, tokens=tokens, size=size)
        if (held + 1) * len(tenants) <= places:
            assert came is not None
        assert all(door.held(other) for other in tenants - {tenant}), "somebody lost all"
        if leaves and door.inside:
            number = next(iter(door.inside))
            door.queue.leave(number)
            del door.inside[number]
        door.queue.check()


@pytest.mark.parametrize("places", [1, 2, 3])
def test_more_tenants_than_places_keep_what_they_have(places: int) -> None:
    door = Door(QueueBounds(entries=places))
    came = [door.come(f"tenant {number}") for number in range(10)]
    assert [number is not None for number in came] == [True] * places + [False] * (10 - places)
