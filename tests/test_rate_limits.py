"""rate_limits.py: all of a request's limits or none, reserved on arrival and put right at the end."""

import pytest

from fairstep.admission.limit_store import Draw, MemoryLimits
from fairstep.admission.limits import Limit, Need, Per, Quantities, What
from fairstep.admission.month import Month
from fairstep.admission.rate_limits import MIN_SWEEP, RateFigure, RateLimits, Reservation
from fairstep.errors import QuotaExhausted, RateLimited, StoreFailed

MAY = 1_778_000_000.0  # in May 2026


def limit(amount: int, what: What = "tokens", per: Per = "minute") -> Limit:
    return Limit(what=what, per=per, amount=amount)


def reserve(limits: RateLimits, need: Need, *of: Limit, now: float = 0.0, unix: float = MAY) -> Reservation:
    return limits.reserve("a", of, need.quantities, now=now, unix=unix)


class FailingStore(MemoryLimits):
    """Fails while it is told to."""

    fails = False

    def take(self, draws: "list[Draw]") -> Draw | None:  # type: ignore[override]
        if self.fails:
            raise StoreFailed("disk full")
        return super().take(draws)

    def add(self, draws: "list[Draw]") -> None:  # type: ignore[override]
        if self.fails:
            raise StoreFailed("disk full")
        super().add(draws)


@pytest.mark.parametrize(("expected", "admitted"), [(None, 1), (120, 1), (30, 2)])
def test_five_at_once_on_100_tokens_a_minute_are_one_or_two(expected: int | None, admitted: int) -> None:
    limits, passed = RateLimits(MemoryLimits()), 0
    for _ in range(5):
        try:
            reserve(limits, Need(prompt_tokens=10, max_tokens=1024, expected=expected), limit(100))
            passed += 1
        except RateLimited as error:
            assert error.retry_after is not None and 0 < error.retry_after <= 60
    assert passed == admitted


def test_a_default_max_tokens_does_not_lock_out_a_key_of_100_tokens_a_minute() -> None:
    limits, now = RateLimits(MemoryLimits()), 0.0
    for _ in range(5):
        held = reserve(limits, Need(prompt_tokens=10, max_tokens=1024), limit(100), now=now)
        limits.settle(held, Quantities(1, 10, 20), now=now + 2)
        with pytest.raises(RateLimited) as caught:  # until the guess fits the bucket again
            reserve(limits, Need(prompt_tokens=10, max_tokens=1024), limit(100), now=now + 2)
        assert caught.value.retry_after == pytest.approx(60 * 28 / 100, abs=1.3)
        reserve_small = reserve(limits, Need(prompt_tokens=10, max_tokens=1024, expected=20), limit(100), now=now + 2)
        limits.cancel(reserve_small, now=now + 2)
        now += 2 + caught.value.retry_after


def test_more_than_a_minute_is_allowed_when_the_bucket_is_full_and_leaves_debt() -> None:
    limits = RateLimits(MemoryLimits())
    held = reserve(limits, Need(prompt_tokens=300, max_tokens=100), limit(100))
    limits.settle(held, Quantities(1, 300, 100), now=0.0)
    with pytest.raises(RateLimited) as caught:
        reserve(limits, Need(prompt_tokens=10, max_tokens=0), limit(100))
    assert caught.value.retry_after == pytest.approx(60 * 310 / 100)
    reserve(limits, Need(prompt_tokens=10, max_tokens=0), limit(100), now=186.0)


def test_all_limits_are_taken_or_none() -> None:
    store = MemoryLimits()
    limits = RateLimits(store)
    minute, tokens, month = limit(10, "requests"), limit(50, "input_tokens"), limit(1000, "tokens", "month")
    with pytest.raises(RateLimited, match="50 input tokens a minute has 49 left, and this request needs 50"):
        limits.settle(reserve(limits, Need(prompt_tokens=1, max_tokens=1), tokens), Quantities(1, 1, 0), now=0.0)
        reserve(limits, Need(prompt_tokens=60, max_tokens=1), minute, tokens, month, now=0.5)
    assert limits.owed("a", minute, 0.5) == 0.0
    assert store.count("a", month.counted, month_number()) == 0
    with pytest.raises(QuotaExhausted):
        reserve(limits, Need(prompt_tokens=1, max_tokens=0), minute, limit(1, "requests", "month"), month, now=9.0)
        reserve(limits, Need(prompt_tokens=1, max_tokens=0), minute, limit(1, "requests", "month"), month, now=9.0)
    assert limits.owed("a", minute, 9.0) == 1.0
    assert store.count("a", month.counted, month_number()) == 1


def month_number() -> int:
    return (2026 - 1970) * 12 + 4


