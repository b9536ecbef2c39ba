"""Kinds of traffic, drawn from what is published of their lengths. What requests say is not in it.

chat: first turns of ShareGPT, of which the means are known (Kwon et al., vLLM, SOSP 2023); that lengths are about
exponential is ServeGen's finding for answers (Xiang et al., arXiv 2505.09999), and an assumption for prompts.
conversation, code: Azure's traces of 2023 (Patel et al., Splitwise, ISCA 2024; CC-BY-4.0); a prompt holds all earlier
turns. reasoning: ServeGen's DeepSeek-R1 clients (Apache-2.0). summaries: arXiv papers of at most 4,096 tokens, with
their abstracts (Agrawal et al., Vidur, MLSys 2024; MIT).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from random import Random
from typing import Protocol

from ..simulation.processes import gamma
from ..simulation.trace import Arrival, Trace

POINTS = (0, 1, 5, 10, 25, 50, 75, 90, 95, 99, 99.9, 100)  # percent


class Lengths(Protocol):
    """Tokens of a prompt or an answer."""

    def draw(self, random: Random) -> int: ...


@dataclass(frozen=True, slots=True)
class Exponential:
    """Of which the mean is known."""

    mean: float

    def draw(self, random: Random) -> int:
        return max(1, round(random.expovariate(1 / self.mean)))


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Tokens at each of POINTS; between two of them the logarithm rises evenly."""

    tokens: Sequence[int]

    def __post_init__(self) -> None:
        assert len(self.tokens) == len(POINTS) and sorted(self.tokens) == list(self.tokens)

    def at(self, percent: float) -> float:
        """The length that so many percent are at most."""
        place = max(1, next(place for place, point in enumerate(POINTS) if percent <= point))
        low, high = (math.log(self.tokens[each]) for each in (place - 1, place))
        part = (percent - POINTS[place - 1]) / (POINTS[place] - POINTS[place - 1])
        return math.exp(low + part * (high - low))

    def draw(self, random: Random) -> int:
        return max(1, round(self.at(100 * random.random())))


@dataclass(frozen=True, slots=True, kw_only=True)
class Mix:
    """One kind of traffic. Prompts and answers are drawn independently: in the traces they hardly depend on each
    other, but for summaries (-0.45), where what was kept has a bounded sum.

    spread: coefficient of variation of the gaps between arrivals, which are gamma distributed. Azure's code trace has
    3.0 without pauses of over 10 s. shorter: what lengths are divided by for a small model.
    """

    about: str
    prompt: Lengths
    answer: Lengths
    spread: float
    shorter: float

    def trace(self, name: str, requests: int, seed: int) -> Trace:
        """So many requests, about one a second."""
        random = Random(f"{name} {seed}")
        instants = islice(gamma(1.0, math.inf, random, spread=self.spread), requests)
        drawn = (
            Arrival(at=at, prompt_tokens=self.prompt.draw(random), outputs=self.answer.draw(random)) for at in instants
        )
        return Trace.of(name, drawn)


MIXES = {
    "chat": Mix(
        about="ShareGPT, first turns",
        prompt=Exponential(161.3),
        answer=Exponential(338.0),
        spread=1.1,
        shorter=16,
    ),
    "conversation": Mix(
        about="Azure 2023, conversations",
        prompt=Quantiles((2, 29, 181, 207, 396, 1020, 1189, 2735, 4083, 4142, 6212, 14050)),
        answer=Quantiles((7, 16, 41, 54, 85, 129, 395, 424, 451, 601, 954, 1000)),
        spread=1.1,
        shorter=16,
    ),
    "code": Mix(
        about="Azure 2023, code",
        prompt=Quantiles((3, 17, 75, 147, 578, 1469, 2745, 5194, 7315, 7436, 7437, 7437)),
        answer=Quantiles((6, 6, 6, 7, 9, 13, 24, 55, 90, 252, 831, 1899)),
        spread=3.0,
        shorter=16,
    ),
    "reasoning": Mix(
        about="ServeGen, DeepSeek-R1",
        prompt=Quantiles((5, 11, 26, 28, 200, 353, 512, 934, 1722, 9742, 26657, 32262)),
        answer=Quantiles((62, 137, 222, 271, 379, 519, 820, 1465, 1652, 7218, 18995, 22024)),
        spread=1.4,
        shorter=32,
    ),
    "summaries": Mix(
        about="arXiv papers",
        prompt=Quantiles((1, 107, 781, 1239, 1994, 2733, 3369, 3712, 3813, 3935, 4005, 4054)),
        answer=Quantiles((12, 35, 62, 80, 116, 167, 244, 370, 697, 3217, 3826, 4009)),
        spread=1.0,
        shorter=16,
    ),
}


def fitted(trace: Trace, context: int) -> Trace:
    """The same, prompts cut to what the context leaves beside the answer; an answer has at most half of it."""
    arrivals = []
    for each in trace.arrivals:
        outputs = min(each.answer, context // 2)
        prompt = min(each.prompt_tokens, context - outputs)
        arrivals.append(Arrival(at=each.at, prompt_tokens=prompt, outputs=outputs))
    return Trace.of(trace.name, arrivals)
