"""laps.py of the benchmarks: at each moment one part is under way, whoever calls whom, also across awaits."""

import asyncio
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

BENCHMARKS = Path(__file__).resolve().parent.parent / "benchmarks"


class ByHand:
    """A clock that moves when it is told to; the processor is busy half of the time."""

    def __init__(self) -> None:
        self.at = 0.0

    def __call__(self) -> tuple[float, float]:
        return self.at, self.at / 2

    def go(self, seconds: float) -> None:
        self.at += seconds


@pytest.fixture
def clock() -> ByHand:
    return ByHand()


@pytest.fixture
def laps(monkeypatch: pytest.MonkeyPatch, clock: ByHand) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    module = import_module("laps")
    monkeypatch.setattr(module, "_now", clock)
    return module.Laps("rest")


def test_a_part_is_without_what_it_calls(laps: Any, clock: ByHand) -> None:
    inner = laps.timed(lambda: clock.go(3.0), "inner")

    def work() -> str:
        clock.go(1.0)
        inner()
        clock.go(1.0)
        return "done"

    clock.go(5.0)
    assert laps.timed(work, "outer")() == "done"
    laps.cut(number=1)
    [stretch] = laps.stretches
    assert stretch == {"number": 1, "parts": {"rest": [5.0, 2.5], "outer": [2.0, 1.0], "inner": [3.0, 1.5]}}


def test_stretches_share_no_time(laps: Any, clock: ByHand) -> None:
    for seconds in (1.0, 2.0):
        clock.go(seconds)
        laps.cut()
    assert [stretch["parts"] for stretch in laps.stretches] == [{"rest": [1.0, 0.5]}, {"rest": [2.0, 1.0]}]


def test_what_raises_ends_its_part(laps: Any, clock: ByHand) -> None:
    def fail() -> None:
        clock.go(1.0)
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        laps.timed(fail, "failing")()
    clock.go(4.0)
    laps.cut()
    assert laps.stretches[0]["parts"] == {"rest": [4.0, 2.0], "failing": [1.0, 0.5]}


def test_functions_are_replaced_by_name(laps: Any, clock: ByHand) -> None:
    module = SimpleNamespace(work=lambda seconds: clock.go(seconds))
    laps.around(module, "work", "work")
    module.work(2.0)
    laps.cut()
    assert laps.stretches[0]["parts"]["work"] == [2.0, 1.0]


def coroutines(clock: ByHand) -> tuple[SimpleNamespace, Callable[[], None]]:
    """One that waits for a future in its middle, and what ends that wait 10 s later."""
    future: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def work() -> str:
        clock.go(1.0)
        try:
            return await future
        finally:
            clock.go(2.0)

    def arrive() -> None:
        clock.go(10.0)
        future.set_result("arrived")

    return SimpleNamespace(work=work), arrive


async def waited(laps: Any, clock: ByHand) -> str:
    module, arrive = coroutines(clock)
    laps.around_async(module, "work", "work")
    asyncio.get_running_loop().call_soon(arrive)
    return str(await module.work())


def test_what_a_coroutine_waits_for_is_not_its_time(laps: Any, clock: ByHand) -> None:
    assert asyncio.run(waited(laps, clock)) == "arrived"
    laps.cut()
    assert laps.stretches[0]["parts"] == {"rest": [10.0, 5.0], "work": [3.0, 1.5]}


async def cancelled(laps: Any, clock: ByHand) -> bool:
    module, _ = coroutines(clock)
    laps.around_async(module, "work", "work")
    task = asyncio.create_task(module.work())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    return task.cancelled()


def test_a_coroutine_can_be_cancelled(laps: Any, clock: ByHand) -> None:
    assert asyncio.run(cancelled(laps, clock))
    laps.cut()
    assert laps.stretches[0]["parts"]["work"] == [3.0, 1.5]
