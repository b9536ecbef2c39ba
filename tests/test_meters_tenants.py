"""meters/tenants.py: who is named, and who is counted with the others."""

from hypothesis import given
from hypothesis import strategies as st

from fairstep.admission.waiting_time import Waited
from fairstep.meters.tenants import TenantMeters
from fairstep.metrics import Metrics
from fairstep.stats import OTHER
from fairstep.tenants import Tenants, TenantTerms


def names(meters: TenantMeters) -> list[str]:
    return [meter.name for meter in meters]


def test_tenants_of_the_book_are_named_first() -> None:
    metrics = Metrics(most_tenants=4)
    metrics.use(Tenants(tenants=[TenantTerms("beta"), TenantTerms("acme")]))
    for name in ("stranger", "another", "acme"):
        metrics.tenants.of(name)
    assert names(metrics.tenants) == ["anonymous", "beta", "acme", "stranger", OTHER]


def test_who_has_a_name_keeps_it_when_the_book_is_another() -> None:
    metrics = Metrics(most_tenants=2)
    metrics.use(Tenants(tenants=[TenantTerms("acme")], anonymous=None))
    meter = metrics.tenants.of("acme")
    metrics.use(Tenants(tenants=[TenantTerms("beta"), TenantTerms("gamma")], anonymous=None))
    assert names(metrics.tenants) == ["acme", "beta", OTHER]
    assert metrics.tenants.of("acme") is meter


def test_a_tenant_that_is_called_other_takes_no_name() -> None:
    meters = TenantMeters(1)
    assert meters.of(OTHER) is meters.of(OTHER)
    assert names(meters) == [OTHER]
    assert meters.name_of("acme") == OTHER and meters.of("acme").name == "acme" == meters.name_of("acme")


@given(st.lists(st.text(max_size=3), max_size=50), st.integers(0, 6))
def test_there_are_never_more_names_than_may_be_and_nothing_is_lost(asked: list[str], most: int) -> None:
    meters = TenantMeters(most)
    for name in asked:
        meters.of(name).accepted()
    assert len(names(meters)) <= most + 1 and len(set(names(meters))) == len(names(meters))
    assert sum(meter.stats().accepted for meter in meters) == len(asked)
    assert all(meters.of(name).name == meters.name_of(name) for name in asked)


def test_both_parts_of_the_wait_are_told_apart() -> None:
    meter = TenantMeters().of("acme")
    meter.began(Waited(0.02, 0.5))
    stats = meter.stats()
    assert (stats.by_choice.sum, stats.for_worker.sum) == (0.02, 0.5)
    assert (stats.by_choice.count, stats.for_worker.count) == (1, 1)
