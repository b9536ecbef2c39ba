"""Seated floods yield: which running sequence gives its room back, so that a tenant under its share can begin.

Pure, and decides only: the caller orders the yield, at most one a step, and keeps the room for whom it was made.
"""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from .shares import NOTHING, Holding, Room, Shares

LEAST = Room(1, 1)  # what a sequence holds at least

MayAsk = Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class _Offer:
    """What a tenant could give: its sequences, the youngest first. held: what it holds without those on their way."""

    tier: int
    tenant: str
    held: Room
    holdings: list[Holding]

    @property
    def room(self) -> Room:
        return sum((holding.room for holding in self.holdings), NOTHING)


def somebody_could(shares: Shares, tier: int) -> bool:
    """Whether anybody could be asked for a tenant of this tier or a lower one: a quick look before a thorough one."""
    return any(other > tier or _could_spare(shares, other, name) for other, name in shares.tenants())


def choose_yield(
    shares: Shares, tier: int, tenant: str, need: Room, free: Room, may_ask: MayAsk = lambda name: True
) -> Holding | None:
    """The sequence that yields next for the tenant's next one, or None.

    None if the tenant is not under its share; if what is free, or is on its way back already, covers the need; or if
    all who are asked could not cover it together. Asked are lower tiers, the lowest first, then tenants of the same
    tier that may be (may_ask) and stay at or above their share; among tenants of a tier the one furthest over its
    share; of its sequences the youngest. Never the oldest of all, and none that has yielded before.
    """
    room = free + shares.coming
    if not shares.is_under(tier, tenant) or room.covers(need):
        return None
    offers = _offers(shares, tier, tenant, may_ask)
    if not sum((offer.room for offer in offers), room).covers(need):
        return None
    return min(offers, key=lambda offer: _rank(shares, offer)).holdings[0]


def _offers(shares: Shares, tier: int, tenant: str, may_ask: MayAsk) -> list[_Offer]:
    oldest = min(shares.holdings(), key=_age, default=None)
    offers = []
    for other, name in shares.tenants():
        if other > tier:
            offers.append(_offer(shares, other, name, oldest, keeps_share=False))
        elif other == tier and name != tenant and shares.is_over(tier, name) and may_ask(name):
            offers.append(_offer(shares, tier, name, oldest, keeps_share=True))
    return [offer for offer in offers if offer.holdings]


def _offer(shares: Shares, tier: int, tenant: str, oldest: Holding | None, *, keeps_share: bool) -> _Offer:
    """What a tenant can give; keeps_share: and still hold its share."""
    holdings = sorted(shares.holdings_of(tier, tenant), key=_age, reverse=True)
    held = sum((holding.room for holding in holdings if not holding.leaving), NOTHING)
    given, left = [], held
    for holding in holdings:
        if holding is oldest or holding.spared or holding.leaving:
            continue
        if not keeps_share or shares.compare(tier, tenant, left - holding.room) >= 0:
            left -= holding.room
            given.append(holding)
    return _Offer(tier, tenant, held, given)


def _rank(shares: Shares, offer: _Offer) -> tuple[int, Fraction, int, int]:
    """The lowest tier first, then the tenant furthest over, then the youngest."""
    weight, _ = shares.part(offer.tier, offer.tenant)
    first = offer.holdings[0]
    return -offer.tier, -Fraction(shares.dominant(offer.held), weight), -first.order, -first.seq


def _could_spare(shares: Shares, tier: int, tenant: str) -> bool:
    """Whether a tenant could keep its share and give the least that a sequence holds; without any it has no share."""
    held = shares.held(tier, tenant)
    return held.seats > 1 and shares.compare(tier, tenant, held - LEAST) >= 0


def _age(holding: Holding) -> tuple[int, int]:
    return holding.order, holding.seq
