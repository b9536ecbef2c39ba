"""response_run.py, responses.py: over any crashes and failures a response is told once, without a gap or a repeat."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import pytest

from fairstep.admission.admission import Admission
from fairstep.admission.bounded_queue import QueueBounds
from fairstep.admission.limit_store import MemoryLimits
from fairstep.errors import EngineDead, FairstepError, ServerOverloaded, StoreFailed
from fairstep.meters.durable import DurableMeter
from fairstep.reception import Reception
from fairstep.request import Delta
from fairstep.serving.limits import Limits
from fairstep.serving.models import Models, Served
from fairstep.serving.response_run import ResponseRun
from fairstep.serving.responses import Responses, asked_response
from fairstep.serving.tenant_book import TenantBook
from fairstep.stores.aside import Aside
from fairstep.stores.response_store import ResponseStore
from fairstep.stores.state import State
from fairstep.tenants import TenantTerms
from fakes_serving import Asked, FakeEngine

T = TypeVar("T")
PIECES = ("Hel", "lo", "", " wörld", ", ", "all", "", " is", " well")
TEXT = "".join(PIECES)
ENDS = ("response.completed", "response.cancelled", "response.failed")


class Speaker(FakeEngine):
    """Says a piece of each answer when told to, after what was drawn before."""

    def __init__(self) -> None:
        super().__init__(PIECES)
        self.full = False

    def submit_group(self, *args: Any, **how: Any) -> Any:
        if self.full:
            raise ServerOverloaded("full")
        return super().submit_group(*args, **how)

    def answer(self, asked: Asked) -> None:
        drawn = asked.how["drawn"]
        assert drawn == tuple(range(1, len(drawn) + 1))
        asked.said = len(drawn)
        if drawn:
            asked.stream.deliver(Delta(asked.stream.request_id, "".join(PIECES[: asked.said]), drawn))

    def speak(self) -> None:
        for asked in self.asked:
            if asked.stream.ended:
                continue
            if asked.said < len(PIECES):
                self.say(asked, PIECES[asked.said])
            else:
                self.end(asked)


class Inline(Aside):
    """Does the work here; whoever waits for it may be killed before or after."""

    async def run(self, action: Callable[[], T]) -> T:
        await asyncio.sleep(0)
        result = action()
        await asyncio.sleep(0)
        return result


class Shaky(ResponseStore):
    """Fails while it is told to."""

    fails = False

    def add(self, *args: Any, **how: Any) -> bool:
        self._maybe_fail()
        return super().add(*args, **how)

    def create(self, *args: Any) -> None:
        self._maybe_fail()
        super().create(*args)

    def _maybe_fail(self) -> None:
        if self.fails:
            raise StoreFailed("disk full")


class Server:
    """Responses over one state, through crashes."""

    def __init__(self, folder: Path, random: Random) -> None:
        self.random = random
        self.now = 0.0
        self.state = State(folder)
        self.state.responses = self.store = Shaky(self.state._database)  # type: ignore[arg-type]
        self.state.aside = Inline()
        self.heard: dict[str, list[bytes]] = {}  # what any client has ever heard of each
        self.readers: list[asyncio.Task[None]] = []
        self.cancelled: set[str] = set()
        self.begin()

    def begin(self) -> None:
        self.engine = Speaker()
        self.admission = Admission(QueueBounds(), MemoryLimits())
        reception = Reception(self.admission, lambda: "fake", lambda: self.now, lambda: 1e9 + self.now)
        engine: Any = self.engine
        self.served, self.meter = Served("fake", engine), DurableMeter()
        self.responses = Responses(Models(self.served), Limits(), reception, TenantBook(), self.state, self.meter)
        self.reception = reception

    async def ask(self, *, background: bool) -> ResponseRun | None:
        asked = asked_response({"input": "hi", "background": background}, Limits())
        visit = self.reception.arrive(TenantTerms("t"), "/v1/responses", 10)
        run = self.responses.reply(asked, visit, self.served)._run
        self.responses.start(run, visit)
        try:
            await run.until_accepted()
        except FairstepError:
            return None
        self.readers.append(asyncio.create_task(self.read(run)))
        return run

    async def read(self, run: ResponseRun) -> None:
        """Like a client that comes back with the number of the last event it has."""
        heard = self.heard.setdefault(run.stored.id, [])
        try:
            async for part in run.log.read(len(heard) - 1):
                assert part is not None
                heard += [each + b"\n\n" for each in part.split(b"\n\n")[:-1]]
        except FairstepError:
            pass

    async def crash(self) -> None:
        tasks = [*self.responses._tasks, *self.readers]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.readers.clear()
        self.begin()
        self.store.fails = False
        await self.responses.resume()
        self.readers += [asyncio.create_task(self.read(run)) for run in self.responses._runs.values()]

    async def turn(self) -> None:
        """Anything may happen."""
        match self.random.choice(("speak",) * 6 + ("loop",) * 6 + ("crash", "fail", "well", "full", "cancel", "ask")):
            case "speak":
                self.engine.speak()
            case "loop":
                for _ in range(self.random.randint(1, 6)):
                    await asyncio.sleep(0)
            case "crash":
                await self.crash()
            case "fail":
                self.store.fails = True
            case "well":
                self.store.fails = self.engine.full = False
            case "full":
                self.engine.full = True
            case "ask" if len(self.heard) < 4 and not self.store.fails:
                await self.ask(background=True)
            case "cancel" if self.responses._runs and self.random.random() < 0.3:
                run = self.random.choice(list(self.responses._runs.values()))
                self.cancelled.add(run.stored.id)
                run.cancel()

    async def finish(self) -> None:
        self.store.fails = self.engine.full = False
        for _ in range(400):
            self.engine.speak()
            await asyncio.sleep(0)
            if not self.responses._runs:
                break
            self.responses.check()
        assert not self.responses._runs, "a response is never ended"
        await asyncio.gather(*self.readers)

    def check(self) -> None:
        self.store.check()
        self.admission.check()
        assert self.admission.live == 0, "a place leaks"
        for response_id, heard in self.heard.items():
            record, events = self.store.find(response_id, "t"), self.store.events(response_id)
            assert record is not None and record.ended is not None
            told = [json.loads(each.event) for each in events]
            assert [each["sequence_number"] for each in told] == list(range(len(told)))
            assert [each["type"] in ENDS for each in told] == [False] * (len(told) - 1) + [True]
            assert [json.loads(each.split(b"data: ")[1]) for each in heard] == told[: len(heard)]
            text = "".join(each["delta"] for each in told if each["type"] == "response.output_text.delta")
            assert TEXT.startswith(text)
            whole = json.loads(record.whole)
            assert whole == told[-1]["response"]
            if whole["status"] == "completed":
                assert text == TEXT and whole["output"][0]["content"][0]["text"] == TEXT
                assert whole["usage"]["output_tokens"] == len(PIECES)
            elif whole["status"] == "failed":
                assert record.attempts >= 5, whole
            else:
                assert whole["status"] == "cancelled" and response_id in self.cancelled


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairstep.serving.response_run.PAUSE_SECONDS", 0.0)


@pytest.mark.parametrize("seed", range(60))
def test_no_event_is_lost_or_told_twice_whatever_happens(seed: int, tmp_path: Path) -> None:
    async def play() -> None:
        async with asyncio.timeout(60):
            server = Server(tmp_path, Random(seed))
            await server.ask(background=True)
            for _ in range(120):
                await server.turn()
            await server.crash()
            await server.finish()
            server.check()
            assert server.heard
            server.state.close()

    asyncio.run(play())


def run_on(folder: Path, test: Callable[[Server], Any]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60):
            server = Server(folder, Random(0))
            await test(server)
            server.state.close()

    asyncio.run(bounded())


def status(server: Server, run: ResponseRun) -> str:
    record = server.store.find(run.stored.id, "t")
    assert record is not None
    return str(json.loads(record.whole)["status"])


def test_a_response_that_ends_its_process_again_and_again_is_given_up(tmp_path: Path) -> None:
    async def test(server: Server) -> None:
        run = await server.ask(background=True)
        assert run is not None
        for _ in range(4):
            await server.crash()
            assert server.responses._runs
        await server.crash()
        assert not server.responses._runs and status(server, run) == "failed"

    run_on(tmp_path, test)


def test_what_a_client_waited_for_fails_when_its_process_ends(tmp_path: Path) -> None:
    async def test(server: Server) -> None:
        run = await server.ask(background=False)
        assert run is not None
        await server.crash()
        assert not server.responses._runs and status(server, run) == "failed"

    run_on(tmp_path, test)


def test_a_server_that_ends_in_order_leaves_background_work_to_the_next(tmp_path: Path) -> None:
    async def test(server: Server) -> None:
        run = await server.ask(background=True)
        assert run is not None
        server.engine.failure = "the engine was closed"
        server.engine.end(server.engine.asked[0], "error")
        for _ in range(20):
            await asyncio.sleep(0)
        assert isinstance(run.error, EngineDead) and status(server, run) == "queued"
        await server.crash()
        await server.finish()
        assert status(server, run) == "completed"

    run_on(tmp_path, test)


def test_a_refusal_before_it_is_accepted_is_raised_and_leaves_nothing(tmp_path: Path) -> None:
    async def test(server: Server) -> None:
        server.engine.full = True
        assert await server.ask(background=True) is None
        server.engine.full, server.store.fails = False, True
        assert await server.ask(background=True) is None
        for _ in range(20):
            await asyncio.sleep(0)
        assert server.store.unfinished() == [] and server.admission.live == 0 and not server.responses._runs

    run_on(tmp_path, test)


def test_its_time_is_up_a_day_after_it_was_accepted(tmp_path: Path) -> None:
    async def test(server: Server) -> None:
        run = await server.ask(background=True)
        assert run is not None
        server.now += 24 * 3600
        await server.crash()
        for _ in range(20):
            await asyncio.sleep(0)
        assert status(server, run) == "failed"

    run_on(tmp_path, test)


def test_one_that_was_deleted_ends(tmp_path: Path) -> None:
    async def test(server: Server) -> None:
        run = await server.ask(background=True)
        assert run is not None
        server.store.delete(run.stored.id, "t")
        await server.finish()
        assert server.store.events(run.stored.id) == []

    run_on(tmp_path, test)
