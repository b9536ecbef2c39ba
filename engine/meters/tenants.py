"""What is counted of each tenant, under no more names than a page of metrics can bear.

Tenants of the book are named first, in its order, then whoever asks while there are names left; the others are counted
together. Who has a name keeps it.
"""

from collections import Counter
from collections.abc import Iterable, Iterator

from ..admission.waiting_time import Waited
from ..stats import OTHER, TenantStats
from .histogram import Histogram

MOST_NAMES = 100


class TenantMeter:
    """One name's counts. Times in seconds."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.first_token, self.gap = Histogram(), Histogram()
        self._by_choice, self._for_worker = Histogram(), Histogram()
        self.outputs = 0
        self._accepted = 0
        self._refused: Counter[str] = Counter()
        self._uncached = 0
        self._cached = 0
        self._yields = 0

    def accepted(self) -> None:
        """A request was accepted."""
        self._accepted += 1

    def refused(self, code: str) -> None:
        """A request ended with an error of this code, at the door or later."""
        self._refused[code] += 1

    def began(self, waited: Waited) -> None:
        """A request was admitted for the first time."""
        self._by_choice.observe(waited.by_choice)
        self._for_worker.observe(waited.for_worker)

    def found(self, cached: int) -> None:
        """So much of a prompt was in the prefix cache."""
        self._cached += cached

    def served(self, *, uncached: int, outputs: int) -> None:
        """Tokens of a prompt were computed for the first time, or drawn."""
        self._uncached += uncached
        self.outputs += outputs

    def yielded(self) -> None:
        """A sequence gave its seat back."""
        self._yields += 1

    def stats(self) -> TenantStats:
        """As it is now."""
        return TenantStats(
            name=self.name,
            accepted=self._accepted,
            refused=dict(self._refused),
            by_choice=self._by_choice.frozen(),
            for_worker=self._for_worker.frozen(),
            first_token=self.first_token.frozen(),
            gap=self.gap.frozen(),
            uncached_tokens=self._uncached,
            cached_tokens=self._cached,
            output_tokens=self.outputs,
            yields=self._yields,
        )


class TenantMeters:
    """Owner of the names. most: of them, OTHER not counted."""

    def __init__(self, most: int = MOST_NAMES) -> None:
        self._most = most
        self._named: dict[str, TenantMeter] = {}
        self._other = TenantMeter(OTHER)

    def name(self, tenants: Iterable[str]) -> None:
        """These are in the book: the first of them get names before anybody who is not."""
        for tenant in tenants:
            self.of(tenant)

    def of(self, tenant: str) -> TenantMeter:
        """Where a tenant is counted."""
        meter = self._named.get(tenant)
        if meter is not None:
            return meter
        if len(self._named) >= self._most or tenant == OTHER:
            return self._other
        meter = self._named[tenant] = TenantMeter(tenant)
        return meter

    def name_of(self, tenant: str) -> str:
        """Under which name a tenant is counted."""
        return tenant if tenant in self._named else OTHER

    def __iter__(self) -> Iterator[TenantMeter]:
        """All, OTHER last."""
        yield from self._named.values()
        yield self._other
