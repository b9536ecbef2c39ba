"""The front's workers: their seats, what each was sent, and what becomes of that when one dies. Pure.

It knows the entries of the front's table by sequence number, and of those only where they are. What a request is told,
and what is counted of it, is the front's.
"""

from collections.abc import Callable, Mapping

from .door import Orders, Ready
from .entry import Entry
from .fairness.fair_room import FairRoom
from .fairness.tier_room import May
from .recovery import ATTEMPTS, Recovery, Refusal
from .seats import Seats
from .stations import Station, Stations
from .trials import Trials

FIRST = 0  # the number of the worker that a front begins with


class Workforce:
    """Owner of where sequences are. info: of the first worker. attempts: see Recovery; the rest: see Seats."""

    def __init__(
        self,
        room: FairRoom,
        info: Ready,
        entries: Mapping[int, Entry],
        pages: Callable[[int], int],
        may: May,
        *,
        shared: bool,
        static: bool,
        attempts: int = ATTEMPTS,
    ) -> None:
        self.stations = Stations()
        self.stations.join(FIRST, info)
        self.seats = Seats(room, self.stations, pages, may, shared=shared, static=static)
        self.recovery = Recovery(attempts)
        self.recovery.join(info.seats)
        self.trials = Trials(self.recovery, self.stations, pages)
        self._entries = entries
        self._pages = pages

    # --- workers come and go

    def join(self, worker: int, info: Ready) -> None:
        """A worker is ready."""
        self.stations.join(worker, info)
        self.recovery.join(self.stations.whole.seats)
        self.seats.resize()

    def lose(self, worker: int, reason: str) -> list[tuple[Entry, Refusal]] | None:
        """A worker is gone: what it held waits for a trial, but for those that are returned. None: nobody knows it.

        The likeliest culprits come first: those of which nothing was computed yet.
        """
        station = self.stations.leave(worker)
        if station is None:
            return None
        if not self.stations.staying:
            self.stations.reopen()
        self.seats.resize()
        held = sorted(station.seqs, key=lambda seq: (self._entries[seq].started, seq))
        for seq in held:
            self._entries[seq].worker = None
            self.seats.keep(seq)
        refused = self.recovery.lost(worker, held, reason)
        return [(self._entries[seq], refusal) for seq, refusal in refused.items()]

    def vacated(self) -> list[int]:
        """Workers that were to go and are gone by now: they hold nothing."""
        gone = self.stations.vacated()
        if gone:
            self.seats.resize()
        return gone

    # --- sequences come and go

    def suspects(self) -> list[tuple[Entry, Station]]:
        """Suspects whose trial begins now, and where. Who stands in the way of the next trial is called back."""
        moves = self.trials.moves()
        for station in moves.clear:
            for seq in station.seqs:
                self.call_back(seq)
        return [(self._entries[seq], station) for station, group in moves.send for seq in group]

    def send(self, entry: Entry, station: Station) -> None:
        """A new attempt goes to a worker with the next Orders."""
        station.send(entry.admit(station.number), self._pages(entry.ticket.seq))

    def call_back(self, seq: int) -> None:
        """Ask for a seat with the next Orders; nothing where its worker has died."""
        entry = self._entries[seq]
        if (station := self.stations.get(entry.worker)) is not None:
            station.call_back(seq, entry.attempt)

    def leave(self, entry: Entry, *, cancels: bool = False) -> None:
        """A sequence is in no worker any more. cancels: the worker is to be told so."""
        station = self.stations.get(entry.worker)
        entry.worker = None
        if station is None:
            return
        station.seqs.discard(entry.ticket.seq)
        if cancels:
            station.cancel(entry.ticket.seq, entry.attempt)

    def orders(self) -> dict[int, Orders]:
        """What is to be sent now, by worker."""
        return {each.number: orders for each in self.stations if (orders := each.orders()) is not None}

    def check(self, sent: set[int]) -> None:
        """Assert that each sequence that was sent is in one worker, or suspected and in none."""
        self.seats.check(sent)
        self.recovery.check()
        self.trials.check()
        for station in self.stations:
            here = {seq for seq in sent if self._entries[seq].worker == station.number}
            assert here == station.seqs, "somebody is not where it was sent"
        nowhere = {seq for seq in sent if self.stations.get(self._entries[seq].worker) is None}
        assert nowhere == set(self.recovery.suspects.waiting()), "somebody is nowhere"
