"""When a tenant's requests come, and how long they are: constant, Poisson, gamma, on/off. Seeded by the caller."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from random import Random

from .trace import Arrival


@dataclass(frozen=True, slots=True)
class Lengths:
    """Bounds of prompt and answer, both drawn evenly between them (the bounds included)."""

    prompt: tuple[int, int]
    outputs: tuple[int, int]

    @classmethod
    def fixed(cls, prompt: int, outputs: int) -> "Lengths":
        return cls((prompt, prompt), (outputs, outputs))

    def draw(self, random: Random) -> tuple[int, int]:
        return random.randint(*self.prompt), random.randint(*self.outputs)


def constant(rate: float, seconds: float, *, phase: float = 0.0, start: float = 0.0) -> Iterator[float]:
    """Instants 1 / rate apart in [start, start + seconds). phase: where in the first gap they begin, in [0, 1)."""
    count = 0
    while (at := (phase + count) / rate) < seconds:
        yield start + at
        count += 1


def poisson(rate: float, seconds: float, random: Random, *, start: float = 0.0) -> Iterator[float]:
    """Independent arrivals."""
    return gamma(rate, seconds, random, spread=1.0, start=start)


def gamma(rate: float, seconds: float, random: Random, *, spread: float, start: float = 0.0) -> Iterator[float]:
    """Gaps of a gamma distribution. spread: their coefficient of variation; 1 is Poisson, more is burstier."""
    shape = 1 / spread**2
    at = random.gammavariate(shape, 1 / (rate * shape))
    while at < seconds:
        yield start + at
        at += random.gammavariate(shape, 1 / (rate * shape))


def rising(first: float, last: float, seconds: float) -> Iterator[float]:
    """Gaps of one over a rate that rises evenly from `first` to `last`."""
    at = 1 / first
    while at < seconds:
        yield at
        at += 1 / (first + (last - first) * at / seconds)


def on_off(instants: Iterable[float], period: float) -> Iterator[float]:
    """Those in the first, third, ... period."""
    return (at for at in instants if int(at // period) % 2 == 0)


def requests(tenant: str, instants: Iterable[float], lengths: Lengths, random: Random) -> Iterator[Arrival]:
    """A tenant's requests at these instants."""
    for at in instants:
        prompt, outputs = lengths.draw(random)
        yield Arrival(at=at, tenant=tenant, prompt_tokens=prompt, outputs=outputs)
