"""agenda.py and virtual_clock.py: what is due when, and time that passes when told to."""

from math import inf

import pytest

from fairstep.simulation.agenda import Agenda, Kind
from fairstep.simulation.trace import Arrival
from fairstep.simulation.virtual_clock import VirtualClock


def of(number: int) -> Arrival:
    return Arrival(at=0.0, prompt_tokens=1, outputs=1, number=number)


def test_things_come_by_instant_then_kind_then_as_entered() -> None:
    agenda = Agenda()
    for at, kind, number in (
        (2.0, Kind.ARRIVAL, 1),
        (1.0, Kind.EXPIRY, 2),
        (1.0, Kind.CANCEL, 4),
        (1.0, Kind.ARRIVAL, 3),
        (1.0, Kind.CANCEL, 0),
    ):
        agenda.enter(at, kind, of(number))
    assert [agenda.pop()[1].number for _ in range(5)] == [3, 4, 0, 2, 1]
    assert agenda.next_at == inf


def test_only_what_is_due_now_and_of_these_kinds_is_due() -> None:
    agenda = Agenda()
    assert not agenda.is_due(0.0)
    agenda.enter(1.0, Kind.EXPIRY, of(1))
    assert agenda.is_due(1.0) and not agenda.is_due(1.0, Kind.CANCEL)
    assert not agenda.is_due(0.5) and not agenda.is_due(1.5)


def test_a_virtual_clock_goes_on_and_never_back() -> None:
    clock = VirtualClock()
    clock.spend(1.5)
    clock.reach(1.0)
    assert clock.now() == 1.5
    clock.reach(4.0)
    assert clock.now() == 4.0
    with pytest.raises(AssertionError, match="does not go back"):
        clock.spend(-0.1)
