"""How long a request waits: the tenants' turns played forward, with what is usual for each. Pure.

The turns are copies of the real ones. Around them all is coarse: a tenant's sequences are alike, what it sends comes
evenly, seats and pages come free as sequences end. It knows share caps, and yields for who has nothing running.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Protocol

TURNS = 200  # that are played; what is not reached then goes on at the pace of the last
FEW_TURNS = 24  # the least of them, with many tenants
LOOKED_AT = 64  # tenants that are looked at each time a sequence ends, on average: with more, now and then
LONGEST = 3600.0  # seconds: nobody waits longer

End = tuple[float, float, int, str]  # in so many seconds a sequence gives back so many pages, of a tier's tenant
Queue = tuple[int, str]


class Turns(Protocol):
    """Whose turn it is in one tier: fairness/turns.py, as far as it is asked here."""

    def enter(self, tenant: str, weight: int) -> None: ...
    def leave(self, tenant: str) -> None: ...
    def first(self, may: Callable[[str], bool], within: Callable[[str], bool] = ...) -> str | None: ...
    def start(self, tenant: str) -> None: ...
    def charge(self, tenant: str, units: int) -> None: ...


def no_one(seconds: float) -> float:
    """Nobody comes, or goes away, in so many seconds."""
    return 0.0


@dataclass(slots=True, kw_only=True)
class Contender:
    """A tenant in a tier, and what a sequence of its usually is.

    waiting: sequences; of the one who asks those before it. coming: more of them a second. gone: of so many seconds,
    how many of those waiting have given up by then, the first ones of the queue. cost: units that one is charged.
    seconds, pages: that one runs, and holds. in_turn: the turns know that it waits.
    """

    tenant: str
    tier: int = 0
    weight: int = 1
    waiting: float = 0.0
    coming: float = 0.0
    gone: Callable[[float], float] = no_one
    cost: int = 0
    seconds: float = 0.0
    pages: float = 1.0
    in_turn: bool = False
    begun: int = field(default=0, init=False)
    taken: float = field(default=0.0, init=False)
    seats_held: int = field(default=0, init=False)
    pages_held: float = field(default=0.0, init=False)

    @property
    def queue(self) -> Queue:
        return self.tier, self.tenant

    def queued(self, now: float) -> float:
        """Those that wait now, of those that waited at first."""
        return self.waiting - max(self.taken, self.gone(now))

    def begin(self, now: float) -> None:
        """The first one that waits begins."""
        self.begun += 1
        self.taken = max(self.taken, self.gone(now)) + 1
        self.hold(1, self.pages)

    def hold(self, seats: int, pages: float) -> None:
        self.seats_held += seats
        self.pages_held += pages


@dataclass(slots=True, kw_only=True)
class Stage:
    """Where they meet: seats and pages, all of them and those free (which may be negative); what runs.

    turns: by tier. cap: times its share that a tenant may hold while others wait; None: tenants have no shares, and
    don't yield. step: seconds of one.
    """

    turns: Mapping[int, Turns]
    seats: int
    pages: int
    free_seats: float
    free_pages: float
    running: Iterable[End] = ()
    cap: float | None = None
    step: float = 0.0

    def fits(self, pages: float) -> bool:
        return self.free_seats >= 1 and self.free_pages >= pages

    def part(self, seats: float, pages: float) -> float:
        """Of all there is, by the scarcer of the two."""
        return max(seats / self.seats, pages / self.pages)


class Rehearsal:
    """One play, for the first sequence of `mine` that is not before it.

    pages: what that one needs to begin. overtaking: sequences of its tenant that come in so many seconds and go before.
    """

    def __init__(
        self,
        mine: Contender,
        pages: int,
        others: Iterable[Contender],
        stage: Stage,
        overtaking: Callable[[float], float] = no_one,
    ) -> None:
        self._mine = mine
        self._pages = pages
        self._overtaking = overtaking
        self._stage = stage
        self._of = {each.queue: each for each in (mine, *others)}
        self._weights = dict.fromkeys({tier for tier, _ in self._of}, 0)  # of those that wait or run, by tier
        self._in_turn = dict.fromkeys(self._weights, 0)  # how many wait
        self._holders: dict[Queue, Contender] = {}  # that have something running
        self._ends = list(stage.running)
        heapify(self._ends)
        for _, held, tier, tenant in self._ends:
            if (contender := self._of.get((tier, tenant))) is not None:
                contender.hold(1, held)
                self._holders[contender.queue] = contender
        for each in self._of.values():
            self._in_turn[each.tier] += each.in_turn
            self._weights[each.tier] += each.weight * (each.in_turn or each.seats_held > 0)
        self._now = 0.0
        self._begun = 0
        self._half = 0.0, 0, 0  # by then: seconds, sequences begun, its own tenant's among them
        self._ended = 0

    def wait(self) -> float:
        """Seconds until it begins."""
        for each in self._of.values():
            self._line_up(each)
        turns = max(FEW_TURNS, min(TURNS, TURNS * LOOKED_AT // len(self._of)))
        for turn in range(turns):
            if turn == turns // 2:
                self._half = self._now, self._begun, self._mine.begun
            contender = self._next()
            if not self._stage.fits(self._need(contender)):
                claimant = self._yielded_for() if self._stage.cap else None
                if claimant is None and not self._go_on():
                    return self._now
                if claimant is None:
                    continue
                contender = claimant
            if contender is self._mine and self._before < 1.0:
                return self._now
            self._begin(contender)
        return self._beyond()

    def _beyond(self) -> float:
        """What was not reached: its tenant goes on as in the second half, or gets its part of all that began in it."""
        at, all_begun, mine_begun = self._half
        part = (self._begun - all_begun) * self._mine.weight / self._weights[self._mine.tier]
        mine = max(self._mine.begun - mine_begun, part)
        return min(LONGEST, self._now + (self._before + 1.0) * (self._now - at) / mine) if mine else LONGEST

    # --- whose turn

    @property
    def _before(self) -> float:
        """Sequences of its own tenant that go before it and have not begun."""
        mine, came = self._mine, self._overtaking(self._now)
        return max(0.0, mine.queued(self._now)) + max(0.0, came - max(0.0, mine.taken - mine.waiting))

    def _need(self, contender: Contender) -> float:
        return self._pages if contender is self._mine and self._before < 1.0 else contender.pages

    def _line_up(self, contender: Contender) -> None:
        """Let it take part in the turns if it has somebody waiting by now."""
        mine = contender is self._mine
        waits = mine or contender.queued(self._now) + contender.coming * self._now >= 1.0
        if waits == contender.in_turn:
            return
        turns = self._stage.turns[contender.tier]
        if waits:
            turns.enter(contender.tenant, contender.weight)
        else:
            turns.leave(contender.tenant)
        contender.in_turn = waits
        self._in_turn[contender.tier] += 1 if waits else -1
        if not contender.seats_held:
            self._weights[contender.tier] += contender.weight if waits else -contender.weight

    def _next(self) -> Contender:
        """Whose turn it is, in the highest tier that has anybody."""
        tier = min(tier for tier, waiting in self._in_turn.items() if waiting)
        within = (lambda name: self._is_within_cap(self._of[tier, name])) if self._stage.cap else _anybody
        name = self._stage.turns[tier].first(_anybody, within)
        assert name is not None, "somebody waits"
        return self._of[tier, name]

    def _begin(self, contender: Contender) -> None:
        turns = self._stage.turns[contender.tier]
        turns.start(contender.tenant)
        turns.charge(contender.tenant, contender.cost)
        contender.begin(self._now)
        self._holders[contender.queue] = contender
        self._begun += 1
        self._stage.free_seats -= 1
        self._stage.free_pages -= contender.pages
        heappush(self._ends, (self._now + contender.seconds, contender.pages, *contender.queue))
        self._line_up(contender)

    # --- shares

    def _over(self, contender: Contender, seats: float, pages: float) -> float:
        """So much room, by the tenant's share of everything."""
        return self._stage.part(seats, pages) * self._weights[contender.tier] / contender.weight

    def _is_within_cap(self, contender: Contender) -> bool:
        seats, pages = contender.seats_held + 1, contender.pages_held + contender.pages
        return seats <= 1 or self._stage.cap is None or self._over(contender, seats, pages) <= self._stage.cap

    def _yielded_for(self) -> Contender | None:
        """Who has nothing running and gets the room of another's sequences, if anybody; one yields a step."""
        if not self._could_yield():
            return None
        for tier in sorted(tier for tier, waiting in self._in_turn.items() if waiting):
            name = self._stage.turns[tier].first(lambda name: not self._of[tier, name].seats_held)  # noqa: B023
            given = self._yields(self._of[tier, name]) if name is not None else []
            for end in given:
                self._now += self._stage.step
                self._ends.remove(end)
                self._release(end)
                self._of[end[2], end[3]].waiting += 1
            if name is not None and given:
                heapify(self._ends)
                return self._of[tier, name]
        return None

    def _could_yield(self) -> bool:
        """Whether anybody could be asked: a quick look before a thorough one."""
        return any(each.seats_held > 1 or each.tier > self._mine.tier for each in self._holders.values())

    def _yields(self, claimant: Contender) -> list[End]:
        """Sequences that are asked for their room, or none if they could not make enough."""
        seats, lacking = self._stage.free_seats, self._need(claimant) - self._stage.free_pages
        given: list[End] = []
        for giver in self._givers(claimant):
            left_seats, left_pages = giver.seats_held, giver.pages_held
            for end in sorted((end for end in self._ends if (end[2], end[3]) == giver.queue), reverse=True):
                left_seats, left_pages = left_seats - 1, left_pages - end[1]
                if giver.tier == claimant.tier and self._over(giver, left_seats, left_pages) < 1.0:
                    break
                given.append(end)
                seats, lacking = seats + 1, lacking - end[1]
                if seats >= 1 and lacking <= 0.0:
                    return given
        return []

    def _givers(self, claimant: Contender) -> list[Contender]:
        """Who may be asked, the lowest tier and the one furthest over its share first."""
        over = {
            each.queue: self._over(each, each.seats_held, each.pages_held)
            for each in self._holders.values()
            if each.seats_held > (each.tier == claimant.tier) and each.tier >= claimant.tier
        }
        asked = [queue for queue, share in over.items() if queue[0] > claimant.tier or share > 1.0]
        return [self._of[queue] for queue in sorted(asked, key=lambda queue: (queue[0], over[queue]), reverse=True)]

    # --- time

    def _go_on(self) -> bool:
        """Time passes up to the next end; False if nothing runs."""
        if not self._ends:
            return False
        end = heappop(self._ends)
        self._now = max(self._now, end[0])
        self._release(end)
        self._ended += 1
        if self._ended % max(1, len(self._of) // LOOKED_AT) == 0:
            for each in self._of.values():
                self._line_up(each)
        return True

    def _release(self, end: End) -> None:
        _, pages, tier, tenant = end
        self._stage.free_seats += 1
        self._stage.free_pages += pages
        if (contender := self._of.get((tier, tenant))) is None:
            return
        contender.hold(-1, -pages)
        if contender.seats_held:
            return
        del self._holders[contender.queue]
        if not contender.in_turn:
            self._weights[tier] -= contender.weight


def _anybody(name: str) -> bool:
    return True
