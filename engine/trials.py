"""Which worker tries which group of suspects: an empty one, kept from all others until they are proven. Pure.

A group that has passed makes room for the next one at once, by giving its seats back; so does whoever runs in a worker
where none is empty and none is being started.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from .recovery import Recovery
from .stations import Station, Stations


@dataclass(slots=True)
class Moves:
    """What to do now. send: these, in this order, into a worker that is theirs. clear: call back all that it holds."""

    send: list[tuple[Station, tuple[int, ...]]] = field(default_factory=list)
    clear: list[Station] = field(default_factory=list)


class Trials:
    """Joins suspects and workers. pages: what a sequence needs to begin. coming: how many workers are being started."""

    def __init__(self, recovery: Recovery, stations: Stations, pages: Callable[[int], int]) -> None:
        self.coming = 0
        self._recovery = recovery
        self._suspects = recovery.suspects
        self._stations = stations
        self._pages = pages

    def moves(self) -> Moves:
        """Ask after every Report and every death; what it says must be done before anything else is sent."""
        moves = Moves()
        for station in self._stations:
            trial = self._suspects.trial_in(station.number)
            if trial is not None and trial.is_passed:
                self._recovery.acquit(station.number)
                if len(self._suspects) and station.seqs:
                    moves.clear.append(station)
        if not len(self._suspects):
            for station in self._stations:
                station.reserved = self._suspects.trial_in(station.number) is not None
            return moves
        for station in self._stations:
            if not station.seqs and not station.leaves and self._suspects.trial_in(station.number) is None:
                station.reserved = True
                if not station.is_clear:
                    continue
                if group := self._begin(station):
                    moves.send.append((station, group))
        if self._nobody_is_reserved() and not self.coming and len(self._stations):
            emptiest = min(self._stations, key=lambda station: (station.leaves, len(station.seqs)))
            emptiest.leaves = False
            emptiest.reserved = True
            moves.clear.append(emptiest)
        return moves

    def check(self) -> None:
        """Assert that a worker with a trial is kept for it."""
        for station in self._stations:
            if (trial := self._suspects.trial_in(station.number)) is not None:
                assert station.reserved and station.seqs == trial.members, "a trial is not alone in its worker"

    def _begin(self, station: Station) -> tuple[int, ...]:
        left = station.left.free.pages

        def fits(seq: int) -> bool:
            nonlocal left
            left -= self._pages(seq)
            return left >= 0

        return self._suspects.begin(station.number, fits)

    def _nobody_is_reserved(self) -> bool:
        return bool(len(self._suspects)) and not any(station.reserved for station in self._stations)
