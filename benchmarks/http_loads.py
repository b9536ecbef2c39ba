"""Loads on a server over HTTP, and what its clients saw: closed loop, open loop, a long prompt beside a stream.

Knows no engine. Every load is drawn from a seed, so that all servers get the same one.
"""

import asyncio
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from random import Random
from typing import Any

from stream_client import Answer, Form, StreamClient

Figures = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Sizes:
    """Tokens, unless said otherwise. turns: requests of each client. arrivals: requests at each rate.

    before: tokens of the stream before the long prompt comes; stream: the most that it may go on for.
    """

    prompt: int = 128
    answer: int = 64
    turns: int = 3
    arrivals: int = 40
    long_prompt: int = 3000
    long_answer: int = 16
    before: int = 32
    stream: int = 1024


SMOKE = Sizes(prompt=16, answer=8, turns=2, arrivals=3, long_prompt=64, long_answer=2, before=4, stream=48)


@dataclass(frozen=True, slots=True)
class Asker:
    """A server's client, and how that server wants to be asked."""

    client: StreamClient
    form: Form
    sizes: Sizes

    async def closed(self, clients: int, seed: int) -> Figures:
        """So many clients, each of which asks again as soon as it is answered."""
        bodies = iter([*self._bodies(clients * self.sizes.turns, Random(seed))])

        async def one() -> list[Answer]:
            return [await self.client.ask(body) for body in bodies]

        each = await asyncio.gather(*(one() for _ in range(clients)))
        return self._figures([answer for answers in each for answer in answers])

    async def open(self, rate: float, seed: int) -> Figures:
        """Requests that come whether or not others are answered, so many a second in the mean, independently."""
        random = Random(seed)
        instants = accumulate(random.expovariate(rate) for _ in range(self.sizes.arrivals))

        async def later(body: dict[str, Any], seconds: float) -> Answer:
            await asyncio.sleep(seconds)
            return await self.client.ask(body)

        bodies = self._bodies(self.sizes.arrivals, random)
        return self._figures(await asyncio.gather(*map(later, bodies, instants)))

    async def long_prompt(self, seed: int) -> Figures:
        """A long prompt comes while another's answer is streaming; the stream ends when that prompt is answered."""
        random, begun, answered = Random(seed), asyncio.Event(), asyncio.Event()

        def enough(tokens: int) -> bool:
            if tokens >= self.sizes.before:
                begun.set()
            return answered.is_set()

        stream = asyncio.create_task(
            self.client.ask(self.form.body(self.sizes.prompt, self.sizes.stream, random), enough)
        )
        late = asyncio.create_task(begun.wait())
        await asyncio.wait((stream, late), return_when=asyncio.FIRST_COMPLETED)
        long = await self.client.ask(self.form.body(self.sizes.long_prompt, self.sizes.long_answer, random))
        answered.set()
        beside = await stream
        late.cancel()
        return gaps_beside(beside, long)

    def _bodies(self, count: int, random: Random) -> Iterator[dict[str, Any]]:
        return (self.form.body(self.sizes.prompt, self.sizes.answer, random) for _ in range(count))

    def _figures(self, answers: Sequence[Answer]) -> Figures:
        return {**figures(answers), "short": sum(answer.count < self.sizes.answer for answer in answers)}


def figures(answers: Sequence[Answer]) -> Figures:
    """Rates from the first request to the last token; seconds elsewhere. pace: an answer's mean from token to token."""
    seconds = max(answer.tokens[-1] for answer in answers) - min(answer.asked for answer in answers)
    waits = [answer.ttft for answer in answers]
    return {
        "tokens_per_second": round(sum(answer.count for answer in answers) / seconds, 1),
        "requests_per_second": round(len(answers) / seconds, 2),
        "ttft": rounded(statistics.median(waits)),
        "ttft_worst": rounded(max(waits)),
        "pace": rounded(statistics.median(pace(answer) for answer in answers)),
        "longest_gap": rounded(max(max(gaps_seen(answer), default=0.0) for answer in answers)),
        "answered": rounded(statistics.median(answer.ended - answer.asked for answer in answers)),
        "prompt_tokens": statistics.fmean(answer.prompt_tokens for answer in answers),
    }


def gaps_beside(stream: Answer, long: Answer) -> Figures:
    """What a stream and the long prompt that came into it did to each other. outlived: the stream saw it answered."""
    instants = sorted({*stream.tokens})
    before = [instant for instant in instants if instant <= long.asked] or instants[:1]
    first = long.tokens[0]
    until = next((instant for instant in instants if instant >= first), instants[-1])
    beside = [instant for instant in instants if before[-1] <= instant <= until]
    quiet, largest = statistics.median(gaps_of(before) or [0.0]), max(gaps_of(beside), default=0.0)
    return {
        "quiet_gap": rounded(quiet),
        "largest_gap": rounded(largest),
        "gaps": round(largest / quiet, 2) if quiet else 0.0,
        "ttft": rounded(long.ttft),
        "outlived": instants[-1] >= first,
        "prompt_tokens": long.prompt_tokens,
    }


def pace(answer: Answer) -> float:
    return (answer.tokens[-1] - answer.tokens[0]) / max(1, answer.count - 1)


def gaps_seen(answer: Answer) -> list[float]:
    """Between chunks: tokens of one chunk came together."""
    return gaps_of(sorted({*answer.tokens}))


def gaps_of(instants: Sequence[float]) -> list[float]:
    return [later - sooner for sooner, later in pairwise(instants)]


def rounded(seconds: float) -> float:
    """To a tenth of a millisecond."""
    return round(seconds, 4)
