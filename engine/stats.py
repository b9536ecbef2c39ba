"""What an engine has counted and what it does now, as one frozen value: engine.stats(), and all that /metrics tells.

Times are in seconds. A unit of cost is a thousandth of a prompt token (fairness/pricing.py). docs/metrics.md says from
which instant to which each time goes.
"""

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from math import ceil, inf

from .fairness.pricing import CostModel
from .request import FinishReason

OTHER = "other"  # the name under which tenants without one of their own are counted together


@dataclass(frozen=True, slots=True)
class Distribution:
    """Values by size. counts: how many lay at or below each of `bounds` and above the one before; last, above all."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    sum: float = 0.0

    @property
    def count(self) -> int:
        return sum(self.counts)

    @property
    def mean(self) -> float | None:
        """None where nothing was counted."""
        return self.sum / self.count if self.count else None

    def quantile(self, part: float) -> float | None:
        """The smallest bound that so great a part of the values, 0 to 1, does not exceed; None without any value."""
        count = self.count
        if not count:
            return None
        place = bisect_left(list(accumulate(self.counts)), max(1, ceil(part * count)))
        return self.bounds[place] if place < len(self.bounds) else inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """State at the moment. kv_usage: part of the pages that sequences hold, 0 to 1.

    waiting counts every other live request, in the front's room or held by the worker. workers: that take part; others
    are being loaded, or are spare. desired: how many workers what there is to do asks for.
    """

    running: int = 0
    waiting: int = 0
    kv_usage: float = 0.0
    pages_total: int = 0
    workers: int = 1
    loading: int = 0
    spare: int = 0
    desired: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class DurableStats:
    """Work that outlives its client. responses, lines: that have ended, by outcome. lines_left: of batches in the
    making, those without a result.
    """

    responses_making: int
    responses: Mapping[str, int]
    batches_making: int
    lines_left: int
    lines: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureStats:
    """What broke, and what came of it.

    loads: seconds that each worker took to be ready. deaths: of workers that were ready; hung: those of them that were
    ended because no step of theirs ended. retried: requests to be computed again after a death, once for each.
    isolated: requests that alone brought a step or a worker down. retries_left: what the retry budget holds.
    """

    loads: Distribution
    deaths: int
    hung: int
    retried: int
    isolated: int
    retries_left: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestStats:
    """Requests so far: times, sizes in tokens, and how many ended for which reason.

    replayed: told an answer that another request had been computed for; in no other number here.
    """

    ended: Mapping[FinishReason, int]
    first_token: Distribution
    gap: Distribution
    whole: Distribution
    queue: Distribution
    decode: Distribution
    per_token: Distribution
    prompt_size: Distribution
    answer_size: Distribution
    most_tokens: Distribution
    prompt_tokens: int
    output_tokens: int
    replayed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StepStats:
    """The worker's steps so far, and what of their results was of no use."""

    tokens: Distribution
    prompt_tokens: Distribution
    decode_tokens: Distribution
    sequences: Distribution
    seconds: Distribution
    preemptions: int
    stale_results: int
    dropped_tokens: int
    prefix_looked_up: int
    prefix_found: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantStats:
    """A tenant so far. refused: requests by the stable code of the error they ended with.

    by_choice, for_worker: the two parts of the time in the queue. yields: sequences that gave their seat back.
    """

    name: str
    accepted: int
    refused: Mapping[str, int]
    by_choice: Distribution
    for_worker: Distribution
    first_token: Distribution
    gap: Distribution
    uncached_tokens: int
    cached_tokens: int
    output_tokens: int
    yields: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountStats:
    """A tenant in a tier, as its ledger and queue are now; of OTHER the sums, and of the two extremes the largest.

    share: its part of the tier by weight, 0 to 1, while it waits or runs. queued, charged, debt, largest_charge,
    largest_refund: units (see tier_room.Standing and swings.Swings). predicted_wait: seconds until a request of its own
    that came now would begin; None: nothing was measured yet.
    """

    tier: str
    tenant: str
    weight: int
    share: float
    waiting: int
    running: int
    queued: int
    charged: int
    debt: int
    largest_charge: int
    largest_refund: int
    predicted_wait: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TierStats:
    """A tier. ended: requests that ended other than by their client; good: of them, within the tier's targets.

    oldest_age: of what waits. queued, offered: units that wait, and that were asked for a second of late. bound: units,
    the most that the charges of two of its tenants may differ by weight (docs/fairness.md). predicted_wait: seconds
    until all that waits has begun. pressure: the part of `queued` that is due before it is expected to begin, 0 to 1.
    saturated: more is asked for, here and in the tiers before, than can be served. None: nothing was measured yet.
    """

    number: int
    name: str
    ended: int
    good: int
    waiting: int
    oldest_age: float
    queued: int
    offered: float
    bound: int
    predicted_wait: float | None
    pressure: float | None
    saturated: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerStats:
    """Terms of the ledger, and what is on nobody's bill. largest_quantum: of all that were used.

    capacity: units served a second while others waited. offered: units asked for a second, of late. system_units: what
    `recomputed` tokens would have cost.
    """

    quantum: int = 0
    largest_quantum: int = 0
    cost: CostModel = field(default_factory=CostModel)
    recomputed: int = 0
    system_units: int = 0
    offered: float = 0.0
    capacity: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """Everything. tenants: those with a name of their own, and last OTHER. accounts: of these, one a tier."""

    model_name: str
    live: Live
    requests: RequestStats
    steps: StepStats
    failures: FailureStats
    ledger: LedgerStats
    tiers: tuple[TierStats, ...]
    tenants: tuple[TenantStats, ...]
    accounts: tuple[AccountStats, ...]

    def tenant(self, name: str) -> TenantStats:
        """A tenant's, or what it is counted with."""
        return next((each for each in self.tenants if each.name == name), self.tenants[-1])

    def tier(self, name: str) -> TierStats:
        """A tier's. Raises KeyError if there is none of that name."""
        for each in self.tiers:
            if each.name == name:
                return each
        raise KeyError(name)
