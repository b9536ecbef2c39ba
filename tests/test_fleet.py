"""fleet.py: models are loaded beside others, names move when they are ready, and what nobody uses any more ends."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from fairstep.errors import ModelError
from fairstep.serving.fleet import Fleet
from fairstep.serving.models import Models, Served
from fakes_serving import FakeEngine, run


class Loaded(FakeEngine):
    """An engine that is ready once it is let, or cannot be loaded."""

    def __init__(self, name: str, source: str) -> None:
        super().__init__()
        self.model_name, self.source = name, source
        self.may_start, self.stopped = asyncio.Event(), False

    async def start(self) -> None:
        await self.may_start.wait()
        if self.source == "broken":
            raise ModelError("it is broken")

    async def stop(self) -> None:
        self.stopped = True


class Yard:
    def __init__(self, **sources: str) -> None:
        self.made: list[Loaded] = []
        served = (Served(name, self.make(name, source)) for name, source in sources.items())
        self.fleet = Fleet(Models(*served), self.make)

    def make(self, name: str, source: str) -> Any:
        self.made.append(Loaded(name, source))
        return self.made[-1]


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_a_name_moves_when_the_new_one_is_ready_and_the_old_one_ends_unused() -> None:
    async def test() -> None:
        yard = Yard(chat="one")
        models, old = yard.fleet.models, yard.fleet.models.first
        old.enter()
        moving = asyncio.create_task(yard.fleet.follow({"chat": "two", "draft": "three"}))
        await turns()
        assert models.of("chat") is old and not moving.done(), "it is still being loaded"
        yard.made[1].may_start.set()
        await turns()
        assert models.of("chat").engine.source == "two" and not yard.made[0].stopped
        yard.made[2].may_start.set()
        await moving
        assert [each.name for each in models] == ["chat", "draft"]
        old.leave()
        await turns()
        assert yard.made[0].stopped
        models.check()
        await yard.fleet.stop()
        assert all(engine.stopped for engine in yard.made)

    run(test)


def test_what_is_served_from_the_same_files_stays() -> None:
    async def test() -> None:
        yard = Yard(chat="one", draft="two")
        await yard.fleet.follow({"draft": "two"})
        await turns()
        assert len(yard.made) == 2 and [engine.stopped for engine in yard.made] == [True, False]
        await yard.fleet.stop()

    run(test)


def test_what_has_failed_is_loaded_anew() -> None:
    async def test() -> None:
        yard = Yard(chat="one")
        yard.made[0].failure = "all its workers died"
        moving = asyncio.create_task(yard.fleet.follow({"chat": "one"}))
        await turns()
        yard.made[1].may_start.set()
        await moving
        assert yard.fleet.models.of("chat").engine is yard.made[1]
        await yard.fleet.stop()

    run(test)


def test_what_changes_while_it_is_read_is_read_again(tmp_path: Path) -> None:
    async def test() -> None:
        file = tmp_path / "model"
        file.touch()
        yard = Yard(chat="one")
        moving = asyncio.create_task(yard.fleet.follow({"chat": str(file)}))
        await turns()
        os.utime(file, ns=(1, 1))
        yard.made[1].may_start.set()
        await moving
        again = asyncio.create_task(yard.fleet.follow({"chat": str(file)}))
        await turns()
        assert len(yard.made) == 3
        yard.made[2].may_start.set()
        await again
        await yard.fleet.stop()

    run(test)


def test_stop_waits_until_what_was_being_loaded_has_ended() -> None:
    async def test() -> None:
        yard = Yard(chat="one")
        moving = asyncio.create_task(yard.fleet.follow({"chat": "two"}))
        await turns()
        stopping = asyncio.create_task(yard.fleet.stop())
        await turns()
        assert not stopping.done()
        moving.cancel()
        await stopping
        assert moving.cancelled() and yard.made[0].stopped

    run(test)


def test_one_that_cannot_be_loaded_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        yard = Yard(chat="one")
        moving = asyncio.create_task(yard.fleet.follow({"chat": "broken"}))
        await turns()
        yard.made[1].may_start.set()
        await moving
        assert yard.fleet.models.of("chat").engine.source == "one" and "it is broken" in caplog.text
        assert not yard.made[0].stopped
        await yard.fleet.stop()

    run(test)


def test_stop_ends_also_those_that_somebody_still_uses() -> None:
    async def test() -> None:
        yard = Yard(chat="one")
        yard.fleet.models.first.enter()
        moving = asyncio.create_task(yard.fleet.follow({"chat": "two"}))
        await turns()
        yard.made[1].may_start.set()
        await moving
        await yard.fleet.stop()
        assert [engine.stopped for engine in yard.made] == [True, True]

    run(test)
