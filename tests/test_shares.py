"""shares.py: what is held, by share and cap."""

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from fairstep.fairness.shares import Holding, Room, Shares


def shares_of(weights: Mapping[str, int], *holdings: Holding, whole: Room = Room(8, 80)) -> Shares:  # noqa: B008
    shares = Shares(whole, lambda tier, tenant: (weights[tenant], sum(weights.values())))
    for holding in holdings:
        shares.hold(holding)
    shares.check()
    return shares


def held(tenant: str, count: int, pages: int = 1, *, first: int = 0) -> list[Holding]:
    return [Holding(first + i, first + i, 0, tenant, pages) for i in range(count)]


def test_a_share_is_the_weight_by_all_weights() -> None:
    shares = shares_of({"a": 1, "b": 3}, *held("a", 2), *held("b", 6, first=10))
    assert not any((shares.is_over(0, "a"), shares.is_under(0, "a"), shares.is_over(0, "b"), shares.is_under(0, "b")))
    shares.hold(Holding(5, 5, 0, "a", 1))
    shares.drop(10)
    assert shares.is_over(0, "a") and shares.is_under(0, "b")


def test_the_scarcer_of_seats_and_pages_counts() -> None:
    shares = shares_of({"a": 1, "b": 1}, Holding(1, 1, 0, "a", 41), *held("b", 5, first=10))
    assert shares.is_over(0, "a") and shares.is_over(0, "b")


def test_a_tenant_may_hold_half_as_much_again_as_its_share() -> None:
    shares = shares_of({"a": 1, "b": 1}, *held("a", 5))
    assert shares.is_within_cap(0, "a", Room(1, 1))
    shares.hold(Holding(5, 5, 0, "a", 1))
    assert not shares.is_within_cap(0, "a", Room(1, 1))
    assert not shares.is_within_cap(0, "b", Room(1, 61)) or shares.held(0, "b") == Room(0, 0)


def test_a_first_sequence_is_always_within_the_cap_and_a_lone_tenant_too() -> None:
    assert shares_of({"a": 1, "b": 9}).is_within_cap(0, "a", Room(1, 80))
    assert shares_of({"a": 1}, *held("a", 7)).is_within_cap(0, "a", Room(1, 73))


def test_a_sequence_that_grows_counts_with_what_it_holds_now() -> None:
    shares = shares_of({"a": 1, "b": 1}, Holding(1, 1, 0, "a", 10))
    shares.hold(Holding(1, 1, 0, "a", 60))
    assert shares.held(0, "a") == Room(1, 60)
    shares.drop(1)
    shares.drop(1)
    shares.check()
    assert list(shares.holdings()) == [] and shares.held(0, "a") == Room(0, 0)


@given(st.lists(st.tuples(st.integers(0, 9), st.sampled_from("ab"), st.integers(1, 20)), max_size=30))
def test_sums_follow_every_change(changes: list[tuple[int, str, int]]) -> None:
    shares = shares_of({"a": 1, "b": 2})
    for seq, tenant, pages in changes:
        if pages > 15:
            shares.drop(seq)
        else:
            shares.hold(Holding(seq, seq, 0, tenant, pages, leaving=pages % 3 == 0))
        shares.check()
