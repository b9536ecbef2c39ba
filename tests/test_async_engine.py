"""async_engine.py: starting and stopping in every order, and faults of our own: told to all, never a hang."""

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any

import pytest

from fairstep import AsyncEngine, SamplingParams
from fairstep.config import EngineConfig
from fairstep.door import Ready
from fairstep.errors import ContextTooLong, EngineClosed, EngineDead, InvalidRequest
from fairstep.stepping.plan import StepPlan
from fairstep.tenants import Tenants, TenantTerms
from fairstep.worker import ProgressCall, Worker
from fakes_text import BOS, FakeTokenizer
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


def test_texts_and_conversations_are_encoded_as_asked() -> None:
    async def body() -> None:
        async with engine() as own:
            assert await own.encode("hi") == (BOS, *b"hi")
            assert await own.encode("hi", add_special=False) == tuple(b"hi")
            long = await own.encode("x" * 5000, add_special=False, any_length=True)
            assert long == tuple(b"x" * 5000), "for callers that cut it"
            hello = [{"role": "user", "content": "hi"}]
            ids = await own.encode_chat(hello, add_generation_prompt=False, template_kwargs={"think": "no"})
            assert bytes(ids[1:]) == b"think=no\nuser: hi\n"
            assert len(await own.encode_chat([{"role": "user", "content": "x" * 5000}], any_length=True)) > 5000

    run(body())


def test_siblings_are_streams_of_their_own_and_each_may_be_left() -> None:
    async def body() -> None:
        async with engine() as own:
            first, second, third = own.submit_group((97,), LONG, 3, request_id="r")
            assert [stream.request_id for stream in (first, second, third)] == ["r", "r.1", "r.2"]
            second.cancel()
            await anext(first)
            first.cancel()
            assert (await third.completion()).finish_reason == "length"
            assert (await second.completion()).finish_reason == "cancelled"
            own.check()

    run(body())


def test_a_group_that_is_refused_leaves_nothing() -> None:
    async def body() -> None:
        async with engine() as own:
            with pytest.raises(InvalidRequest, match="n must be"):
                own.submit_group((97,), LONG, 0)
            with pytest.raises(ContextTooLong):
                own.submit_group((97,), SamplingParams(max_tokens=10**6), 3)
            assert own.live().waiting == own.live().running == 0

    run(body())


def test_no_tokens_asked_for_end_without_the_worker() -> None:
    def never(plan: StepPlan) -> None:
        raise AssertionError("the worker was asked")

    async def body() -> None:
        async with engine(FakeRunner(before=never)) as own:
            answer = await own.generate("x", SamplingParams(max_tokens=0))
            assert (answer.text, answer.finish_reason, answer.usage.prompt_tokens) == ("", "length", 2)

    run(body())


def test_log_probabilities_come_with_their_tokens_also_when_deltas_are_merged() -> None:
    async def body() -> None:
        async with engine() as own:
            stream = own.submit((97, 98), SamplingParams(max_tokens=5, logprobs=1, prompt_logprobs=0))
            while not stream.ended:
                await asyncio.sleep(0)
            answer = await stream.completion()
            assert [item.ids[0] for item in answer.logprobs] == list(answer.token_ids) == list(b"abcde")
            assert [item and item.ids for item in answer.prompt_logprobs] == [None, (98,)]

    run(body())


def test_a_conversation_of_a_wrong_shape_is_told_by_the_template() -> None:
    async def body() -> None:
        async with engine() as own:
            with pytest.raises(InvalidRequest):
                await own.encode_chat([{"role": "nobody", "content": 5}])
        with pytest.raises(EngineClosed):
            await own.encode("x" * 5000)

    run(body())


def test_a_deadline_ends_a_request_while_the_worker_is_busy() -> None:
    async def body() -> None:
        go_on = threading.Event()

        def hold(plan: StepPlan) -> None:
            go_on.wait(30)

        async with engine(FakeRunner(before=hold)) as own:
            try:
                stuck = await own.generate("x", LONG, deadline=own.now() + 0.05)
                silent = await own.generate("x", LONG, ttft_deadline=own.now())
            finally:
                go_on.set()
            assert (stuck.finish_reason, stuck.code) == ("error", "deadline_exceeded")
            assert silent.code == "deadline_exceeded" and silent.usage.completion_tokens == 0
            in_time = await own.generate("x", SamplingParams(max_tokens=3), deadline=own.now() + 3600)
            assert (in_time.text, in_time.code) == ("abc", None)

    run(body())


def test_a_new_book_of_tenants_counts_for_requests_to_come() -> None:
    async def body() -> None:
        async with engine(tenants=Tenants()) as own:
            own.tenants = Tenants(tenants=[TenantTerms("t", tier=2)])
            stream = own.submit((97,), LONG, tenant="t")
            assert own._started()._entries[1].terms.tier == 2
            stream.cancel()

    run(body())
