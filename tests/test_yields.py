"""yields.py: who gives its room back."""

from collections.abc import Mapping
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from fairstep.fairness.shares import Holding, Room, Shares
from fairstep.fairness.yields import choose_yield

WHOLE = Room(8, 80)
NONE = Room(0, 0)
ONE = Room(1, 1)


def shares_of(holdings: list[Holding], weights: Mapping[tuple[int, str], int]) -> Shares:
    def part(tier: int, tenant: str) -> tuple[int, int]:
        return weights[tier, tenant], sum(weight for (other, _), weight in weights.items() if other == tier)

    shares = Shares(WHOLE, part)
    for holding in holdings:
        shares.hold(holding)
    return shares


def held(tenants: str, tier: int = 0, *, first: int = 0, pages: int = 1) -> list[Holding]:
    return [Holding(first + place, first + place, tier, tenant, pages) for place, tenant in enumerate(tenants)]


def chosen(
    holdings: list[Holding],
    *,
    tenant: str = "z",
    tier: int = 0,
    need: Room = ONE,
    free: Room = NONE,
    weights: Mapping[tuple[int, str], int] | None = None,
) -> int | None:
    ones = {**{(holding.tier, holding.tenant): 1 for holding in holdings}, (tier, tenant): 1}
    victim = choose_yield(shares_of(holdings, {**ones, **(weights or {})}), tier, tenant, need, free)
    return victim.seq if victim else None


def test_the_youngest_of_the_tenant_furthest_over_yields() -> None:
    assert chosen(held("abbbbbaa")) == 5
    assert chosen(held("aaaaabbb")) == 4


def test_weights_tell_who_is_furthest_over() -> None:
    assert chosen(held("abbbbbaa"), weights={(0, "b"): 4}) == 7


def test_nobody_yields_for_a_tenant_at_its_share() -> None:
    assert chosen(held("aaaazzzz"), tenant="z") is None
    assert chosen(held("aaaaazzz"), tenant="z") == 4


def test_nobody_yields_where_there_is_room_or_room_is_coming() -> None:
    assert chosen(held("aaaaaaa"), free=ONE) is None
    leaving = held("aaaaaaaa")
    leaving[7] = replace(leaving[7], leaving=True)
    assert chosen(leaving) is None
    assert chosen(leaving, need=Room(1, 2)) == 6


def test_a_tenant_stays_at_or_above_its_share() -> None:
    assert chosen(held("aabbccdd")) is None  # shares of 1.6
    assert chosen(held("aaabbccd")) == 2
    assert chosen(held("aaab"), weights={(0, "z"): 1, (0, "x"): 1}) == 2


def test_the_oldest_of_all_never_yields_and_nobody_twice() -> None:
    assert chosen([Holding(0, 0, 0, "a", 70)], need=Room(1, 20), free=Room(7, 10)) is None
    twice = [replace(holding, spared=holding.seq > 4) for holding in held("aaaaaaaa")]
    assert chosen(twice) == 4


def test_lower_tiers_are_asked_first_and_need_not_be_over() -> None:
    assert chosen([*held("aaaaa"), *held("bc", 1, first=5), *held("d", 2, first=7)]) == 7
    assert chosen([*held("aaaaaa"), *held("bc", 1, first=6)]) == 7
    assert chosen(held("bbbbbbbb", 1)) == 7


def test_a_higher_tier_is_never_asked() -> None:
    assert chosen(held("aaaaaaaa"), tier=1) is None


def test_nobody_yields_in_vain() -> None:
    large = held("aaaaaaaa", pages=10)
    assert chosen(large, need=Room(1, 35)) == 7
    assert chosen(large, need=Room(1, 45)) is None


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.integers(0, 1), st.integers(1, 20), st.booleans(), st.booleans()),
        max_size=8,
    ),
    st.tuples(*[st.integers(1, 4)] * 6),
    st.integers(0, 1),
    st.integers(1, 40),
)
def test_every_rule_holds_for_whoever_is_chosen(
    held: list[tuple[str, int, int, bool, bool]], weights: tuple[int, ...], tier: int, pages: int
) -> None:
    holdings = [
        Holding(seq, seq, of, tenant, size, spared, leaving)
        for seq, (tenant, of, size, spared, leaving) in enumerate(held)
    ]
    part = {(of, tenant): weights[of * 3 + "abc".index(tenant)] for of in (0, 1) for tenant in "abc"}
    shares = shares_of(holdings, part)
    used = sum(holding.pages for holding in holdings)
    free = Room(8 - len(holdings), max(0, 80 - used))
    need = Room(1, pages)
    victim = choose_yield(shares, tier, "a", need, free)
    if victim is None:
        return
    assert shares.is_under(tier, "a") and not free.covers(need)
    assert (victim.tier, victim.tenant) != (tier, "a") and victim.tier >= tier
    assert victim.seq != 0 and not victim.spared and not victim.leaving
    younger = [h for h in holdings if (h.tier, h.tenant) == (victim.tier, victim.tenant) and h.seq > victim.seq]
    if victim.tier == tier:
        shares.drop(victim.seq)
        assert not shares.is_under(victim.tier, victim.tenant)
    else:
        assert all(h.spared or h.leaving for h in younger)
        assert victim.tier == max(h.tier for h in holdings if h.seq and not h.spared and not h.leaving)
