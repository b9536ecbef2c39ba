"""supervisor.py and crew.py in virtual time: deaths, hangs and starts that come to nothing."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from fairstep.backoff import MOST_FAILED
from fairstep.clock import ManualClock
from fairstep.config import EngineConfig
from fairstep.crew import Crew
from fairstep.door import Coefficients, Failed, Gauges, Headroom, Message, Orders, Ready, Report
from fairstep.links import OnEnd, OnMessage
from fairstep.supervisor import Death
from fakes_worker import ready, settings
from virtual_time import VirtualLoop

INFO = ready(settings())


def report(orders: int = 1, running: int = 0) -> Report:
    return Report(orders, (), Headroom(1, 1), Gauges(running=running), Coefficients(0, 0, 0, 0))


class ScriptedLink:
    """A worker that is ready at once, or after being told; it does what the test says."""

    def __init__(self, first: Message | None) -> None:
        self.first = first
        self.sent: list[Message] = []
        self.killed = self.stopped = False

    async def start(self, model: str, config: EngineConfig, on_message: OnMessage, on_end: OnEnd) -> None:
        self.say, self.end = on_message, on_end
        if self.first is not None:
            on_message(self.first)

    def send(self, message: Message) -> None:
        self.sent.append(message)

    def kill(self) -> None:
        self.killed = True

    async def stop(self) -> None:
        self.stopped = True


class Office:
    """Owner of a crew: hears of everything. firsts: what each start says first; then all are ready."""

    def __init__(self, clock: ManualClock, count: int = 1, *firsts: Message | None, spares: int = 0) -> None:
        self.links: list[ScriptedLink] = []
        self.heard: list[tuple[int, Report]] = []
        self.ready: list[int] = []
        self.loads: list[float] = []
        self.deaths: list[Death] = []
        self.clock = clock
        left = list(firsts)

        def link() -> ScriptedLink:
            self.links.append(ScriptedLink(left.pop(0) if left else INFO))
            return self.links[-1]

        self.crew = Crew(link, count, self, now=clock.now, timeout=60.0, restarts=True, spares=spares)

    def on_loading(self, what: str, fraction: float) -> None: ...

    def objection(self, info: Ready) -> str | None:
        return None if info == INFO else "it has loaded something else"

    def on_loaded(self, seconds: float) -> None:
        self.loads.append(seconds)

    def on_ready(self, number: int, info: Ready) -> None:
        self.ready.append(number)
        self.crew.check()

    def on_report(self, number: int, report: Report) -> None:
        self.heard.append((number, report))

    def on_death(self, death: Death) -> None:
        self.deaths.append(death)


def run(clock: ManualClock, body: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(clock)) as runner:
        runner.run(body)


def test_a_worker_that_dies_is_another_one_when_it_comes_back() -> None:
    clock = ManualClock()
    office = Office(clock)

    async def body() -> None:
        await office.crew.start("m", EngineConfig())
        office.links[0].end("killed")
        office.links[0].end("killed")
        assert office.deaths == [Death(0, "killed")] and office.crew.size == 0 and len(office.crew.coming) == 1
        office.links[0].say(report())
        assert not office.heard, "a dead worker is not heard"
        await asyncio.sleep(1)
        assert office.ready == [0, 1] and office.crew.size == 1 and not office.crew.coming
        office.links[1].say(report())
        assert [number for number, _ in office.heard] == [1] and office.links[0].stopped
        await office.crew.stop()
        assert office.links[1].stopped

    run(clock, body())


def test_a_worker_that_has_work_and_says_nothing_is_ended() -> None:
    clock = ManualClock()
    office = Office(clock)

    async def body() -> None:
        await office.crew.start("m", EngineConfig())
        await asyncio.sleep(1000)
        assert not office.deaths, "an idle worker owes nothing"
        office.crew.send({0: Orders(1)})
        await asyncio.sleep(50)
        office.links[0].say(report(running=1))
        await asyncio.sleep(50)
        assert not office.deaths
        began = clock.now()
        while not office.deaths:
            await asyncio.sleep(1)
        (death,) = office.deaths
        assert death.hung and "60 s" in death.reason and office.links[0].killed
        assert clock.now() - began <= 66 - 50 + 1, "its time and a tenth, from its last Report on"
        await office.crew.stop()

    run(clock, body())


def test_starts_that_come_to_nothing_are_given_up() -> None:
    clock = ManualClock()
    office = Office(clock, 1, INFO, *[Failed("model_error", "no memory")] * MOST_FAILED)

    async def body() -> None:
        await office.crew.start("m", EngineConfig())
        office.links[0].end("killed")
        await asyncio.sleep(300)
        assert [death.last for death in office.deaths] == [False] * MOST_FAILED + [True]
        assert office.deaths[-1].reason == "no memory" and office.crew.size == 0 and not office.crew.coming
        await office.crew.stop()

    run(clock, body())


def test_each_of_several_has_its_own_life() -> None:
    clock = ManualClock()
    office = Office(clock, 2)

    async def body() -> None:
        await office.crew.start("m", EngineConfig())
        office.crew.send({0: Orders(1), 1: Orders(1)})
        office.links[0].end("killed")
        await asyncio.sleep(1)
        office.crew.send({1: Orders(2), 2: Orders(1)})
        assert [len(link.sent) for link in office.links] == [1, 2, 1]
        await office.crew.stop()

    run(clock, body())


def test_none_is_started_after_quit() -> None:
    clock = ManualClock()
    office = Office(clock)

    async def body() -> None:
        await office.crew.start("m", EngineConfig())
        office.crew.quit()
        office.links[0].end("told to")
        await asyncio.sleep(100)
        assert len(office.links) == 1 and office.deaths == [Death(0, "told to", last=True)]
        await office.crew.stop()

    run(clock, body())


def test_a_spare_worker_takes_the_place_of_one_that_dies_at_once() -> None:
    clock = ManualClock()
    office = Office(clock, spares=1)

    async def body() -> None:
        await office.crew.start("m", EngineConfig())
        assert office.ready == [0] and office.crew.spare == 1 and not office.crew.coming
        office.links[0].end("killed")
        assert office.ready == [0, 1] and office.crew.size == 1 and office.crew.spare == 0
        assert not office.crew.coming, "who is being started now will be spare"
        await asyncio.sleep(1)
        assert office.ready == [0, 1] and office.crew.spare == 1
        office.crew.send({1: Orders(1)})
        assert [len(link.sent) for link in office.links] == [0, 1, 0]
        office.links[2].end("killed")
        assert office.deaths[-1].number is None and office.crew.size == 1 and office.crew.spare == 0
        await office.crew.stop()

    run(clock, body())


def test_one_more_takes_part_when_it_has_loaded_and_goes_when_told() -> None:
    clock = ManualClock()
    office = Office(clock, 1, INFO, None)

    async def body() -> None:
        await office.crew.start("m", EngineConfig())
        office.crew.grow()
        await asyncio.sleep(5)
        assert office.ready == [0] and len(office.crew.coming) == 1 and office.crew.count == 2
        office.links[1].say(INFO)
        assert office.ready == [0, 1] and not office.crew.coming and office.loads == [0.0, 5.0]
        office.crew.dismiss(0)
        await asyncio.sleep(1)
        assert office.links[0].stopped and office.crew.size == office.crew.count == 1 and not office.deaths
        await office.crew.stop()

    run(clock, body())


def test_one_more_is_the_spare_one_and_another_is_loaded() -> None:
    clock = ManualClock()
    office = Office(clock, spares=1)

    async def body() -> None:
        await office.crew.start("m", EngineConfig())
        office.crew.grow()
        assert office.ready == [0, 1]
        await asyncio.sleep(1)
        assert office.crew.spare == 1 and len(office.links) == 3
        await office.crew.stop()

    run(clock, body())


def test_a_worker_of_no_use_never_takes_part_and_is_given_up() -> None:
    clock = ManualClock()
    other = ready(settings(context=20))
    office = Office(clock, 1, INFO, *[other] * MOST_FAILED)

    async def body() -> None:
        await office.crew.start("m", EngineConfig())
        office.links[0].end("killed")
        await asyncio.sleep(300)
        assert office.ready == [0] and all(link.killed for link in office.links[1:])
        assert office.deaths[-1].last and office.deaths[-1].reason == "it has loaded something else"
        assert office.crew.is_lost
        await office.crew.stop()

    run(clock, body())
