"""For tests of the HTTP side: an engine that needs no model and says what it is told to.

FakeEngine keeps AsyncEngine's surface, refusals and streams; a held one says nothing until `say` and `end` are called.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from fairstep.admission.deadlines import Deadlines
from fairstep.admission.fit import answer_room, check_ids, check_param_ids
from fairstep.admission.forecast import Prospect
from fairstep.admission.limits import Need
from fairstep.door import Ready
from fairstep.errors import EngineDead, FairstepError
from fairstep.metrics import Metrics
from fairstep.request import Delta, Request, SamplingParams, Usage
from fairstep.stats import Stats
from fairstep.streams import Stream
from fairstep.tenants import TenantTerms
from fakes_text import EOS, VOCAB, FakeTokenizer

CONTEXT = 200
PIECES = ("Hel", "lo", " wörld")


@dataclass
class Asked:
    """One accepted request and what became of it."""

    prompt_ids: tuple[int, ...]
    params: SamplingParams
    how: Mapping[str, Any]
    stream: Stream
    said: int = 0


class FakeEngine:
    """Answers every request with `pieces`, a token a piece; `ending` is its finish reason."""

    def __init__(self, pieces: Sequence[str] = PIECES, *, held: bool = False, ending: str = "stop") -> None:
        self.pieces, self.held, self.ending = pieces, held, ending
        self.model_name, self.failure, self.tokenizer = "fake", None, FakeTokenizer()
        self.source, self.has_started, self.metrics = "fake", True, Metrics("fake")
        self.info = Ready("fake", "Fake", VOCAB, CONTEXT, (EOS,), {}, 8, 16, 4, "float32", "cpu", 0, {})
        self.asked: list[Asked] = []
        self.cancelled: list[str] = []
        self.turned_away: list[tuple[str | None, str]] = []  # tenants, and why
        self.changed = asyncio.Condition()
        self.encoding: asyncio.Event | None = None  # set: tokenizing has begun, and goes on for ever
        self.bug: Exception | None = None
        self.replays = 0
        self.foreseen: Prospect | None = None  # what any request is told to expect

    def check_alive(self) -> None:
        if self.failure is not None:
            raise EngineDead(self.failure)

    check_ready = check_alive

    async def encode(self, text: str, *, add_special: bool = True, any_length: bool = False) -> tuple[int, ...]:
        return await self._tokenize(lambda: self.tokenizer.encode(text, add_special=add_special))

    async def encode_chat(
        self, messages: Sequence[Mapping[str, Any]], *, any_length: bool = False, **how: Any
    ) -> tuple[int, ...]:
        return await self._tokenize(lambda: self.tokenizer.encode_chat(messages, **how))

    async def _tokenize(self, encode: Callable[[], list[int]]) -> tuple[int, ...]:
        if self.encoding is not None:
            self.encoding.set()
            await asyncio.Future()
        return tuple(encode())

    def submit(self, prompt_ids: Sequence[int], params: SamplingParams, **how: Any) -> Stream:
        return self.submit_group(prompt_ids, params, 1, **how)[0]

    def submit_group(self, prompt_ids: Sequence[int], params: SamplingParams, n: int, **how: Any) -> list[Stream]:
        self.check_alive()
        if self.bug is not None:
            raise self.bug
        check_ids(prompt_ids, VOCAB)
        check_param_ids(params, VOCAB)
        answer_room(len(prompt_ids), params.max_tokens, CONTEXT)
        requests = Request.at(prompt_ids, params, 0.0, how).siblings(n)
        streams = [self._accept(request, how) for request in requests]
        self._tell()
        return streams

    def _accept(self, request: Request, how: Mapping[str, Any]) -> Stream:
        stream = Stream(request.id, self._cancel)
        self.asked.append(Asked(request.prompt_ids, request.params, how, stream))
        if not self.held:
            self.answer(self.asked[-1])
        return stream

    def answer(self, asked: Asked) -> None:
        """Begin to say the answer, a token a turn of the loop."""
        self._play(asked, list(self.pieces))

    def _play(self, asked: Asked, pieces: list[str]) -> None:
        if not pieces:
            self.end(asked)
            return
        self.say(asked, pieces[0])
        asyncio.get_running_loop().call_soon(self._play, asked, pieces[1:])

    def say(self, asked: Asked, text: str) -> None:
        """One token of text, as a step would bring it."""
        asked.said += 1
        asked.stream.deliver(Delta(asked.stream.request_id, text, (asked.said,)))

    def end(self, asked: Asked, reason: str | None = None, **more: Any) -> None:
        usage = Usage(len(asked.prompt_ids), asked.said, cached_tokens=2)
        last = {"finish_reason": reason or self.ending, "usage": usage, **more}
        asked.stream.deliver(Delta(asked.stream.request_id, **last))

    def _cancel(self, request_id: str) -> None:
        asked = next(asked for asked in self.asked if asked.stream.request_id == request_id)
        self.cancelled.append(request_id)
        self.end(asked, "cancelled")
        self._tell()

    def _tell(self) -> None:
        async def wake() -> None:
            async with self.changed:
                self.changed.notify_all()

        self._waking = asyncio.ensure_future(wake())

    async def until(self, predicate: Callable[[], bool]) -> None:
        """Wait until something that submit or cancel changes is so."""
        async with self.changed:
            await self.changed.wait_for(predicate)

    def now(self) -> float:
        return 0.0

    def prospect(self, need: Need, terms: TenantTerms, deadlines: Deadlines, now: float) -> Prospect | None:
        return self.foreseen

    def refused(self, terms: TenantTerms | None, error: FairstepError, need: Need | None) -> None:
        self.turned_away.append((terms.name if terms else None, error.code))

    def replayed(self) -> None:
        self.replays += 1

    def stats(self) -> Stats:
        return self.metrics.stats()

    def check(self) -> None:
        """It has no invariants."""


@asynccontextmanager
async def client_of(app: Any) -> AsyncIterator[httpx.AsyncClient]:
    """A client without sockets."""
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        yield client


def run(test: Callable[[], Awaitable[None]]) -> None:
    """Run an asynchronous test on a loop of its own; nothing it waits for may take a minute."""

    async def bounded() -> None:
        async with asyncio.timeout(60):
            await test()

    asyncio.run(bounded())


def events_of(body: str) -> list[str]:
    """The data of each event of an SSE body; fails unless each is one `data: ` line ended by an empty one."""
    assert body.endswith("\n\n")
    events = body.removesuffix("\n\n").split("\n\n")
    data = [event for event in events if event != ": ping"]
    assert all(event.startswith("data: ") and "\n" not in event for event in data), data
    return [event.removeprefix("data: ") for event in data]
