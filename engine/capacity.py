"""How many workers a load needs: arithmetic to begin with, never a promise of latency. Pure, times in seconds.

The fixed-time case is a worker that takes the same time for any batch; the other is a worker that computes token by
token, by the coefficients of its step model. Both are for a worker that is always busy: leave room above the least.
"""

from dataclasses import dataclass
from math import ceil

from .door import Coefficients
from .errors import ConfigError
from .stepping.settings import StepSettings


@dataclass(frozen=True, slots=True)
class CapacityPlan:
    """rate, each: requests a second, in all and that one worker can do. load: part of the workers' time that is used;
    above 1 the queue grows by `growth` requests a second, without end.
    """

    rate: float
    each: float
    least: int
    workers: int
    load: float
    growth: float


def plan_capacity(rate: float, each: float, workers: int | None = None) -> CapacityPlan:
    """What `rate` requests a second need of workers that do `each` a second. workers: how many there are to be.

    >>> each = fixed_time_rate(mean_batch=32, batch_seconds=0.1)
    >>> each, plan_capacity(1000, each).least
    (320.0, 4)
    >>> [plan_capacity(1000, each, workers=n).load for n in (4, 5)]
    [0.78125, 0.625]
    >>> plan_capacity(1000, each, workers=3).growth
    40.0
    >>> half_full = fixed_time_rate(mean_batch=16, batch_seconds=0.1)
    >>> half_full, plan_capacity(1000, half_full).least, plan_capacity(1000, half_full, workers=5).growth
    (160.0, 7, 200.0)

    Raises ConfigError for a rate that is negative, or a worker that does nothing.
    """
    if rate < 0 or each <= 0 or (workers is not None and workers < 1):
        raise ConfigError(
            f"capacity: {rate} requests a second of {workers or 'any'} workers at {each} each make no plan"
        )
    least = max(1, ceil(rate / each))
    workers = least if workers is None else workers
    return CapacityPlan(rate, each, least, workers, rate / (each * workers), max(0.0, rate - each * workers))


def fixed_time_rate(*, mean_batch: float, batch_seconds: float) -> float:
    """Requests a second of a worker whose batches all take the same time. mean_batch: how full they are on average."""
    if mean_batch <= 0 or batch_seconds <= 0:
        raise ConfigError(f"capacity: batches of {mean_batch} requests in {batch_seconds} s make no rate")
    return mean_batch / batch_seconds


def step_model_rate(
    coefficients: Coefficients, settings: StepSettings, *, prompt_tokens: float, outputs: float
) -> float:
    """Requests a second of one worker that batches continuously, with all the sequences it can hold always running.

    coefficients: as measured (door.Report.coefficients). prompt_tokens, outputs: of a mean request, without prefix
    hits. In the long run a step draws a token for each running sequence and computes as many prompt tokens as finished
    requests make room for. Where memory is short or prompts are long, preemptions and the inter-token target take up to
    a fifth of it. Raises ConfigError if such a request fits nowhere.
    """
    if prompt_tokens < 1 or outputs < 1 or prompt_tokens + outputs > settings.pool_tokens:
        raise ConfigError(
            f"capacity: a request of {prompt_tokens} prompt tokens and {outputs} outputs does not fit a pool of "
            f"{settings.pool_tokens} tokens"
        )
    held = prompt_tokens + outputs / 2 + settings.page_size / 2  # tokens' room that a sequence has on average
    fed = 1 + (prompt_tokens - 1) / outputs  # tokens computed for each one drawn
    running = min(settings.seats, settings.pool_tokens / held, settings.step_tokens / fed)
    ended = running / outputs  # requests a step
    of, context = coefficients, running * (prompt_tokens + outputs / 2)
    step = of.base + of.prompt * ended * prompt_tokens + of.sequence * (running + ended) + of.context * context
    return ended / step


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeBudget:
    """An end-to-end promise and what is spent on the way; all in one unit. What is left is for waiting, as one pot.

    >>> budget = TimeBudget(total=200, way_in=20, compute=100, way_out=20)
    >>> budget.waiting
    60
    >>> budget.holds(by_choice=10, for_worker=50), budget.holds(by_choice=10, for_worker=60)
    (True, False)

    Raises ConfigError if the ways and the compute take all of it or more.
    """

    total: float
    way_in: float
    compute: float
    way_out: float

    def __post_init__(self) -> None:
        if self.waiting < 0 or (self.waiting == 0 and not self.way_in + self.way_out):
            raise ConfigError(
                f"a budget of {self.total} leaves no room: compute takes {self.compute}, the way in {self.way_in}, "
                f"the way out {self.way_out}"
            )

    @property
    def waiting(self) -> float:
        """For waiting by choice (to fill a batch) and for a busy worker together."""
        return self.total - self.way_in - self.compute - self.way_out

    def holds(self, *, by_choice: float, for_worker: float) -> bool:
        """Whether both waits together stay within the budget."""
        return by_choice + for_worker <= self.waiting
