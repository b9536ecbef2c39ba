"""What a waiting room shows at a moment: the accounts of tenants, and each tier's queue with what is foreseen of it.

Nobody goes through the queues for it: it costs some microseconds a tenant, whatever waits.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import nlargest

from ..admission.drain import Claim, Drain
from ..fairness.fair_room import FairRoom
from ..fairness.policies import BYPASS
from ..fairness.tier_room import Standing
from ..stats import AccountStats


@dataclass(frozen=True, slots=True)
class Queue:
    """A tier as TierStats says. oldest: the number of the sequence that came first of those that wait."""

    accounts: tuple[AccountStats, ...]
    waiting: int
    oldest: int | None
    queued: int
    bound: int
    predicted_wait: float | None
    pressure: float | None


NOTHING_WAITS = Queue((), 0, None, 0, 0, 0.0, 0.0)
Price = Callable[[Standing], int]
_Tenant = tuple[Standing, Claim]


class RoomReader:
    """Reads a room. name_of: under which name a tenant is shown. tier_name: the same of tiers.

    price: what a tenant's waiting sequences are expected to cost by now; by default what it was when they came.
    """

    def __init__(
        self,
        room: FairRoom,
        name_of: Callable[[str], str],
        tier_name: Callable[[int], str],
        price: Price = lambda standing: standing.queued,
    ) -> None:
        self._room = room
        self._name_of = name_of
        self._tier_name = tier_name
        self._price = price

    def queues(self, rate: float | None, now: float) -> Mapping[int, Queue]:
        """Each tier that was ever waited in. rate: units served a second; None: not known yet."""
        tiers: dict[int, list[_Tenant]] = {}
        for standing in self._room.standings():
            claim = Claim(standing.weight, self._price(standing), standing.debt)
            tiers.setdefault(standing.tier, []).append((standing, claim))
        queues, before = {}, 0
        for number in sorted(tiers):
            drain = Drain((claim for _, claim in tiers[number]), before=before, quantum=self._room.quantum)
            queues[number] = self._queue(number, tiers[number], drain, rate, now)
            before = drain.total
        return queues

    def _queue(self, number: int, tenants: Sequence[_Tenant], drain: Drain, rate: float | None, now: float) -> Queue:
        queued = sum(claim.cost for _, claim in tenants)
        late = self._late(number, tenants, drain, rate, now) if rate else None
        return Queue(
            accounts=tuple(self._accounts(number, tenants, drain, rate)),
            waiting=sum(standing.waiting for standing, _ in tenants),
            oldest=self._room.book(number).oldest,
            queued=queued,
            bound=2 * (1 + BYPASS) * self._room.largest_quantum + _two_largest_swings(each for each, _ in tenants),
            predicted_wait=_seconds(drain.total if queued else 0, rate),
            pressure=(late if late is None else late / queued) if queued else 0.0,
        )

    def _accounts(
        self, number: int, tenants: Iterable[_Tenant], drain: Drain, rate: float | None
    ) -> Iterable[AccountStats]:
        shown: dict[str, list[_Tenant]] = {}
        for tenant in tenants:
            shown.setdefault(self._name_of(tenant[0].tenant), []).append(tenant)
        for name, those in shown.items():
            standings = [standing for standing, _ in those]
            units = max(drain.units_before(claim, claim.cost) for _, claim in those)
            yield AccountStats(
                tier=self._tier_name(number),
                tenant=name,
                weight=sum(standing.weight for standing in standings),
                share=sum(standing.share for standing in standings),
                waiting=sum(standing.waiting for standing in standings),
                running=sum(standing.running for standing in standings),
                queued=sum(claim.cost for _, claim in those),
                charged=sum(standing.served for standing in standings),
                debt=sum(standing.debt for standing in standings),
                largest_charge=max(standing.largest_charge for standing in standings),
                largest_refund=max(standing.largest_refund for standing in standings),
                predicted_wait=_seconds(units, rate),
            )

    def _late(self, number: int, tenants: Iterable[_Tenant], drain: Drain, rate: float, now: float) -> float:
        """Units that are due before they are expected to begin, a tenant's more urgent ones first."""
        book = self._room.book(number)
        late = 0.0
        for standing, claim in tenants:
            due = list(book.due(standing.tenant))
            if not due or now + drain.units_before(claim, claim.cost) / rate <= due[0][0]:
                continue  # even its last one begins before its first is due
            dearer = claim.cost / standing.queued  # than when they came
            own, begins = 0.0, now + drain.units_before(claim, 0) / rate
            for deadline, units in due:
                own += units * dearer
                ends = now + drain.units_before(claim, own) / rate
                late += units * dearer * _part_after(deadline, begins, ends)
                begins = ends
        return late


def _part_after(deadline: float, begins: float, ends: float) -> float:
    """What part of a stretch of time lies after a deadline."""
    if ends <= deadline:
        return 0.0
    return min(1.0, (ends - deadline) / (ends - begins)) if begins < deadline else 1.0


def _seconds(units: float, rate: float | None) -> float | None:
    """Nothing takes no time, whatever the rate."""
    if not units:
        return 0.0
    return units / rate if rate else None


def _two_largest_swings(standings: Iterable[Standing]) -> int:
    """The two largest of (U + R) / w, rounded up each."""
    return sum(nlargest(2, (-(-(each.largest_charge + each.largest_refund) // each.weight) for each in standings)))
