"""The synthetic suites of VTC's experiments (Sheng et al., OSDI 2024): their names, rates and lengths.

Tenants are named by number. The paper's machine does about 3.3 requests of 256 / 256 a second, as ours here does.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from random import Random

from ..tenants import Tenants, TenantTerms
from .processes import Lengths, constant, on_off, poisson, requests, rising
from .suite import Suite
from .trace import Arrival

MEDIUM = Lengths.fixed(256, 256)
MIXED = Lengths((16, 511), (16, 511))
PERIOD = 60.0
FIRST_RATE = 0.2  # of a rate that rises

Arrivals = Callable[[Random, float], Iterable[Arrival]]


def even(*rates: float, on_off_first: bool = False) -> Arrivals:
    """Constant gaps, each tenant with a phase of its own; the first may be there every other minute only."""

    def arrivals(random: Random, seconds: float) -> Iterator[Arrival]:
        return _even(rates, random, seconds, on_off_first=on_off_first)

    return arrivals


def _even(
    rates: Sequence[float], random: Random, seconds: float, *, on_off_first: bool = False, start: float = 0.0
) -> Iterator[Arrival]:
    for number, rate in enumerate(rates, 1):
        instants: Iterable[float] = constant(rate, seconds, phase=random.random(), start=start)
        if on_off_first and number == 1:
            instants = on_off(instants, PERIOD)
        yield from requests(str(number), instants, MEDIUM, random)


def independent(*tenants: tuple[float, Lengths], on_off_first: bool = False) -> Arrivals:
    """Poisson arrivals: a rate and lengths for each tenant."""

    def arrivals(random: Random, seconds: float) -> Iterator[Arrival]:
        for number, (rate, lengths) in enumerate(tenants, 1):
            instants = poisson(rate, seconds, random)
            if on_off_first and number == 1:
                instants = on_off(instants, PERIOD)
            yield from requests(str(number), instants, lengths, random)

    return arrivals


def increase(random: Random, seconds: float) -> Iterator[Arrival]:
    """One tenant at a constant rate beside one whose rate rises."""
    yield from requests("1", constant(0.5, seconds), MEDIUM, random)
    yield from requests("2", rising(FIRST_RATE, 2.0, seconds), MEDIUM, random)


def shift(random: Random, seconds: float) -> Iterator[Arrival]:
    """Three parts: one on and off, both overloading, both below their share of it."""
    third = seconds / 3
    return chain(
        _even((0.5, 2.0), random, third, on_off_first=True),
        _even((1.0, 1.0), random, third, start=third),
        _even((0.5, 1.5), random, third, start=2 * third),
    )


VTC_SUITES = {
    "overload": Suite("256 / 256 at 1.5 and 3 a second", even(1.5, 3.0)),
    "overload_multi": Suite("256 / 256, three tenants at 0.4 and five at 0.6 a second", even(*[0.4] * 3, *[0.6] * 5)),
    "overload_weighted": Suite(
        "256 / 256 at 0.8, 0.8, 1.2 and 1.6 a second, of weights 1, 2, 3 and 4",
        even(0.8, 0.8, 1.2, 1.6),
        book=Tenants(tenants=[TenantTerms(str(weight), weight=weight) for weight in (1, 2, 3, 4)]),
    ),
    "proportional": Suite("256 / 256 at 0.25, 0.5 and 1.5 a second", even(0.25, 0.5, 1.5)),
    "increase": Suite("256 / 256 at 0.5 a second beside a rate that rises from 0.2 to 2", increase),
    "on_off_less": Suite("256 / 256 at 0.5 a second every other minute, beside 2", even(0.5, 2.0, on_off_first=True)),
    "on_off_overload": Suite("256 / 256 at 2 a second every other minute, beside 3", even(2.0, 3.0, on_off_first=True)),
    "poisson_on_off_overload": Suite(
        "16 to 511 both ways at 0.5 a second every other minute, beside 2",
        independent((0.5, MIXED), (2.0, MIXED), on_off_first=True),
    ),
    "poisson_short_long": Suite(
        "64 / 64 at 8 a second, 256 / 256 at 1.5", independent((8.0, Lengths.fixed(64, 64)), (1.5, MEDIUM))
    ),
    "poisson_short_long_2": Suite(
        "512 / 32 at 8 a second, 32 / 512 at 1.5",
        independent((8.0, Lengths.fixed(512, 32)), (1.5, Lengths.fixed(32, 512))),
    ),
    "dist_shift": Suite("256 / 256: one on and off, then 1 and 1 a second, then 0.5 and 1.5", shift, seconds=900.0),
}
