"""links.py: what becomes of the streams when a worker process gets signals. On a tiny model."""

import asyncio
import os
import signal
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

import pytest

from fairstep import AsyncEngine, Completion, Delta, EngineConfig, SamplingParams
from fairstep.errors import EngineRecovering
from fairstep.links import ProcessLink
from fairstep.streams import Stream
from tiny_models import tiny_llama

LONG = SamplingParams(temperature=0, max_tokens=400, ignore_eos=True)
SEEDED = SamplingParams(temperature=1, seed=7, max_tokens=400, ignore_eos=True)
ASKED = (((5, 6, 7), LONG), ((8, 9), LONG), ((5, 6, 7), SEEDED))
CONFIG = EngineConfig(
    dtype="float32", kv_memory="8MiB", max_seats=4, step_tokens=64, chunk=32, threads=1, deterministic=True
)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tiny_llama(tmp_path_factory.mktemp("tiny")))


def run(body: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(body, 120))


def pids_of(engine: AsyncEngine) -> list[int]:
    return [link.pid for link in engine._crew.links if isinstance(link, ProcessLink) and link.pid is not None]


def pid_of(engine: AsyncEngine) -> int:
    (pid,) = pids_of(engine)
    return pid


def test_a_worker_that_is_killed_is_started_again_and_its_streams_go_on(model: str) -> None:
    async def body() -> None:
        async with AsyncEngine(model, CONFIG) as engine:
            control = [await engine.generate(prompt, params) for prompt, params in ASKED]
            pid = pid_of(engine)
            streams = [engine.submit(prompt, params) for prompt, params in ASKED]
            begun = [await anext(stream) for stream in streams]
            os.kill(pid, signal.SIGKILL)
            rest = await asyncio.gather(*(read(stream) for stream in streams))
            answers = [Completion.join([first, *deltas]) for first, deltas in zip(begun, rest, strict=True)]
            assert [answer.token_ids for answer in answers] == [answer.token_ids for answer in control]
            assert pid_of(engine) != pid and engine.stats().failures.retried == len(ASKED)
            engine.check()

    run(body())


def test_of_two_workers_one_hangs_and_all_is_answered(model: str) -> None:
    async def body() -> None:
        async with AsyncEngine(model, replace(CONFIG, workers=2, worker_timeout=3.0)) as engine:
            control = [await engine.generate(prompt, params) for prompt, params in ASKED]
            while engine.live().workers < 2:
                await asyncio.sleep(0.01)
            streams = [engine.submit(prompt, params) for prompt, params in ASKED * 2]
            begun = [await anext(stream) for stream in streams]
            stopped = pids_of(engine)[1]
            os.kill(stopped, signal.SIGSTOP)
            rest = await asyncio.gather(*(read(stream) for stream in streams))
            answers = [Completion.join([first, *deltas]) for first, deltas in zip(begun, rest, strict=True)]
            assert [answer.token_ids for answer in answers] == [answer.token_ids for answer in control * 2]
            assert engine.stats().failures.hung == 1 and stopped not in pids_of(engine)
            engine.check()

    run(body())


def test_the_engine_says_when_nobody_computes_and_takes_what_comes(model: str) -> None:
    async def body() -> None:
        async with AsyncEngine(model, CONFIG) as engine:
            os.kill(pid_of(engine), signal.SIGKILL)
            while engine.live().workers:
                await asyncio.sleep(0.01)
            with pytest.raises(EngineRecovering, match="SIGKILL") as caught:
                engine.check_ready()
            assert (caught.value.retry_after or 0) > 0
            assert (await engine.generate((5, 6), SamplingParams(max_tokens=3))).finish_reason == "length"
            engine.check_ready()

    run(body())


async def read(stream: Stream) -> list[Delta]:
    return [delta async for delta in stream]


def test_signals_to_the_group_are_left_to_the_front(model: str) -> None:
    async def body() -> None:
        async with AsyncEngine(model, CONFIG) as engine:
            stream = engine.submit((5, 6, 7), LONG)
            await anext(stream)
            for sent in (signal.SIGINT, signal.SIGTERM):
                os.kill(pid_of(engine), sent)
            assert (await stream.completion()).finish_reason == "length"

    run(body())


def test_no_worker_outlives_its_engine(model: str) -> None:
    async def body() -> None:
        async with AsyncEngine(model, CONFIG) as engine:
            pid = pid_of(engine)
            engine.submit((5, 6, 7), LONG)
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)

    run(body())
