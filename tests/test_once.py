"""once.py: each key is answered at most once with one body, whatever comes when, fails, or is killed."""

import asyncio
from collections import defaultdict
from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.types import Message, Receive, Scope, Send

from fairstep.errors import FairstepError, KeyInUse, KeyReused, ServerOverloaded, StoreFailed
from fairstep.serving.idempotency_key import claim_of
from fairstep.serving.once import Once
from fairstep.serving.sse import DONE, PING, EventStream
from fairstep.stores.answers import KEPT_SECONDS, Answer, MemoryAnswers
from fairstep.stores.aside import Aside
from fakes_serving import run

T = TypeVar("T")
SCOPE: Scope = {"type": "http"}


class Inline(Aside):
    """Does the work here, a turn of the loop later; `gate`, when set, holds it back."""

    def __init__(self) -> None:
        super().__init__()
        self.gate: asyncio.Event | None = None

    async def run(self, action: Callable[[], T]) -> T:
        await (self.gate.wait() if self.gate else asyncio.sleep(0))
        return action()


class Shaky(MemoryAnswers):
    """Fails while it is told to."""

    fails = False

    def find(self, scope: bytes, now: float) -> Answer | None:
        self._maybe_fail()
        return super().find(scope, now)

    def save(self, scope: bytes, tenant: str, answer: Answer, now: float) -> None:
        self._maybe_fail()
        super().save(scope, tenant, answer, now)

    def _maybe_fail(self) -> None:
        if self.fails:
            raise StoreFailed("disk full")


