"""When a request will have its first token and its end, from its wait and from what was measured. Pure.

It knows no queue and no policy: the wait for its turn is handed in (rehearsal.py), speeds too. What was not measured
takes no time here, so that nothing but the certain is refused then.
"""

from dataclasses import dataclass
from math import ceil, inf

from ..door import Coefficients
from .limits import Need

NOTHING = Coefficients(base=0.0, prompt=0.0, sequence=0.0, context=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """The worker as measured. coefficients: of a step; None: not known yet.

    chunk: most prompt tokens of a step. beside: the same beside decodes. least_step: the shortest step there can be, in
    seconds.
    """

    coefficients: Coefficients | None = None
    chunk: int = 512
    beside: float = inf
    least_step: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """What runs beside a request. context: tokens of all these sequences.

    prompt_left: tokens of their prompts that are computed before its own. step: seconds that late steps took.
    """

    sequences: int = 0
    context: int = 0
    prompt_left: int = 0
    step: float = 0.0


IDLE = Running()


@dataclass(frozen=True, slots=True)
class Forecast:
    """Seconds from now until a request begins, has its first token, and has ended."""

    wait: float
    first: float
    whole: float

    @property
    def answer(self) -> float:
        """Seconds from the first token to the end."""
        return self.whole - self.first


@dataclass(frozen=True, slots=True)
class Prospect:
    """What to expect of a request now, on an idle server, and what it takes at the very least.

    expected None: its tenant's answers are not known yet, so that nothing but the certain counts.
    """

    expected: Forecast | None
    alone: Forecast
    least: Forecast


def forecast(need: Need, wait: float, running: Running, speed: Speed) -> Forecast:
    """What to expect of a request that begins in so many seconds. Outputs are those of one of its sequences."""
    first = wait + _prefill(need.prompt_tokens, running, speed)
    outputs = need.outputs // need.sequences
    return Forecast(wait, first, first + max(0, outputs - 1) * _decode(need, running, speed))


def least(need: Need, speed: Speed, *, cached: bool = True) -> Forecast:
    """What it takes at the very least. cached: its prompt's pages may be found."""
    chunks = 1 if cached else max(1, ceil(need.prompt_tokens / speed.chunk))
    first = chunks * speed.least_step
    return Forecast(0.0, first, first + max(0, need.least - 1) * speed.least_step)


def fixed(wait: float, compute: float) -> Prospect:
    """The same where a batch takes `compute` seconds, whatever is in it, and begins in `wait`."""
    idle = Forecast(0.0, compute, compute)
    return Prospect(Forecast(wait, wait + compute, wait + compute), idle, idle)


def _prefill(prompt: int, running: Running, speed: Speed) -> float:
    """Seconds of the steps that compute a prompt and what is left of those before it."""
    of = speed.coefficients or NOTHING
    chunk = min(speed.chunk, max(1.0, speed.beside)) if running.sequences else speed.chunk
    steps = max(1, ceil((running.prompt_left + prompt) / chunk))
    each = of.base + of.sequence * (running.sequences + 1) + of.context * running.context
    own = of.context * prompt * (ceil(prompt / speed.chunk) + 1) / 2  # a chunk attends to all before it
    joins = running.step / 2 if running.sequences else 0.0  # it comes in the middle of a step
    return joins + steps * each + of.prompt * (running.prompt_left + prompt) + own


def _decode(need: Need, running: Running, speed: Speed) -> float:
    """Seconds a token, with this request's sequences beside the others."""
    of = speed.coefficients or NOTHING
    tokens = running.context + need.sequences * need.prompt_tokens
    modelled = of.base + of.sequence * (running.sequences + need.sequences) + of.context * tokens
    return max(modelled, running.step) if speed.coefficients else 0.0
