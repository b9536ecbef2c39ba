"""The workers as the front knows them: the room that each has left, what was sent to it and what is to be sent. Pure.

A worker that died and was started again is another one here, with a number of its own: what the dead one said too late
finds no station.
"""

from collections.abc import Iterator

from .door import Admit, Gauges, Orders, Ready, Report
from .fairness.shares import NOTHING, Room
from .headroom import RoomLeft


class Station:
    """One worker. seqs: the sequences it holds, or was sent. reserved: what waits in the room is not sent here.

    leaves: nothing is sent here any more; once it is clear, it goes.
    """

    def __init__(self, number: int, info: Ready) -> None:
        self.number = number
        self.info = info
        self.left = RoomLeft(info.seats, info.pages)
        self.gauges = Gauges(pages_total=info.pages)
        self.seqs: set[int] = set()
        self.reserved = False
        self.leaves = False
        self.ordered = 0  # the number of the last Orders
        self._heard = 0  # that of the last Report
        self._cancels: list[tuple[int, int]] = []
        self._returns: list[tuple[int, int]] = []
        self._admits: list[Admit] = []

    @property
    def is_clear(self) -> bool:
        """Whether the worker holds nothing, and has said so."""
        return not self.seqs and self.left.free.covers(Room(self.info.seats, self.info.pages))

    def send(self, admit: Admit, pages: int) -> None:
        """Admit with the next Orders."""
        self.left.send(self.ordered + 1, pages)
        self.seqs.add(admit.seq)
        self._admits.append(admit)

    def cancel(self, seq: int, attempt: int) -> None:
        """Cancel with the next Orders."""
        self._cancels.append((seq, attempt))

    def call_back(self, seq: int, attempt: int) -> None:
        """Ask for its seat with the next Orders."""
        self._returns.append((seq, attempt))

    def orders(self) -> Orders | None:
        """What is to be sent now; None if nothing is."""
        if not self._cancels and not self._returns and not self._admits:
            return None
        self.ordered += 1
        orders = Orders(self.ordered, tuple(self._cancels), tuple(self._returns), tuple(self._admits))
        self._cancels, self._returns, self._admits = [], [], []
        return orders

    def is_new(self, report: Report) -> bool:
        """Whether a Report was not taken before."""
        return not report.number or report.number > self._heard

    def report(self, report: Report) -> None:
        """Take what a Report says of the worker itself."""
        self._heard = report.number
        self.gauges = report.gauges
        self.left.report(report.orders, report.headroom)


class Stations:
    """Owner of the workers that are ready. It answers for all of them as one Room does: covers()."""

    def __init__(self) -> None:
        self._stations: dict[int, Station] = {}

    def __iter__(self) -> Iterator[Station]:
        return iter(self._stations.values())

    def __len__(self) -> int:
        return len(self._stations)

    def __getitem__(self, number: int) -> Station:
        return self._stations[number]

    def get(self, number: int | None) -> Station | None:
        """A worker, if it is (still) here."""
        return None if number is None else self._stations.get(number)

    def join(self, number: int, info: Ready) -> Station:
        """A worker is ready."""
        assert number not in self._stations, f"worker {number} is here already"
        station = self._stations[number] = Station(number, info)
        return station

    def leave(self, number: int) -> Station | None:
        """A worker is gone; what was known of it."""
        return self._stations.pop(number, None)

    @property
    def staying(self) -> list[Station]:
        """Those that are not about to go."""
        return [each for each in self if not each.leaves]

    def retire(self) -> None:
        """Let the one go that holds least; there must be another."""
        staying = self.staying
        assert len(staying) > 1, "the last worker stays"
        min(staying, key=lambda each: (each.reserved, len(each.seqs))).leaves = True

    def reopen(self) -> bool:
        """Let one stay that was about to go; whether there is one."""
        leaving = [each for each in self if each.leaves]
        for station in leaving[:1]:
            station.leaves = False
        return bool(leaving)

    def vacated(self) -> list[int]:
        """Those that were about to go and hold nothing any more: they are gone now."""
        gone = [each.number for each in self if each.leaves and each.is_clear]
        for number in gone:
            del self._stations[number]
        return gone

    def forget_gauges(self) -> None:
        """No worker computes any more."""
        for station in self:
            station.gauges = Gauges(pages_total=station.info.pages)

    @property
    def whole(self) -> Room:
        """All seats and pages."""
        return sum((Room(each.info.seats, each.info.pages) for each in self), NOTHING)

    @property
    def free(self) -> Room:
        """Seats and pages left in all workers together."""
        return sum((each.left.free for each in self), NOTHING)

    @property
    def widest(self) -> Room:
        """The room left in the worker that has most of it."""
        return max((each.left.free for each in self._open()), key=_size, default=NOTHING)

    @property
    def can_wait(self) -> bool:
        """Whether one more may be sent that fits nowhere."""
        return any(each.left.can_wait for each in self._open())

    def covers(self, need: Room) -> bool:
        """Whether a worker has so much room left."""
        return any(each.left.free.covers(need) for each in self._open())

    def choose(self, need: Room, beside: int | None = None) -> Station:
        """Where one that needs so much is sent: beside another if that has room, else where most is left."""
        fitting = [each for each in self._open() if each.left.free.covers(need)]
        if not fitting:
            fitting = [each for each in self._open() if each.left.can_wait]
        assert fitting, "nobody has room"
        near = [each for each in fitting if each.number == beside]
        return max(near or fitting, key=lambda each: _size(each.left.free))

    def _open(self) -> Iterator[Station]:
        return (each for each in self if not each.reserved and not each.leaves)


def mismatch(first: Ready, later: Ready) -> str | None:
    """Why a worker can't serve what was promised by what the first one loaded; None: it can."""
    if (later.model, later.architecture, later.vocab_size) != (first.model, first.architecture, first.vocab_size):
        return f"a worker has loaded another model than the first: {_named(later)}, not {_named(first)}"
    if _longest(later) < _longest(first):
        return (
            f"a worker has room for {_longest(later)} tokens of a sequence, where requests may have {_longest(first)}"
        )
    return None


def _longest(info: Ready) -> int:
    return min(info.context, info.pages * info.page_size)


def _named(info: Ready) -> str:
    return f"{info.model} ({info.architecture}, {info.vocab_size} token ids)"


def _size(room: Room) -> tuple[int, int]:
    return room.seats, room.pages
