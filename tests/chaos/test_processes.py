"""Real processes that are killed, by a request or from outside: what the front had of them goes on."""

import asyncio
import os
import signal
from collections.abc import Coroutine
from time import monotonic
from typing import Any

import pytest

from chaos.plant import KILLS
from chaos.poisoned_link import PoisonedLink
from fairstep import AsyncEngine, Completion, EngineConfig, SamplingParams
from fairstep.errors import RequestQuarantined
from fairstep.links import ProcessLink
from fairstep.streams import Stream
from fakes_text import FakeTokenizer
from fakes_worker import letter

COUNT = 32
ASKED = SamplingParams(max_tokens=20)


def run(body: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(body, 240))


def engine(workers: int) -> AsyncEngine:
    return AsyncEngine("fake", EngineConfig(workers=workers), tokenizer=FakeTokenizer(), new_link=PoisonedLink)


@pytest.mark.parametrize("workers", [1, 2])
def test_one_request_among_32_kills_its_process_and_31_finish(workers: int) -> None:
    async def body() -> None:
        async with engine(workers) as own:
            streams = [own.submit((KILLS if place == 13 else 97, place + 1), ASKED) for place in range(COUNT)]
            answers = await asyncio.gather(*(stream.completion() for stream in streams))
            failed = [place for place, answer in enumerate(answers) if answer.finish_reason != "length"]
            assert failed == [13] and answers[13].code == "request_failed_isolated"
            told = [list(answer.token_ids) for answer in answers if answer.finish_reason == "length"]
            assert told == [[letter(place) for place in range(20)]] * (COUNT - 1)
            deaths = own.stats().failures.deaths
            print(f"\n31 finished, {deaths} restarts of {workers} workers")
            assert deaths <= 12
            with pytest.raises(RequestQuarantined):
                own.submit((KILLS, 14), ASKED)
            own.check()

    run(body())


@pytest.mark.real
@pytest.mark.full
def test_sixteen_greedy_streams_of_the_real_model_survive_a_kill() -> None:
    config = EngineConfig(dtype="float32", deterministic=True)
    params = SamplingParams(temperature=0, max_tokens=48, ignore_eos=True)

    async def body() -> None:
        async with AsyncEngine("smollm2", config) as own:
            prompts = [await own.encode(f"{number} things that I like about the sea:") for number in range(16)]
            control = await asyncio.gather(*(own.generate(prompt, params) for prompt in prompts))
            streams = [own.submit(prompt, params) for prompt in prompts]
            begun = [await anext(stream) for stream in streams]
            (link,) = own._crew.links
            assert isinstance(link, ProcessLink) and link.pid is not None
            os.kill(link.pid, signal.SIGKILL)
            killed = monotonic()
            back: list[float] = []
            rests = await asyncio.gather(*(rest_of(stream, back) for stream in streams))
            answers = [Completion.join([first, *rest]) for first, rest in zip(begun, rests, strict=True)]
            assert [answer.token_ids for answer in answers] == [answer.token_ids for answer in control]
            start = own.stats().failures.loads.mean
            print(f"\n16 streams go on {max(back) - killed:.1f} s after the kill, {start:.1f} s is a worker's start")
            own.check()

    run(body())


async def rest_of(stream: Stream, back: list[float]) -> list[Any]:
    """What comes after the first delta; `back` gets the instant of the next one."""
    rest = []
    async for delta in stream:
        if not rest:
            back.append(monotonic())
        rest.append(delta)
    return rest
