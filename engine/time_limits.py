"""When each request's time is up: at its deadlines, and where it waits, as soon as it can't meet them any more. Pure.

It knows the entries of the front's table, and who can tell how long things take at least.
"""

from collections.abc import Mapping

from .batches import Batches
from .entry import Entry
from .expiries import Expiries
from .outlook import Outlook


class TimeLimits:
    """One instant for each request that has any. set() it whenever something has happened to the request."""

    def __init__(self, entries: Mapping[int, Entry], outlook: Outlook, batches: Batches | None) -> None:
        self._entries = entries
        self._outlook = outlook
        self._batches = batches
        self._expiries = Expiries()

    @property
    def next_at(self) -> float | None:
        """The next instant at which due() has somebody; None: never, as things are."""
        return self._expiries.next_at

    def set(self, entry: Entry) -> None:
        self._expiries.set(entry.ticket.seq, self._at(entry))

    def drop(self, entry: Entry) -> None:
        """It is over."""
        self._expiries.set(entry.ticket.seq, None)

    def due(self, now: float) -> list[Entry]:
        """Whose time is up."""
        due = [self._entries[seq] for seq in self._expiries.due(now)]
        for entry in due:
            self.set(entry)  # steps that were shorter meanwhile may leave it some time
        return [entry for entry in due if (at := self._at(entry)) is not None and at <= now]

    def _at(self, entry: Entry) -> float | None:
        """When its time is up: where it waits, the last instant at which it could begin and be in time."""
        if entry.expires_at is None or entry.sent:
            return entry.expires_at
        if self._batches is not None and self._batches.least:
            return self._batches.last_start(entry.expires_at)
        least = self._outlook.least(entry.known, entry.least_outputs)
        return entry.last_start(least.first, least.whole)


def why_late(entry: Entry, now: float) -> str:
    """What to tell of a request whose time is up."""
    at = entry.expires_at
    after = f"{now - entry.request.arrival:.3f} s after the request"
    if at is not None and now < at:
        return f"too little time was left {after} for an answer that had not begun"
    late = entry.request.deadline is not None and now >= entry.request.deadline
    return f"the deadline passed before {'the whole answer' if late else 'a first token'} had come, {after}"