class Work:
    """Says its name once it is told to end, in a stream or whole; or fails."""

    def __init__(self, name: str, *, stream: bool = False) -> None:
        self.name, self.stream = name, stream
        self.answered = self.dropped = self.called = False
        self.ended: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()

    def drop(self) -> None:
        assert not self.called
        self.dropped = True

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert not self.dropped and not self.called
        self.called = True
        events = EventStream(send)
        if self.stream:
            await events.send(PING)
            await events.send(f"data: {self.name}\n\n".encode())
        error = await asyncio.shield(self.ended)
        self.answered = error is None
        if self.stream:
            if error is not None:
                await events.send(b"data: error\n\n")
            await events.finish()
        elif error is not None:
            raise error
        else:
            headers = [(b"content-type", b"text/plain")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": self.name.encode(), "more_body": False})


class Client:
    """What a client has received."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body = b""
        self.ended = False
        self.error: Exception | None = None
        self.gone = asyncio.Event()
        self.replays = 0

    async def ask(self, once: Once, claim: Any, work: Work, *, attach: bool = False) -> None:
        try:
            reply = await once.reply(claim, SCOPE, work, self.replayed, attach=attach)
            await reply(SCOPE, self.receive, self.send)
        except Exception as error:
            self.error = error

    def replayed(self) -> None:
        self.replays += 1

    async def receive(self) -> Message:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        else:
            self.body += message.get("body", b"")
            self.ended = not message.get("more_body", False)


def claim(key: str = "k", body: Any = 1) -> Any:
    return claim_of(key, "t", "/v1/completions", {"body": body}, "r")


async def settle() -> None:
    for _ in range(30):
        await asyncio.sleep(0)


def new_once(
    store: MemoryAnswers | None = None,
    unix: Callable[[], float] = lambda: 1e9,
) -> Once:
    return Once(store or MemoryAnswers(), Inline(), unix)


@pytest.mark.parametrize("stream", [False, True])
def test_a_finished_answer_is_told_again_as_it_was(stream: bool) -> None:
    async def test() -> None:
        once, first, again = new_once(), Client(), Client()
        work = Work("one", stream=stream)
        work.ended.set_result(None)
        await first.ask(once, claim(), work)
        other = Work("two", stream=stream)
        await again.ask(once, claim(), other)
        assert (again.status, again.body) == (200, first.body.replace(PING, b""))
        assert again.headers["content-type"] == first.headers["content-type"]
        assert again.headers["idempotent-replayed"] == "true" and "idempotent-replayed" not in first.headers
        assert other.dropped and (first.replays, again.replays) == (0, 1)
        once.check()

    run(test)


@pytest.mark.parametrize("stream", [False, True])
def test_while_it_is_made_others_are_told_so_or_attached(stream: bool) -> None:
    async def test() -> None:
        once, first, second, third = new_once(), Client(), Client(), Client()
        work = Work("one", stream=stream)
        asking = asyncio.create_task(first.ask(once, claim(), work))
        await settle()
        await second.ask(once, claim(), Work("two"))
        assert isinstance(second.error, KeyInUse)
        attached = asyncio.create_task(third.ask(once, claim(), Work("three"), attach=True))
        await settle()
        work.ended.set_result(None)
        await asyncio.gather(asking, attached)
        assert first.ended and first.body == third.body and b"one" in first.body
        assert third.headers["idempotent-replayed"] == "true" and third.replays == 1

    run(test)


def test_another_body_is_refused_whether_it_is_made_or_kept() -> None:
    async def test() -> None:
        once, first = new_once(), Client()
        work = Work("one")
        asking = asyncio.create_task(first.ask(once, claim(), work))
        await settle()
        for _ in range(2):
            other = Client()
            await other.ask(once, claim(body=2), Work("two"))
            assert isinstance(other.error, KeyReused)
            if not work.ended.done():
                work.ended.set_result(None)
            await asking

    run(test)


def test_work_goes_on_without_its_client_and_is_there_when_it_comes_back() -> None:
    async def test() -> None:
        once, first, again = new_once(), Client(), Client()
        work = Work("one", stream=True)
        asking = asyncio.create_task(first.ask(once, claim(), work))
        await settle()
        first.gone.set()
        await asking
        assert not first.ended
        work.ended.set_result(None)
        await settle()
        await again.ask(once, claim(), Work("two"))
        assert again.ended and b"one" in again.body and again.body.endswith(DONE)

    run(test)


@pytest.mark.parametrize("stream", [False, True])
def test_refusals_and_failures_are_not_kept(stream: bool) -> None:
    async def test() -> None:
        once, first, again = new_once(), Client(), Client()
        work = Work("one", stream=stream)
        work.ended.set_result(ServerOverloaded("full"))
        await first.ask(once, claim(), work)
        assert isinstance(first.error, ServerOverloaded) or b"error" in first.body
        work = Work("two", stream=stream)
        work.ended.set_result(None)
        await again.ask(once, claim(), work)
        assert b"two" in again.body and again.ended

    run(test)


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_that_cannot_be_kept_is_not_told_whole(stream: bool) -> None:
    async def test() -> None:
        store = Shaky()
        once, first = new_once(store), Client()
        work = Work("one", stream=stream)
        asking = asyncio.create_task(first.ask(once, claim(), work))
        await settle()
        store.fails = True
        work.ended.set_result(None)
        await asking
        if stream:
            assert b"store_failed" in first.body and first.ended
        else:
            assert isinstance(first.error, StoreFailed) and not first.status
        refused = Client()
        await refused.ask(once, claim(), unused := Work("two"))
        assert isinstance(refused.error, StoreFailed) and unused.dropped

    run(test)


def test_those_that_come_while_the_store_is_asked_wait_for_what_it_says() -> None:
    async def test() -> None:
        aside = Inline()
        once = Once(MemoryAnswers(), aside, lambda: 0.0)
        aside.gate = asyncio.Event()
        clients, works = [Client() for _ in range(5)], [Work(str(n)) for n in range(5)]
        asking = [asyncio.create_task(c.ask(once, claim(), w)) for c, w in zip(clients, works, strict=True)]
        await settle()
        aside.gate.set()
        await settle()
        assert [work.called for work in works] == [True, False, False, False, False]
        works[0].ended.set_result(None)
        await asyncio.gather(*asking)
        assert [type(client.error) for client in clients] == [type(None), *[KeyInUse] * 4]

    run(test)


ACTS = st.lists(
    st.one_of(
        st.tuples(st.just("come"), st.sampled_from("abc"), st.integers(0, 1), st.booleans(), st.booleans()),
        st.tuples(st.just("end"), st.integers(0, 20), st.sampled_from((None, "fails"))),
        st.tuples(st.just("leave"), st.integers(0, 20)),
        st.tuples(st.just("crash")),
        st.tuples(st.just("store"), st.booleans()),
        st.tuples(st.just("wait"), st.sampled_from((1.0, KEPT_SECONDS / 2, KEPT_SECONDS, -KEPT_SECONDS))),
    ),
    max_size=40,
)


@settings(max_examples=200)
@given(ACTS)
def test_each_key_is_answered_at_most_once_with_one_body(acts: list[Any]) -> None:
    asyncio.run(History().play(acts))


class History:
    """Clients, works, crashes and a clock that jumps."""

    def __init__(self) -> None:
        self.now = 1e9
        self.store = Shaky()
        self.once = new_once(self.store, lambda: self.now)
        self.works: list[tuple[str, Work]] = []
        self.clients: list[tuple[str, int, Client, asyncio.Task[None]]] = []
        self.expiries = 0

    async def play(self, acts: list[Any]) -> None:
        for act in acts:
            getattr(self, f"do_{act[0]}")(*act[1:])
            await settle()
            self.check()
        self.store.fails = False
        for _, work in self.works:
            if not work.ended.done():
                work.ended.set_result(None)
        await settle()
        self.check()
        assert all(task.done() for *_, task in self.clients), "a client waits for ever"
        assert not self.once._runs and not self.once._looking

    def do_come(self, key: str, body: int, attach: bool, stream: bool) -> None:
        work, client = Work(f"<{len(self.works)}>", stream=stream), Client()
        self.works.append((key, work))
        task = asyncio.create_task(client.ask(self.once, claim(key, body), work, attach=attach))
        self.clients.append((key, self.expiries, client, task))

    def do_end(self, number: int, fails: str | None) -> None:
        live = [work for _, work in self.works if work.called and not work.ended.done()]
        if live:
            live[number % len(live)].ended.set_result(ServerOverloaded("full") if fails else None)

    def do_leave(self, number: int) -> None:
        if self.clients:
            self.clients[number % len(self.clients)][2].gone.set()

    def do_crash(self) -> None:
        """The process is killed: nobody hears any more, and what is in the store stays."""
        for flight in self.once._runs.values():
            flight.task.cancel()
        for *_, task in self.clients:
            task.cancel()
        self.works = [(key, work) for key, work in self.works if not work.called or work.ended.done()]
        self.once = new_once(self.store, lambda: self.now)

    def do_store(self, fails: bool) -> None:
        self.store.fails = fails

    def do_wait(self, seconds: float) -> None:
        self.now += seconds
        self.expiries += seconds != 1.0

    def check(self) -> None:
        self.once.check()
        told = defaultdict(set)
        for key, expiries, client, task in self.clients:
            if not task.done() or task.cancelled():
                continue
            assert client.error is None or isinstance(client.error, FairstepError) or client.gone.is_set()
            if client.ended and b"error" not in client.body:
                told[key, expiries].add(client.body.replace(PING, b""))
        for key, bodies in told.items():
            assert len(bodies) == 1, f"{key} was answered with {bodies}"
        live = [key for key, work in self.works if work.called and not work.ended.done()]
        assert len(live) == len(set(live)), "two work on one key"
