"""stats.py: what is read off distributions, and who is found under which name."""

from math import inf

import pytest

from fairstep.metrics import Metrics
from fairstep.stats import OTHER, Distribution

FOUR = Distribution((1.0, 2.0, 5.0), (1, 2, 0, 1), 14.0)


@pytest.mark.parametrize(
    ("part", "value"), [(0.0, 1.0), (0.25, 1.0), (0.26, 2.0), (0.5, 2.0), (0.75, 2.0), (0.76, inf), (1.0, inf)]
)
def test_a_quantile_is_the_bound_that_holds_it(part: float, value: float) -> None:
    assert FOUR.quantile(part) == value


def test_nothing_counted_has_neither_mean_nor_quantile() -> None:
    nothing = Distribution((1.0,), (0, 0))
    assert (FOUR.count, FOUR.mean) == (4, 3.5)
    assert (nothing.count, nothing.mean, nothing.quantile(0.5)) == (0, None, None)


def test_a_tenant_without_a_name_of_its_own_is_found_among_the_others() -> None:
    metrics = Metrics(most_tenants=1)
    metrics.tenants.of("acme").accepted()
    for name in ("beta", "gamma"):
        metrics.tenants.of(name).accepted()
    stats = metrics.stats()
    assert [(each.name, each.accepted) for each in stats.tenants] == [("acme", 1), (OTHER, 2)]
    assert stats.tenant("acme").accepted == 1 and stats.tenant("gamma").name == OTHER


def test_tiers_are_found_by_name() -> None:
    stats = Metrics().stats()
    assert stats.tier("standard").number == 0
    with pytest.raises(KeyError):
        stats.tier("premium")


def test_stats_are_of_the_moment_they_were_asked_for() -> None:
    metrics = Metrics()
    before = metrics.stats()
    metrics.tenants.of("acme").refused("deadline_exceeded")
    metrics.requests.ended("stop", prompt_tokens=1, completion_tokens=0, seconds=0.1, decode_seconds=0.0)
    assert before == Metrics().stats() != metrics.stats()