def test_the_end_puts_right_what_was_guessed_in_minutes_and_months() -> None:
    store = MemoryLimits()
    limits, minute, month = RateLimits(store), limit(1000), limit(10_000, "output_tokens", "month")
    held = reserve(limits, Need(prompt_tokens=100, max_tokens=500, expected=50), minute, month)
    assert limits.owed("a", minute, 0.0) == 150.0
    limits.settle(held, Quantities(1, 100, 80), now=0.0)
    assert limits.owed("a", minute, 0.0) == 180.0
    assert store.count("a", month.counted, month_number()) == 80
    held = reserve(limits, Need(prompt_tokens=100, max_tokens=50), minute, month)
    limits.cancel(held, now=0.0)
    assert limits.owed("a", minute, 0.0) == 180.0
    assert store.count("a", month.counted, month_number()) == 80


def test_a_month_ends_with_the_calendar_and_corrections_go_to_the_month_they_are_of() -> None:
    store = MemoryLimits()
    limits, month = RateLimits(store), limit(100, "tokens", "month")
    last = Month(month_number()).ends - 1.0
    held = reserve(limits, Need(prompt_tokens=90, max_tokens=10), month, unix=last)
    with pytest.raises(QuotaExhausted, match="the month 2026-05 ends") as caught:
        reserve(limits, Need(prompt_tokens=90, max_tokens=10), month, unix=last)
    assert caught.value.retry_after is None and caught.value.should_retry is False
    reserve(limits, Need(prompt_tokens=50, max_tokens=10), month, unix=last + 1.0)
    limits.settle(held, Quantities(1, 90, 3), now=0.0)
    assert [store.count("a", month.counted, month_number() + after) for after in (0, 1)] == [93, 60]


def test_another_amount_counts_for_what_comes_after_it() -> None:
    limits = RateLimits(MemoryLimits())
    held = reserve(limits, Need(prompt_tokens=80, max_tokens=0), limit(100))
    with pytest.raises(RateLimited):
        reserve(limits, Need(prompt_tokens=30, max_tokens=0), limit(50))
    reserve(limits, Need(prompt_tokens=30, max_tokens=0), limit(200))
    limits.cancel(held, now=0.0)
    assert limits.owed("a", limit(200), 0.0) == 30.0


def test_figures_are_the_tightest_limit_a_minute_of_each_kind() -> None:
    limits = RateLimits(MemoryLimits())
    broad, strict = limit(600), Limit(what="tokens", per="minute", amount=60, model="heavy")
    all_of_them = (broad, strict, limit(6, "requests"), limit(9, "requests", "month"))
    reserve(limits, Need(prompt_tokens=30, max_tokens=0), *all_of_them)
    assert limits.figures("a", all_of_them, 0.0) == (
        RateFigure("tokens", 60, 30, 30.0),
        RateFigure("requests", 6, 5, 10.0),
    )
    assert limits.figures("b", (broad,), 0.0) == (RateFigure("tokens", 600, 600, 0.0),)


def test_a_request_is_prechecked_by_the_least_it_can_need() -> None:
    limits, tokens = RateLimits(MemoryLimits()), limit(100, "input_tokens")
    limits.precheck("a", (tokens,), 0.0)
    reserve(limits, Need(prompt_tokens=100, max_tokens=0), tokens)
    with pytest.raises(RateLimited):
        limits.precheck("a", (tokens,), 0.0)
    limits.precheck("b", (tokens,), 0.0)


def test_a_store_that_fails_refuses_and_keeps_corrections_until_it_works() -> None:
    store = FailingStore()
    limits, minute, month = RateLimits(store), limit(1000), limit(10_000, "tokens", "month")
    held = reserve(limits, Need(prompt_tokens=10, max_tokens=10), minute, month)
    store.fails = True
    limits.settle(held, Quantities(1, 10, 30), now=0.0)
    with pytest.raises(StoreFailed):
        reserve(limits, Need(prompt_tokens=10, max_tokens=10), minute, month)
    assert limits.owed("a", minute, 0.0) == 40.0
    store.fails = False
    limits.cancel(reserve(limits, Need(prompt_tokens=10, max_tokens=10), minute, month), now=0.0)
    assert store.count("a", month.counted, month_number()) == 40


def test_full_buckets_are_forgotten() -> None:
    limits = RateLimits(MemoryLimits())
    for number in range(10 * MIN_SWEEP):
        now = number * 1.0
        limits.precheck(f"tenant {number}", (limit(60, "requests"),), now)
        limits.reserve(f"tenant {number}", (limit(60, "requests"),), Quantities(1), now=now, unix=MAY)
        limits.check()
