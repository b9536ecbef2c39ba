"""When a request will have its first token and its end, from what waits before it and what was measured. Pure.

It knows no queue and no policy: units served before it are handed in (backlog.py), speeds too. What was not measured
yet takes no time here, so that nothing but the certain is refused then.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil

from ..door import Coefficients
from .limits import Need

NOTHING = Coefficients(base=0.0, prompt=0.0, sequence=0.0, context=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """The worker as measured. coefficients: of a step. units: of cost a second while others wait; None: not known yet.

    chunk: most prompt tokens of a step. least_step: the shortest step there can be, in seconds.
    """

    coefficients: Coefficients | None = None
    units: float | None = None
    chunk: int = 512
    least_step: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """What runs now. context: tokens of all running sequences. prompt_left: those of prompts still to be computed.

    free: whether a seat and pages are free. residual: seconds until they come free. step: seconds of late steps with
    prompt tokens in them, 0 if there are none.
    """

    sequences: int = 0
    context: int = 0
    prompt_left: int = 0
    free: bool = True
    residual: float = 0.0
    step: float = 0.0


IDLE = Running()


@dataclass(frozen=True, slots=True)
class Forecast:
    """Seconds from now until a request begins, has its first token, and has ended."""

    wait: float
    first: float
    whole: float

    def later(self, seconds: float) -> "Forecast":
        """The same after so much more waiting."""
        return Forecast(self.wait + seconds, self.first + seconds, self.whole + seconds)


@dataclass(frozen=True, slots=True)
class Prospect:
    """What to expect of a request now, on an idle server, and what it takes at the very least."""

    expected: Forecast
    alone: Forecast
    least: Forecast


def forecast(need: Need, units_ahead: int, running: Running, speed: Speed) -> Forecast:
    """What to expect of a request, with so much served before it. Outputs are those of one of its sequences."""
    wait = 0.0 if running.free and not units_ahead else running.residual
    if speed.units:
        wait += units_ahead / speed.units
    first = wait + _prefill(need.prompt_tokens, running, speed)
    outputs = need.outputs // need.sequences
    return Forecast(wait, first, first + max(0, outputs - 1) * _decode(need, running, speed))


def residual(running: Iterable[tuple[float, int]], pages: int) -> float:
    """Seconds until a seat and `pages` more pages come free, from what each running sequence has left and holds.

    If all of them together hold too few, until the last has ended.
    """
    last = 0.0
    for seconds, held in sorted(running):
        last, pages = seconds, pages - held
        if pages <= 0:
            break
    return last


def least(need: Need, speed: Speed, *, least_outputs: int = 1, cached: bool = True) -> Forecast:
    """What it takes at the very least. cached: its prompt's pages may be found. least_outputs: of one sequence."""
    chunks = 1 if cached else max(1, ceil(need.prompt_tokens / speed.chunk))
    first = chunks * speed.least_step
    return Forecast(0.0, first, first + max(0, least_outputs - 1) * speed.least_step)


def prospect(
    need: Need, units_ahead: int, running: Running, speed: Speed, *, least_outputs: int = 1, cached: bool = True
) -> Prospect:
    """All that a deadline is judged by, for a server that steps."""
    return Prospect(
        forecast(need, units_ahead, running, speed),
        forecast(need, 0, IDLE, speed),
        least(need, speed, least_outputs=least_outputs, cached=cached),
    )


def fixed(wait: float, compute: float) -> Prospect:
    """The same where a batch takes `compute` seconds, whatever is in it, and begins in `wait`."""
    idle = Forecast(0.0, compute, compute)
    return Prospect(Forecast(wait, wait + compute, wait + compute), idle, idle)


def _prefill(prompt: int, running: Running, speed: Speed) -> float:
    """Seconds of the steps that compute a prompt and what is left of those before it."""
    of = speed.coefficients or NOTHING
    steps = max(1, ceil((running.prompt_left + prompt) / speed.chunk))
    each = of.base + of.sequence * (running.sequences + 1) + of.context * running.context
    own = of.context * prompt * (ceil(prompt / speed.chunk) + 1) / 2  # a chunk attends to all before it
    return steps * each + of.prompt * (running.prompt_left + prompt) + own


def _decode(need: Need, running: Running, speed: Speed) -> float:
    """Seconds a token, with this request's sequences beside the others."""
    of = speed.coefficients or NOTHING
    tokens = running.context + need.sequences * need.prompt_tokens
    modelled = of.base + of.sequence * (running.sequences + need.sequences) + of.context * tokens
    return max(modelled, running.step) if speed.coefficients else 0.0
