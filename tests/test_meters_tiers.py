"""meters/tiers.py: which answers are good ones."""

import pytest

from fairstep.meters.tiers import TierMeters, Times
from fairstep.request import FinishReason
from fairstep.tenants import TierTerms

FAST = TierTerms(1, "fast", ttft_ms=500, itl_ms=50, e2e_ms=2000)


@pytest.mark.parametrize(
    ("times", "good"),
    [
        (Times(0.5, 0.05, 2.0), 1),
        (Times(0.501, 0.01, 1.0), 0),
        (Times(0.1, 0.051, 1.0), 0),
        (Times(0.1, 0.01, 2.001), 0),
        (Times(0.1, None, 0.1), 1),  # one token: there is no time between
        (Times(None, None, 0.0), 1),  # none was asked for
    ],
)
def test_an_answer_is_good_within_all_targets(times: Times, good: int) -> None:
    meters = TierMeters()
    meters.ended(FAST, "stop", times)
    assert meters.counts(1) == (1, good)


@pytest.mark.parametrize(
    ("reason", "counts"), [("stop", (1, 1)), ("length", (1, 1)), ("error", (1, 0)), ("cancelled", (0, 0))]
)
def test_what_its_client_cancelled_is_no_answer_and_what_failed_is_a_bad_one(
    reason: FinishReason, counts: tuple[int, int]
) -> None:
    meters = TierMeters()
    meters.ended(TierTerms(0, "any"), reason, Times(100.0, 10.0, 1000.0))  # without targets nothing is late
    assert meters.counts(0) == counts
    assert meters.counts(1) == (0, 0)
