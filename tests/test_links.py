"""links.py: what becomes of the streams when a worker process gets signals. On a tiny model."""

import asyncio
import os
import signal
from collections.abc import Coroutine
from typing import Any

import pytest

from fairstep import AsyncEngine, EngineConfig, SamplingParams
from fairstep.errors import EngineDead
from fairstep.links import ProcessLink
from tiny_models import tiny_llama

LONG = SamplingParams(temperature=0, max_tokens=400, ignore_eos=True)
CONFIG = EngineConfig(dtype="float32", kv_memory="8MiB", max_seats=4, step_tokens=64, threads=1)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tiny_llama(tmp_path_factory.mktemp("tiny")))


def run(body: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(body, 120))


def pid_of(engine: AsyncEngine) -> int:
    assert isinstance(engine._link, ProcessLink) and engine._link.pid is not None
    return engine._link.pid


def test_a_worker_that_is_killed_ends_its_streams_in_words(model: str) -> None:
    async def body() -> None:
        async with AsyncEngine(model, CONFIG) as engine:
            stream = engine.submit((5, 6, 7), LONG)
            await anext(stream)
            os.kill(pid_of(engine), signal.SIGKILL)
            answer = await stream.completion()
            assert answer.finish_reason == "error" and "SIGKILL" in (answer.error or "")
            assert engine.failure and engine.live().running == 0
            with pytest.raises(EngineDead, match="SIGKILL"):
                engine.submit((5,))

    run(body())


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
