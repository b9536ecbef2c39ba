"""tenant_queue.py: priority, deadline, arrival; whoever comes back goes before new ones of its priority."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from fairstep.fairness.tenant_queue import TenantQueue, by_arrival, by_urgency
from fairstep.fairness.ticket import Ticket


def order_of(queue: TenantQueue) -> list[int]:
    order = []
    while (ticket := queue.head()) is not None:
        order.append(queue.remove(ticket.seq).seq)
    return order


def test_priority_then_deadline_then_arrival() -> None:
    queue = TenantQueue()
    for seq, priority, deadline in ((1, 0, None), (2, 0, 9.0), (3, 1, 1.0), (4, 0, 5.0), (5, -1, None), (6, 0, 5.0)):
        queue.add(Ticket(seq, seq, priority=priority, deadline=deadline))
    assert order_of(queue) == [5, 4, 6, 2, 1, 3]


def test_who_comes_back_goes_before_new_ones_of_its_priority() -> None:
    queue = TenantQueue()
    queue.add(Ticket(1, 1, deadline=1.0))
    queue.add(Ticket(2, 2, priority=-1))
    queue.add(Ticket(3, 3, again=True))
    assert order_of(queue) == [2, 3, 1]


def test_first_come_first_served_knows_no_deadlines() -> None:
    queue = TenantQueue(by_arrival)
    queue.add(Ticket(2, 2, deadline=1.0))
    queue.add(Ticket(1, 1, deadline=5.0))
    queue.add(Ticket(3, 3, priority=-1))
    assert order_of(queue) == [3, 1, 2]


class QueueAgainstAList(RuleBasedStateMachine):
    """The queue against sorting."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = TenantQueue()
        self.model: list[Ticket] = []
        self.seqs = 0

    @rule(priority=st.integers(-1, 1), deadline=st.none() | st.integers(0, 3).map(float), again=st.booleans())
    def add(self, priority: int, deadline: float | None, again: bool) -> None:
        self.seqs += 1
        self.model.append(Ticket(self.seqs, self.seqs, priority=priority, deadline=deadline, again=again))
        self.queue.add(self.model[-1])

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        ticket = data.draw(st.sampled_from(self.model))
        assert self.queue.remove(ticket.seq) is ticket
        self.model.remove(ticket)

    @invariant()
    def agrees(self) -> None:
        self.queue.check()
        assert len(self.queue) == len(self.model)
        assert self.queue.head() is min(self.model, key=by_urgency, default=None)


TestQueueAgainstAList = QueueAgainstAList.TestCase
