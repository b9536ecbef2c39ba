"""Limits a minute and a month together: a request takes of all that apply to it, or of none.

What it is expected to use is taken when it arrives and put right when it ends, so that requests side by side cannot
pass a limit together. Minutes are buckets kept here; months are counts in a store.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import QuotaExhausted, RateLimited, StoreFailed
from .bucket import Bucket
from .limit_store import Draw, LimitStore
from .limits import Limit, Quantities, What
from .month import Month, month_of

MIN_SWEEP = 256  # below this many buckets, sweeping is not worth it


@dataclass(frozen=True, slots=True)
class RateFigure:
    """What a client is told of a limit a minute. reset: seconds until nothing of it is used."""

    what: What
    limit: int
    remaining: int
    reset: float


@dataclass(frozen=True, slots=True)
class Reservation:
    """What a request has taken: of each limit so much."""

    tenant: str
    taken: tuple[tuple[Limit, int], ...]
    month: int


class RateLimits:
    """Owner of the buckets. Instants: `now` of the engine's clock for minutes, `unix` in Unix seconds for months."""

    def __init__(self, store: LimitStore) -> None:
        self._store = store
        self._buckets: dict[tuple[str, str], Bucket] = {}
        self._sweep_at = MIN_SWEEP
        self._month = Month(0)
        self._late: list[Draw] = []  # corrections that the store could not take yet

    def precheck(self, tenant: str, limits: Sequence[Limit], now: float) -> None:
        """Raise RateLimited if not even the smallest request may come now. Takes nothing."""
        self._sweep(now)
        smallest = Quantities(requests=1, input_tokens=1)
        minutes = [limit for limit in limits if limit.per == "minute"]
        self._check_minutes([(each, each.reserved(smallest), self._bucket(tenant, each, now)) for each in minutes], now)

    def reserve(
        self, tenant: str, limits: Sequence[Limit], quantities: Quantities, *, now: float, unix: float
    ) -> Reservation:
        """Take of all `limits`. Raises RateLimited, QuotaExhausted or StoreFailed, and has taken nothing then."""
        self._sweep(now)
        month = self._month_at(unix).number
        needs = tuple((limit, limit.reserved(quantities)) for limit in limits)
        buckets = [(limit, need, self._bucket(tenant, limit, now)) for limit, need in needs if limit.per == "minute"]
        self._check_minutes(buckets, now)
        self._take_months(tenant, needs, month)
        for _, need, bucket in buckets:
            bucket.take(need, now)
        return Reservation(tenant, needs, month)

    def settle(self, reservation: Reservation, actual: Quantities, *, now: float) -> None:
        """Put right what was taken, once the request has ended: limits may go into debt."""
        self._sweep(now)
        changes = [(limit, limit.part(actual) - taken) for limit, taken in reservation.taken]
        for limit, change in changes:
            bucket = self._buckets.get((reservation.tenant, limit.counted))
            if limit.per == "minute" and change > 0:
                (bucket or self._bucket(reservation.tenant, limit, now)).take(change, now)
            elif limit.per == "minute" and bucket is not None:
                bucket.give_back(-change, now)
        months = [(limit, change) for limit, change in changes if limit.per == "month" and change]
        self._add_late(self._draws(reservation.tenant, months, reservation.month))

    def cancel(self, reservation: Reservation, *, now: float) -> None:
        """Give all of it back: nothing was done for it."""
        self.settle(reservation, Quantities(), now=now)

    def figures(self, tenant: str, limits: Sequence[Limit], now: float) -> tuple[RateFigure, ...]:
        """Of each quantity that is limited a minute, the limit with the least left."""
        self._sweep(now)
        tightest: dict[What, RateFigure] = {}
        for limit in limits:
            if limit.per != "minute":
                continue
            bucket = self._bucket(tenant, limit, now)
            left = max(0, int(bucket.left(now)))
            figure = RateFigure(limit.what, limit.amount, min(left, limit.amount), bucket.until_full(now))
            if limit.what not in tightest or figure.remaining < tightest[limit.what].remaining:
                tightest[limit.what] = figure
        return tuple(tightest.values())

    def owed(self, tenant: str, limit: Limit, now: float) -> float:
        """What a bucket has given and not got back."""
        bucket = self._buckets.get((tenant, limit.counted))
        return bucket.amount - bucket.left(now) if bucket is not None else 0.0

    def check(self) -> None:
        """Assert that buckets owe, never own, and that they don't pile up."""
        assert all(bucket.owed >= 0.0 for bucket in self._buckets.values()), "a bucket holds more than its limit"
        assert len(self._buckets) < self._sweep_at + MIN_SWEEP, "full buckets pile up"

    def _check_minutes(self, buckets: Sequence[tuple[Limit, int, Bucket]], now: float) -> None:
        waits = [(bucket.wait(need, now), limit, need, bucket) for limit, need, bucket in buckets]
        longest = max(waits, key=lambda wait: wait[0], default=None)
        if longest is None or not longest[0]:
            return
        wait, limit, need, bucket = longest
        raise RateLimited(
            f"the limit of {limit} has {max(0, int(bucket.left(now)))} left, and this request needs "
            f"{min(need, limit.amount)}: try again in {wait:.1f} s",
            wait,
        )

    def _take_months(self, tenant: str, needs: Sequence[tuple[Limit, int]], month: int) -> None:
        limits = [(limit, need) for limit, need in needs if limit.per == "month"]
        if not limits:
            return
        self._add_late([])
        draws = self._draws(tenant, limits, month)
        refused = self._store.take(draws)
        if refused is None:
            return
        limit = limits[draws.index(refused)][0]
        left = max(0, limit.amount - self._store.count(tenant, limit.counted, month))
        raise QuotaExhausted(
            f"the limit of {limit} has {left} left, and this request needs {min(refused.amount, limit.amount)}; "
            f"the month {Month(month)} ends in UTC"
        )

    def _draws(self, tenant: str, parts: Sequence[tuple[Limit, int]], month: int) -> list[Draw]:
        return [Draw(tenant, limit.counted, month, amount, limit.amount) for limit, amount in parts]

    def _add_late(self, draws: Sequence[Draw]) -> None:
        """Corrections wait for a store that fails: the request has ended, and nobody could be told."""
        self._late.extend(draws)
        if not self._late:
            return
        try:
            self._store.add(self._late)
        except StoreFailed:
            return
        self._late.clear()

    def _bucket(self, tenant: str, limit: Limit, now: float) -> Bucket:
        """A limit's bucket, with the amount that the limit has now."""
        bucket = self._buckets.get((tenant, limit.counted))
        if bucket is None:
            bucket = self._buckets[tenant, limit.counted] = Bucket(limit.amount, now)
        elif bucket.amount != limit.amount:
            bucket.allow(limit.amount, now)
        return bucket

    def _sweep(self, now: float) -> None:
        """Forget full buckets, once in as many new ones as were left. Never between finding a bucket and using it."""
        if len(self._buckets) < self._sweep_at:
            return
        self._buckets = {key: bucket for key, bucket in self._buckets.items() if bucket.until_full(now)}
        self._sweep_at = max(MIN_SWEEP, 2 * len(self._buckets))

    def _month_at(self, unix: float) -> Month:
        if not self._month.includes(unix):
            self._month = month_of(unix)
        return self._month
