"""What has been told of one response: kept in the store, if it is to be, and only then heard. Knows no engine."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

import msgspec

from ..errors import StoreFailed
from ..stores.aside import Aside
from ..stores.response_store import ResponseStore, StoredEvent, StoredResponse
from .event_log import EventLog
from .response_writer import ENDS, ResponseWriter, Told, text_of
from .sse import named_event
from .writer import Json


class Deleted(Exception):
    """The response is not in the store any more, so that nobody can ask for it."""


class ResponseRecord:
    """`stored` is what is, or with `is_new` will be, in the store; is_kept: it goes there at all.

    log: the events as clients hear them. told: what a new writer has to know of them.
    """

    def __init__(
        self,
        store: ResponseStore,
        aside: Aside,
        unix: Callable[[], float],
        stored: StoredResponse,
        *,
        is_kept: bool,
        is_new: bool,
    ) -> None:
        self.stored = stored
        self.is_new = is_new
        self.log = EventLog()
        self.told = Told()
        self._store = store
        self._aside = aside
        self._unix = unix
        self._is_kept = is_kept
        self._waiting: tuple[int, ...] = ()  # ids that came without an event

    async def create(self, writer: ResponseWriter) -> None:
        """It was accepted. Raises StoreFailed."""
        events = writer.begin()
        stored = replace(self.stored, whole=_json(writer.whole()))
        if self._is_kept:
            first = self._kept(events)
            try:
                await self._aside.run(lambda: self._store.create(stored, first))
            except StoreFailed:
                with suppress(StoreFailed):  # it may be there all the same
                    await self._aside.run(lambda: self._store.delete(stored.id, stored.tenant))
                raise
        self.stored, self.is_new = stored, False
        self._publish(events, writer)

    async def tell(self, writer: ResponseWriter, events: Sequence[Json], ids: tuple[int, ...] = ()) -> None:
        """Keep events and the ids that they bring, then let them be heard. Raises StoreFailed or Deleted."""
        self._waiting += ids
        if not events:
            return
        whole = _json(writer.whole())
        ended = self._unix() if writer.status in ENDS else None
        if self._is_kept:
            more, changed = self._kept(events), None if whole == self.stored.whole else whole
            if not await self._aside.run(lambda: self._store.add(self.stored.id, more, changed, ended)):
                raise Deleted
        self.stored = replace(self.stored, whole=whole, ended=ended)
        self._publish(events, writer)

    async def catch_up(self) -> bool:
        """Let be heard what the store has beyond what is known here, after a crash or a failure; whether it has ended.

        Raises StoreFailed or Deleted.
        """
        self._waiting = ()
        if self.is_new or not self._is_kept:
            return self.log.ended
        stored, told = self.stored, self.told
        found = await self._aside.run(lambda: self._store.find(stored.id, stored.tenant))
        if found is None:
            raise Deleted
        kept = await self._aside.run(lambda: self._store.events(stored.id, told.events - 1))
        events = [msgspec.json.decode(each.event) for each in kept]
        drawn = tuple(token for each in kept for token in each.drawn)
        self.stored = found
        self.told = Told(told.events + len(events), told.text + text_of(events), told.drawn + drawn)
        self.log.add([self._heard(each) for each in events], ended=found.ended is not None)
        return self.log.ended

    def _kept(self, events: Sequence[Json]) -> list[StoredEvent]:
        """Events as they are kept; the ids that came go with the first of them."""
        ids = [self._waiting, *[()] * (len(events) - 1)]
        return [StoredEvent(each["sequence_number"], _json(each), own) for each, own in zip(events, ids, strict=True)]

    def _publish(self, events: Sequence[Json], writer: ResponseWriter) -> None:
        drawn, self._waiting = self.told.drawn + self._waiting, ()
        self.told = Told(self.told.events + len(events), writer.text, drawn)
        self.log.add([self._heard(each) for each in events], ended=writer.status in ENDS)

    def _heard(self, each: Json) -> bytes:
        return named_event(each["type"], _json(each), each["sequence_number"] if self._is_kept else None)


def _json(value: Json) -> bytes:
    return msgspec.json.encode(value)
