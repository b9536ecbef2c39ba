"""stations.py: several workers' room, where the next one is sent, and Reports that come twice."""

from msgspec.structs import replace

from fairstep.door import Admit, Coefficients, Gauges, Headroom, Report, Sampling
from fairstep.fairness.shares import Room
from fairstep.stations import Stations, mismatch
from fakes_worker import ready, settings

INFO = ready(settings(seats=2, pages=10))


def two() -> Stations:
    stations = Stations()
    stations.join(0, INFO)
    stations.join(1, INFO)
    return stations


def admit(seq: int) -> Admit:
    return Admit(seq, 1, (1,), 1, Sampling())


def test_room_is_that_of_all_and_a_need_must_fit_one() -> None:
    stations = two()
    assert stations.whole == stations.free == Room(4, 20)
    assert stations.covers(Room(1, 10)) and not stations.covers(Room(1, 11))


def test_the_next_goes_where_most_is_left_unless_its_prompt_lies_elsewhere() -> None:
    stations = two()
    stations[0].send(admit(1), 3)
    assert stations.choose(Room(1, 1)).number == 1
    assert stations.choose(Room(1, 1), beside=0).number == 0
    assert stations.choose(Room(1, 9), beside=0).number == 1, "it does not fit there"


def test_one_that_is_reserved_takes_nobody() -> None:
    stations = two()
    stations[1].reserved = True
    assert stations.choose(Room(1, 1)).number == 0
    stations[0].reserved = True
    assert not stations.covers(Room(1, 1)) and not stations.can_wait


def test_orders_are_numbered_by_worker_and_leave_once() -> None:
    stations = two()
    stations[0].cancel(7, 1)
    stations[0].call_back(8, 2)
    orders = stations[0].orders()
    assert orders and (orders.number, orders.cancel, orders.give_back) == (1, ((7, 1),), ((8, 2),))
    assert stations[0].orders() is None and stations[1].orders() is None


def test_a_worker_is_clear_when_it_has_said_so() -> None:
    stations = two()
    stations[0].send(admit(1), 3)
    stations[0].seqs.discard(1)
    assert not stations[0].is_clear, "what it was sent may still be there"
    report = Report(1, (), Headroom(2, 10), Gauges(), Coefficients(0, 0, 0, 0), number=1)
    stations[0].orders()
    stations[0].report(report)
    assert stations[0].is_clear and not stations[0].is_new(report)


def test_a_later_worker_must_keep_what_the_first_promised() -> None:
    first = ready(settings(pages=10, page_size=4, context=40))
    assert mismatch(first, first) is None
    assert mismatch(first, ready(settings(pages=20, page_size=4, context=60))) is None, "more room is no harm"
    shorter = mismatch(first, ready(settings(pages=10, page_size=4, context=30)))
    fewer = mismatch(first, ready(settings(pages=8, page_size=4, context=40)))
    assert shorter is not None and "room for 30 tokens" in shorter
    assert fewer is not None and "room for 32 tokens" in fewer and "may have 40" in fewer
    other = mismatch(first, replace(first, vocab_size=first.vocab_size + 1))
    assert other is not None and "another model than the first" in other
