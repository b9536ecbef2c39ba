"""The front's view of a worker's room: the last Report's headroom less what was sent since. Knows no policy."""

from dataclasses import dataclass

from .door import Headroom
from .fairness.shares import Room

AHEAD = 2  # sequences that may wait inside the worker, so that a seat never idles for a round trip


@dataclass(frozen=True, slots=True)
class _Sent:
    orders: int
    pages: int
    fits: bool


class RoomLeft:
    """Counts admissions that a Report has not yet covered. One owner: the Front."""

    def __init__(self, seats: int, pages: int) -> None:
        self._reported = Headroom(seats=seats, pages=pages)
        self._sent: list[_Sent] = []

    @property
    def free(self) -> Room:
        """Seats and pages left; negative where more was sent than there is."""
        pages = self._reported.pages - sum(sent.pages for sent in self._sent)
        return Room(self._reported.seats - len(self._sent), pages)

    @property
    def can_wait(self) -> bool:
        """Whether one more may be sent that does not fit: few enough wait in the worker."""
        return self._reported.queued + sum(not sent.fits for sent in self._sent) < AHEAD

    def can_send(self, pages: int) -> bool:
        """Whether a sequence that needs `pages` pages may be sent: it fits, or few enough wait ahead of need."""
        return self._fits(pages) or self.can_wait

    def send(self, orders: int, pages: int) -> None:
        """Count a sequence sent with Orders number `orders`."""
        assert self.can_send(pages), "sent without room"
        self._sent.append(_Sent(orders, pages, self._fits(pages)))

    def report(self, orders: int, headroom: Headroom) -> None:
        """Take a Report's headroom, which covers everything sent up to `orders`."""
        self._reported = headroom
        self._sent = [sent for sent in self._sent if sent.orders > orders]

    def _fits(self, pages: int) -> bool:
        return self.free.covers(Room(1, pages))
