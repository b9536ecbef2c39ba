"""tiers.py: strict, unless a lower tier is owed its minimum share."""

from hypothesis import given
from hypothesis import strategies as st

from fairstep.fairness.tiers import Tiers


def served(tiers: Tiers, units: dict[int, int], count: int) -> list[int]:
    """Units each tier got while all wait throughout."""
    got = dict.fromkeys(units, 0)
    for _ in range(count):
        tier = tiers.order(list(units))[0]
        tiers.served(tier, units[tier], list(units))
        tiers.check()
        got[tier] += units[tier]
    return list(got.values())


def test_tiers_are_strict_by_default() -> None:
    assert served(Tiers({}, 100), {0: 10, 1: 10, 2: 10}, 50) == [500, 0, 0]


def test_a_minimum_share_is_kept_while_higher_tiers_wait() -> None:
    high, low = served(Tiers({1: 100}, 1000), {0: 10, 1: 10}, 1000)
    assert abs(low - 1000) <= 20 and high + low == 10_000


@given(st.integers(1, 400), st.integers(1, 400), st.integers(1, 50), st.integers(1, 50), st.integers(1, 50))
def test_each_tier_gets_its_minimum_up_to_one_charge(one: int, two: int, a: int, b: int, c: int) -> None:
    got = served(Tiers({1: one, 2: two}, 10**6), {0: a, 1: b, 2: c}, 2000)
    for low, least in zip(got[1:], (one, two), strict=True):
        assert abs(low - sum(got) * least / 1000) <= 2 * max(a, b, c)


def test_new_minimum_shares_count_at_once_and_what_is_owed_stays() -> None:
    tiers = Tiers({1: 100, 2: 100}, 1000)
    tiers.served(0, 100, [0, 1, 2])
    tiers.set_least({1: 500, 3: 50})
    assert [tiers.owed(tier) for tier in (1, 2, 3)] == [10, 0, 0]
    tiers.served(0, 100, [0, 1, 2, 3])
    assert [tiers.owed(tier) for tier in (1, 2, 3)] == [60, 0, 5]
    tiers.set_least({})
    assert tiers.order([0, 1, 2, 3]) == [0, 1, 2, 3]


def test_work_in_its_own_order_pays_nothing() -> None:
    tiers = Tiers({1: 100}, 100)
    for _ in range(50):
        tiers.served(1, 10, [1])
    assert tiers.owed(1) == 0
    tiers.served(0, 10, [0, 1])
    assert tiers.order([0, 1]) == [1, 0]


def test_what_is_owed_lapses_when_nobody_waits_and_stays_small_while_it_cannot_be_served() -> None:
    tiers = Tiers({1: 500}, 100)
    for _ in range(1000):
        tiers.served(0, 10, [0, 1])
    tiers.check()
    assert tiers.owed(1) == 100
    tiers.left(1)
    assert tiers.owed(1) == 0
    assert tiers.order([0, 1]) == [0, 1]
