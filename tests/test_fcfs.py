"""The waiting room by arrival: priority first, then arrival; whoever comes back keeps its place."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from fairstep.fairness.policies import make_room
from fairstep.fairness.ticket import Ticket


def test_lower_priority_numbers_go_first_and_arrival_breaks_ties() -> None:
    room = make_room("fcfs")
    for seq, priority in ((1, 5), (2, 0), (3, 5), (4, 0)):
        room.add(Ticket(seq, order=seq, priority=priority))
    assert [room.take().seq for _ in range(4)] == [2, 4, 1, 3]
    assert room.head() is None


def test_a_returning_sequence_sorts_before_later_ones() -> None:
    room = make_room("fcfs")
    first = Ticket(1, order=1)
    room.add(first)
    room.take()
    room.add(Ticket(2, order=2))
    room.add(first)
    assert (head := room.head()) is not None and head.seq == 1


def test_a_sequence_removed_and_added_again_stands_once() -> None:
    room = make_room("fcfs")
    ticket = Ticket(1, order=1)
    room.add(ticket)
    assert room.remove(1) and not room.remove(1)
    room.add(ticket)
    assert room.take() == ticket and room.head() is None and len(room) == 0


class FcfsAgainstAList(RuleBasedStateMachine):
    """The room against a plain sorted list."""

    def __init__(self) -> None:
        super().__init__()
        self.room = make_room("fcfs")
        self.model: list[Ticket] = []
        self.orders = 0

    @rule(priority=st.integers(-2, 2))
    def add(self, priority: int) -> None:
        self.orders += 1
        ticket = Ticket(self.orders, self.orders, priority=priority)
        self.room.add(ticket)
        self.model.append(ticket)

    @precondition(lambda self: self.model)
    @rule()
    def take(self) -> None:
        expected = min(self.model, key=lambda t: (t.priority, t.order))
        assert self.room.take() == expected
        self.model.remove(expected)

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def remove_and_perhaps_return(self, data: st.DataObject) -> None:
        ticket = data.draw(st.sampled_from(self.model))
        assert self.room.remove(ticket.seq)
        if data.draw(st.booleans()):
            self.room.add(ticket)
        else:
            self.model.remove(ticket)

    @invariant()
    def agrees(self) -> None:
        self.room.check()
        assert len(self.room) == len(self.model)


TestFcfsAgainstAList = FcfsAgainstAList.TestCase
