"""Who holds how much of the machine, and how much of it is a tenant's share: its weight by those of its whole tier.

Pure. What a tenant holds counts by the scarcer of seats and pages for it, its dominant part (Ghodsi et al., "Dominant
Resource Fairness", NSDI 2011). All in integers: parts are compared crosswise, never divided.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass

import msgspec

THOUSAND = 1000
CAP = 1500  # a tenant may hold so many thousandths of its share while others wait

Part = Callable[[int, str], tuple[int, int]]


class Room(msgspec.Struct, frozen=True, gc=False):  # made for each tenant that is asked: a dataclass takes too long
    """Seats and pages: what there is, what is free, what a sequence needs."""

    seats: int
    pages: int

    def covers(self, need: "Room") -> bool:
        return self.seats >= need.seats and self.pages >= need.pages

    def __add__(self, other: "Room") -> "Room":
        return Room(self.seats + other.seats, self.pages + other.pages)

    def __sub__(self, other: "Room") -> "Room":
        return Room(self.seats - other.seats, self.pages - other.pages)


NOTHING = Room(0, 0)


@dataclass(frozen=True, slots=True)
class Holding:
    """A sequence that has a seat, or was sent for one. order: the smallest came first.

    spared: it has yielded before, and will not again. leaving: it was asked to yield, or ends with its next step.
    """

    seq: int
    order: int
    tier: int
    tenant: str
    pages: int
    spared: bool = False
    leaving: bool = False

    @property
    def room(self) -> Room:
        return Room(1, self.pages)


class Shares:
    """Owner of what is held. part: a tenant's weight, and that of all of its tier that wait or run (FairRoom.part).

    coming: the room of sequences that are leaving and still hold it.
    """

    def __init__(self, whole: Room, part: Part, *, cap: int = CAP) -> None:
        assert whole.seats > 0 and whole.pages > 0, "there is nothing to share"
        assert cap >= THOUSAND, "a cap below the share would leave room that nobody may have"
        self.whole = whole
        self.part = part
        self.coming = NOTHING
        self._cap = cap
        self._everything = whole.seats * whole.pages
        self._holdings: dict[int, Holding] = {}
        self._of: dict[tuple[int, str], dict[int, Holding]] = {}  # by tier and tenant; none is empty
        self._held: dict[tuple[int, str], Room] = {}

    def resize(self, whole: Room) -> None:
        """There is so much to share from now on; where there is nothing, shares stay what they were."""
        if whole.seats and whole.pages:
            self.whole, self._everything = whole, whole.seats * whole.pages

    def hold(self, holding: Holding) -> None:
        """A sequence holds room from now on, or another amount than before."""
        self.drop(holding.seq)
        key = holding.tier, holding.tenant
        self._holdings[holding.seq] = self._of.setdefault(key, {})[holding.seq] = holding
        self._held[key] = self.held(*key) + holding.room
        if holding.leaving:
            self.coming += holding.room

    def drop(self, seq: int) -> None:
        """A sequence holds nothing any more; it may have held nothing."""
        holding = self._holdings.pop(seq, None)
        if holding is None:
            return
        key = holding.tier, holding.tenant
        del self._of[key][seq]
        self._held[key] -= holding.room
        if not self._of[key]:
            del self._of[key], self._held[key]
        if holding.leaving:
            self.coming -= holding.room

    def holding(self, seq: int) -> Holding | None:
        """What a sequence holds."""
        return self._holdings.get(seq)

    def holdings(self) -> Collection[Holding]:
        """All sequences that hold room."""
        return self._holdings.values()

    def holdings_of(self, tier: int, tenant: str) -> Collection[Holding]:
        """A tenant's sequences that hold room."""
        return self._of[tier, tenant].values() if (tier, tenant) in self._of else ()

    def tenants(self) -> Collection[tuple[int, str]]:
        """Tiers and tenants that hold room."""
        return self._held.keys()

    def held(self, tier: int, tenant: str) -> Room:
        """What a tenant holds in a tier."""
        return self._held.get((tier, tenant), NOTHING)

    def dominant(self, room: Room) -> int:
        """The larger of the parts of seats and pages, by a whole of seats times pages."""
        return self._dominant(room.seats, room.pages)

    def is_within_cap(self, tier: int, tenant: str, need: Room) -> bool:
        """Whether a tenant keeps to the share cap with `need` more. Its first sequence always does."""
        held = self._held.get((tier, tenant))
        if held is None:
            return True
        weight, weights = self.part(tier, tenant)
        seats, pages = held.seats + need.seats, held.pages + need.pages
        return self._dominant(seats, pages) * weights * THOUSAND <= self._cap * weight * self._everything

    def compare(self, tier: int, tenant: str, held: Room) -> int:
        """What `held` would be beside the tenant's share: positive above it, 0 at it, negative under it."""
        weight, weights = self.part(tier, tenant)
        return self._dominant(held.seats, held.pages) * weights - weight * self._everything

    def is_under(self, tier: int, tenant: str) -> bool:
        """Whether a tenant holds less than its share."""
        return self.compare(tier, tenant, self.held(tier, tenant)) < 0

    def is_over(self, tier: int, tenant: str) -> bool:
        """Whether a tenant holds more than its share."""
        return self.compare(tier, tenant, self.held(tier, tenant)) > 0

    def check(self) -> None:
        """Assert that sums and sequences agree."""
        of: dict[tuple[int, str], dict[int, Holding]] = {}
        for holding in self._holdings.values():
            of.setdefault((holding.tier, holding.tenant), {})[holding.seq] = holding
        assert of == self._of, "sequences and tenants disagree"
        held = {key: sum((holding.room for holding in mine.values()), NOTHING) for key, mine in of.items()}
        assert held == self._held, "what tenants hold is miscounted"
        leaving = (holding.room for holding in self._holdings.values() if holding.leaving)
        assert sum(leaving, NOTHING) == self.coming, "what is coming is miscounted"

    def _dominant(self, seats: int, pages: int) -> int:
        return max(seats * self.whole.pages, pages * self.whole.seats)
