"""async_engine.py: starting and stopping in every order, and faults of our own: told to all, never a hang."""

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any

import pytest

from fairstep import AsyncEngine, SamplingParams
from fairstep.async_engine import characters
from fairstep.config import EngineConfig
from fairstep.door import Ready
from fairstep.errors import ContextTooLong, EngineClosed, EngineDead, InvalidRequest
from fairstep.stepping.plan import StepPlan
from fairstep.worker import ProgressCall, Worker
from fakes_text import FakeTokenizer
from fakes_worker import FakeRunner, fake_build

LONG = SamplingParams(max_tokens=150)


def engine(runner: FakeRunner | None = None, **parts: Any) -> AsyncEngine:
    how = {"tokenizer": FakeTokenizer(), "build_worker": fake_build(runner), **parts}
    return AsyncEngine("fake", in_process=True, **how)


def run(body: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(body, 60))


def test_an_engine_starts_only_once() -> None:
    async def body() -> None:
        async with engine() as own:
            with pytest.raises(EngineClosed, match="once"):
                await own.start()
            assert (await own.generate("x", SamplingParams(max_tokens=3))).text == "abc"
        with pytest.raises(EngineClosed, match="once"):
            await own.start()

    run(body())


def test_stopping_before_starting_and_twice_is_harmless() -> None:
    async def body() -> None:
        own = engine()
        await own.stop()
        await own.stop()
        with pytest.raises(EngineClosed):
            await own.start()

    run(body())


def test_a_stop_during_the_start_ends_the_start() -> None:
    async def body() -> None:
        own = engine()
        starting = asyncio.create_task(own.start())
        await asyncio.sleep(0)
        await own.stop()
        with pytest.raises(EngineClosed):
            await starting

    run(body())


def test_a_worker_that_dies_while_the_tokenizer_loads_is_noticed() -> None:
    class SlowTokenizer(FakeTokenizer):
        def prepare(self) -> None:
            died.wait()

    died = threading.Event()

    def build(model: str, config: EngineConfig, progress: ProgressCall) -> tuple[Worker, Ready]:
        class Dying:
            has_work = False

            def step(self, let_in: object) -> None:
                died.set()
                raise RuntimeError("out of luck")

        return Dying(), fake_build()(model, config, progress)[1]  # type: ignore[return-value]

    async def body() -> None:
        own = engine(tokenizer=SlowTokenizer(), build_worker=build)
        with pytest.raises(EngineDead, match="out of luck"):
            await own.start()
        assert own.failure

    run(body())


def test_a_fault_in_the_front_is_told_to_every_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = threading.Event()
    seen: list[StepPlan] = []

    def hold_after_one(plan: StepPlan) -> None:
        seen.append(plan)
        if len(seen) > 1:
            go_on.wait()

    def broken(*_: object) -> None:
        raise ZeroDivisionError("a bug of ours")

    async def body() -> None:
        async with engine(FakeRunner(before=hold_after_one)) as own:
            streams = [own.submit((97,), LONG) for _ in range(3)]
            await anext(streams[0])
            monkeypatch.setattr(own._front, "receive", broken)
            go_on.set()
            answers = await asyncio.gather(*(stream.completion() for stream in streams[1:]))
            assert {a.finish_reason for a in answers} == {"error"} and "a bug of ours" in (answers[0].error or "")
            assert own.failure and "a bug of ours" in own.failure
            with pytest.raises(EngineDead):
                own.submit((97,))

    run(body())


def test_a_progress_display_that_fails_does_not_stop_the_loading() -> None:
    def broken(what: str, fraction: float) -> None:
        raise BrokenPipeError

    async def body() -> None:
        async with engine(progress=broken) as own:
            assert own.failure is None

    run(body())


def test_submit_from_another_thread_is_refused_and_leaves_nothing() -> None:
    async def body() -> None:
        async with engine() as own:
            with pytest.raises(RuntimeError, match="loop"):
                await asyncio.to_thread(own.submit, (97,), LONG)
            assert own.live().waiting == own.live().running == 0

    run(body())


def test_a_text_that_can_never_fit_is_refused_before_it_is_tokenized() -> None:
    class Untouched(FakeTokenizer):
        def encode(self, text: str, *, add_special: bool = True) -> list[int]:
            raise AssertionError("tokenized")

    async def body() -> None:
        async with engine(tokenizer=Untouched()) as own:
            with pytest.raises(ContextTooLong, match="5000 characters"):
                await own.encode("x" * 5000)
            with pytest.raises(ContextTooLong):
                await own.encode_chat([{"role": "user", "content": "x" * 5000}])

    run(body())


def test_a_conversation_of_a_wrong_shape_is_told_by_the_template() -> None:
    async def body() -> None:
        async with engine() as own:
            with pytest.raises(InvalidRequest):
                await own.encode_chat([{"role": "nobody", "content": 5}])
        with pytest.raises(EngineClosed):
            await own.encode("x" * 5000)

    assert characters([5, {"content": None}, {"content": "abc"}]) == 3  # type: ignore[list-item]

    run(body())
