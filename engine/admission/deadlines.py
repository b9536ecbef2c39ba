"""How long a request may take: deadlines as instants of the server, targets, and when one is lost for certain. Pure.

The ways in and out are taken off once, when a deadline comes in. What is left beside the computing is one pot for all
waiting: by choice (to fill a batch) and for a busy worker alike.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from math import inf

from ..errors import DeadlineImpossible


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Instants at which the first token, and the whole answer, must leave the server; None: whenever."""

    first: float | None = None
    whole: float | None = None

    @property
    def sooner(self) -> float | None:
        """What a tenant's queue sorts by."""
        return min((at for at in (self.first, self.whole) if at is not None), default=None)

    @property
    def param(self) -> str:
        """The field that the sooner one came from."""
        return "deadline_ms" if self.sooner == self.whole else "ttft_deadline_ms"

    def excess(self, first: float, whole: float) -> float:
        """By how much these instants miss the deadlines; negative: so much is left; -inf: there is no deadline."""
        pairs = ((first, self.first), (whole, self.whole))
        return max((at - deadline for at, deadline in pairs if deadline is not None), default=-inf)

    def last_start(self, to_first: float, to_whole: float) -> float:
        """The last instant at which it can begin and be in time, if it takes so many seconds; inf without deadline.

        Who hasn't begun then has lost.
        """
        first = inf if self.first is None else self.first - to_first
        whole = inf if self.whole is None else self.whole - to_whole
        return min(first, whole)

    def due(self, *, told: bool) -> float:
        """When it's over for a running request; told: its first token has come. inf without deadline."""
        first = inf if self.first is None or told else self.first
        return min(first, inf if self.whole is None else self.whole)


NO_DEADLINES = Deadlines()


@dataclass(frozen=True, slots=True)
class Allowances:
    """Seconds that a request takes to the server, and an answer back to the client."""

    way_in: float = 0.0
    way_out: float = 0.0

    def deadlines(self, received: float, first: float | None, whole: float | None) -> Deadlines:
        """Deadlines of a request that was received at an instant, from the client's seconds.

        Raises DeadlineImpossible where the ways alone take as long.
        """
        for name, seconds in (("ttft_deadline_ms", first), ("deadline_ms", whole)):
            if seconds is not None and seconds <= self.way_in + self.way_out:
                raise DeadlineImpossible(
                    f"{name} is {seconds * 1000:g}, and the way to the server and back takes "
                    f"{(self.way_in + self.way_out) * 1000:g} ms",
                    name,
                )
        at = received - self.way_in - self.way_out
        return Deadlines(None if first is None else at + first, None if whole is None else at + whole)


NO_ALLOWANCES = Allowances()


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyTarget:
    """Seconds that requests of a tier, endpoint or model should take. It judges them at the door and never ends them.

    tier None: all. endpoint, model: patterns with * and ?.
    """

    first: float | None = None
    whole: float | None = None
    tier: int | None = None
    endpoint: str = "*"
    model: str = "*"

    def applies(self, tier: int, endpoint: str, model: str) -> bool:
        fits_tier = self.tier is None or self.tier == tier
        return fits_tier and fnmatchcase(endpoint, self.endpoint) and fnmatchcase(model, self.model)


@dataclass(frozen=True, slots=True)
class Span:
    """Seconds to the first token and to the whole answer; None: no target."""

    first: float | None = None
    whole: float | None = None

    def deadlines(self, received: float, alone: tuple[float, float]) -> Deadlines:
        """The span as deadlines. What takes longer even `alone` (seconds to both) may wait as long as the span."""
        limits = [
            None if span is None else received + (span if least <= span else least + span)
            for span, least in zip((self.first, self.whole), alone, strict=True)
        ]
        return Deadlines(*limits)


def tightest(targets: Iterable[LatencyTarget], tier: int, endpoint: str, model: str) -> Span:
    """The shortest of the targets that apply, of each kind."""
    apply = [target for target in targets if target.applies(tier, endpoint, model)]
    first = min((target.first for target in apply if target.first is not None), default=None)
    return Span(first, min((target.whole for target in apply if target.whole is not None), default=None))
