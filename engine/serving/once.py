"""Answers given once for each Idempotency-Key: worked out by one request, told to all that come with its key.

The work does not end with its client, for the client comes back for it. Refusals and failures are not kept: what comes
after them with the same key is worked out anew.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from ..errors import EngineClosed, FairstepError, KeyInUse, KeyReused
from ..stores.answers import MIB, Answer, AnswerStore
from ..stores.aside import Aside
from .answer_log import AnswerLog
from .disconnect import until_disconnect
from .idempotency_key import HEADER, Claim
from .replies import failure_of
from .sse import DONE, PING, event

MOST_BYTES = 16 * MIB  # of one answer
REPLAYED = {"Idempotent-Replayed": "true"}
log = logging.getLogger(__name__)


class Work(Protocol):
    """A reply that does its work when it is called, as an Exchange."""

    @property
    def answered(self) -> bool:
        """Whether it came to its end, so that it may be kept."""

    def drop(self) -> None:
        """It will not be called."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None: ...


@dataclass(frozen=True, slots=True)
class _Run:
    """A key in flight."""

    claim: Claim
    answer: AnswerLog
    task: "asyncio.Task[None]"


class Once:
    """Owner of the keys in flight. unix: Unix seconds, for the age of answers."""

    def __init__(self, store: AnswerStore, aside: Aside, unix: Callable[[], float]) -> None:
        self._store = store
        self._aside = aside
        self._unix = unix
        self._runs: dict[bytes, _Run] = {}
        self._looking: dict[bytes, asyncio.Event] = {}  # keys that are looked for in the store

    async def reply(
        self, claim: Claim, scope: Scope, work: Work, replayed: Callable[[], None], *, attach: bool = False
    ) -> Response:
        """The answer that `claim` stands for: kept, in the making (with attach), or made by `work` now.

        `work` is called or dropped. replayed: hears if the answer is an earlier request's. Raises KeyReused, KeyInUse,
        or StoreFailed.
        """
        used = False
        try:
            reply = await self._found(claim, attach=attach)
            if reply is None:
                used = True
                return self._begin(claim, scope, work)
            replayed()
            return reply
        finally:
            if not used:
                work.drop()

    def check(self) -> None:
        """Assert that every key in flight is being worked on."""
        for scope, run in self._runs.items():
            assert run.claim.scope == scope, "a key is in flight under another's scope"
            assert not run.task.done(), "nobody works on a key in flight"

    async def _found(self, claim: Claim, *, attach: bool) -> Response | None:
        """What is there already; None: nothing, and the caller begins to make it before anything else happens."""
        while (looking := self._looking.get(claim.scope)) is not None:
            await looking.wait()
        run = self._runs.get(claim.scope)
        if run is None:
            return await self._kept(claim)
        _check_same(run.claim.fingerprint, claim)
        if not attach:
            raise KeyInUse(f"the request with this {HEADER} is being answered: try again, or add 'Prefer: wait'")
        return Telling(run.answer, {**REPLAYED, "Preference-Applied": "wait"})

    async def _kept(self, claim: Claim) -> Response | None:
        """What the store has. Whoever else comes with the key waits until that is known."""
        looking = self._looking[claim.scope] = asyncio.Event()
        try:
            kept = await self._aside.run(lambda: self._store.find(claim.scope, self._unix()))
        finally:
            del self._looking[claim.scope]
            looking.set()
        if kept is None:
            return None
        _check_same(kept.fingerprint, claim)
        return Response(kept.body, kept.status, {**REPLAYED, "Content-Type": kept.media_type})

    def _begin(self, claim: Claim, scope: Scope, work: Work) -> Response:
        answer = AnswerLog()
        task = asyncio.create_task(self._make(claim, answer, dict(scope), work))
        self._runs[claim.scope] = _Run(claim, answer, task)
        return Telling(answer, {})

    async def _make(self, claim: Claim, answer: AnswerLog, scope: Scope, work: Work) -> None:
        try:
            await work(scope, _never, answer.take)
            answer.seal(await self._keep(claim, answer) if work.answered else None)
        except BaseException as error:
            if answer.begun:
                log.exception("an answer with a key broke off")
                answer.seal(_ending(error))
            else:
                answer.fail(_told(error))
            if not isinstance(error, Exception):
                raise
        finally:
            del self._runs[claim.scope]

    async def _keep(self, claim: Claim, answer: AnswerLog) -> bytes | None:
        """Keep the answer; what to tell in place of its end if that cannot be."""
        try:
            if answer.size > MOST_BYTES:
                raise FairstepError(f"an answer of more than {MOST_BYTES} bytes cannot be kept for its {HEADER}")
            body = b"".join(part for part in answer.whole if part != PING)
            kept = Answer(claim.fingerprint, answer.status, _media_type(answer), body)
            await self._aside.run(lambda: self._store.save(claim.scope, claim.tenant, kept, self._unix()))
        except FairstepError as error:
            if not answer.begun:
                raise
            return _ending(error)
        return None


class Telling(Response):
    """A reply read from a log. A client that goes away ends nothing but this."""

    def __init__(self, answer: AnswerLog, headers: Mapping[str, str]) -> None:
        super().__init__()
        self._answer = answer
        self._more = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        self._started = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await until_disconnect(receive, self._tell(send))
        except ClientDisconnect:
            if not self._started:
                raise
        except asyncio.CancelledError:  # the server ends and has waited long enough
            ended = EngineClosed("the server is shutting down")
            if not self._started:
                raise ended from None
            await send(_body(_ending(ended), more=False))

    async def _tell(self, send: Send) -> None:
        async for part in self._answer.read():
            if not self._started:
                self._started = True
                headers = [*self._answer.headers, *self._more]
                await send({"type": "http.response.start", "status": self._answer.status, "headers": headers})
            await send(_body(part, more=True))
        await send(_body(b"", more=False))


def _check_same(fingerprint: bytes, claim: Claim) -> None:
    if fingerprint != claim.fingerprint:
        raise KeyReused(f"this {HEADER} was used with another body or model: use a new one for each request")


def _ending(error: BaseException) -> bytes:
    """The end of a stream that broke off."""
    return event(failure_of(_told(error)).body()) + DONE


def _told(error: BaseException) -> Exception:
    return error if isinstance(error, Exception) else EngineClosed("the server is shutting down")


def _media_type(answer: AnswerLog) -> str:
    return next(value.decode("latin-1") for name, value in answer.headers if name.lower() == b"content-type")


def _body(part: bytes, *, more: bool) -> Message:
    return {"type": "http.response.body", "body": part, "more_body": more}


async def _never() -> Message:
    """Of a client that is not asked any more."""
    await asyncio.Future()
    raise AssertionError("nothing comes of it")
