"""lease.py: a worker that has work and says nothing for so many beats is taken for hung; an idle one never is."""

from fairstep.door import Coefficients, Gauges, Headroom, Report
from fairstep.lease import BEATS, Lease


def report(orders: int, running: int = 0) -> Report:
    return Report(orders, (), Headroom(1, 1), Gauges(running=running), Coefficients(0, 0, 0, 0))


def beats_left(lease: Lease) -> int:
    return next(count for count in range(1, BEATS + 2) if lease.beat())


def test_an_idle_worker_owes_nothing() -> None:
    lease = Lease()
    assert not any(lease.beat() for _ in range(5 * BEATS))
    lease.send(1)
    lease.report(report(1))
    assert not lease.is_busy and not any(lease.beat() for _ in range(5 * BEATS))


def test_orders_that_are_not_answered_end_it_and_a_report_renews_it() -> None:
    lease = Lease()
    lease.send(1)
    for _ in range(BEATS - 1):
        assert not lease.beat()
    lease.report(report(1, running=1))
    lease.send(2)
    assert beats_left(lease) == BEATS


def test_a_report_that_answers_older_orders_leaves_it_busy() -> None:
    lease = Lease()
    lease.send(1)
    lease.send(2)
    lease.report(report(1))
    assert lease.is_busy
