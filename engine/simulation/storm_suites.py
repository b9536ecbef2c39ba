"""Deadline storms: four tenants whose requests are due, tight to loose, at a load from half to three times capacity.

An answer's length is known to nobody beforehand: max_tokens says little, and a tenant's answers differ. Some are due
as a whole, some from their first token on, some both.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import exp, log
from random import Random

from .processes import Lengths, gamma, requests
from .suite import Suite
from .trace import Arrival

LOADS = (0.5, 1.0, 1.5, 2.0, 3.0)
CAPACITY = 6.7  # requests a second of this mixture that the simulator's machine answers, as measured
MOST = 512  # what everybody sends as max_tokens
PROMPT_SECONDS, TOKEN_SECONDS = 0.000_3, 0.025  # about what the machine takes, alone
FIRST = 0.15  # seconds to a first token that nobody can do much better than
SPAN = 60.0


@dataclass(frozen=True, slots=True)
class Sender:
    """A tenant. part: of all requests. spread: of its gaps, 1 is Poisson."""

    name: str
    part: float
    lengths: Lengths
    spread: float = 1.0


SENDERS = (
    Sender("chat", 0.4, Lengths((64, 192), (48, 80))),
    Sender("search", 0.3, Lengths((400, 700), (16, 32)), spread=2.0),
    Sender("writer", 0.15, Lengths((32, 96), (180, 260))),
    Sender("mixed", 0.15, Lengths((16, 600), (20, 200))),
)


def storm(load: float) -> Suite:
    """The storm at so many times the machine's capacity."""

    def arrivals(random: Random, seconds: float) -> Iterator[Arrival]:
        for sender in SENDERS:
            instants = gamma(load * CAPACITY * sender.part, seconds, random, spread=sender.spread)
            for each in requests(sender.name, instants, sender.lengths, random):
                yield replace(_due(each, sender, random), max_tokens=MOST)

    about = f"deadlines tight to loose, at {load:g} times capacity"
    return Suite(about, arrivals, seconds=SPAN, drains=True)


def _due(each: Arrival, sender: Sender, random: Random) -> Arrival:
    """The same with deadlines: of the whole answer, of its first token, or both.

    What is usual for the tenant, alone, times 1.5 to 15: who asks knows no more of the answer than that.
    """
    kind = random.choice(("whole", "first", "both"))
    usual = sum(sender.lengths.outputs) / 2 * TOKEN_SECONDS + each.prompt_tokens * PROMPT_SECONDS
    whole, first = usual * _factor(random, 1.5, 15.0), FIRST * _factor(random, 2.0, 60.0)
    return replace(
        each,
        deadline=whole if kind != "first" else None,
        ttft_deadline=first if kind != "whole" else None,
    )


def _factor(random: Random, least: float, most: float) -> float:
    """As often between 2 and 4 as between 4 and 8."""
    return exp(random.uniform(log(least), log(most)))


STORMS = {f"storm_{load:g}": storm(load) for load in LOADS}
