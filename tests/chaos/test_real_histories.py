"""Seeded histories on the real model: its worker is killed amid streams, and their tokens are the control's."""

import asyncio
import os
import signal
from collections import Counter
from random import Random

import pytest

from fairstep import AsyncEngine, EngineConfig, SamplingParams
from fairstep.links import ProcessLink
from fairstep.streams import Stream

CONFIG = EngineConfig(dtype="float32", deterministic=True, max_seats=8)
SLICE, WHOLE = 1, 20
TOKENS = 24
SUBJECTS = ("the sea", "bread", "trees", "winter", "trains", "music")
Asked = tuple[str, SamplingParams]


def asked_in(pick: Random) -> list[Asked]:
    """What clients ask in a history: greedy streams, and some with seeds."""
    asked = []
    for _ in range(pick.randint(3, 8)):
        temperature, seed = pick.choice((0.0, 0.0, 0.8)), pick.randrange(1000)
        params = SamplingParams(temperature=temperature, seed=seed, max_tokens=TOKENS, ignore_eos=True)
        asked.append((f"What I like about {pick.choice(SUBJECTS)}:", params))
    return asked


async def tokens_of(engine: AsyncEngine, stream: Stream, kill_after: int | None) -> list[int]:
    """A stream's tokens; the worker is killed after so many of its deltas."""
    tokens: list[int] = []
    heard = 0
    async for delta in stream:
        tokens += delta.token_ids
        heard += 1
        assert delta.error is None, delta.error
        if heard == kill_after:
            (link,) = engine._crew.links
            assert isinstance(link, ProcessLink) and link.pid is not None
            os.kill(link.pid, signal.SIGKILL)
    return tokens


async def played(engine: AsyncEngine, asked: list[Asked], kill_after: int | None) -> list[list[int]]:
    """The tokens of all, asked at once."""
    streams = [engine.submit(await engine.encode(prompt), params) for prompt, params in asked]
    kills = [kill_after, *[None] * (len(streams) - 1)]
    told = (tokens_of(engine, stream, kill) for stream, kill in zip(streams, kills, strict=True))
    return list(await asyncio.gather(*told))


async def play(seeds: range) -> Counter[str]:
    """Each history has a server of its own, so that its retry budget is full."""
    counts: Counter[str] = Counter()
    for seed in seeds:
        pick = Random(seed)
        asked, kill_after = asked_in(pick), pick.randint(1, TOKENS - 4)
        async with AsyncEngine("smollm2", CONFIG) as engine:
            control = await played(engine, asked, None)
            told = await played(engine, asked, kill_after)
            assert told == control, f"history {seed}: a stream has other tokens than without the kill"
            engine.check()
            failures = engine.stats().failures
        counts += Counter({"accepted": len(asked), "finished": len(told), "killed": failures.deaths})
        counts["retried"] += failures.retried
    return counts


def run(count: int) -> None:
    counts = asyncio.run(play(range(count)))
    print(f"\n{count} histories on the real model: {dict(sorted(counts.items()))}")
    assert counts["killed"] == count and counts["retried"]


@pytest.mark.real
def test_a_slice_of_the_histories_on_the_real_model() -> None:
    run(SLICE)


@pytest.mark.real
@pytest.mark.full
@pytest.mark.timeout(1800)
def test_twenty_histories_on_the_real_model() -> None:
    run(WHOLE)
