"""queue_book.py: sums of what waits, beside a queue that is gone through."""

from collections.abc import Iterator

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from fairstep.fairness.queue_book import SHORTEST, STRETCHES, DueCosts, QueueBook
from fairstep.fairness.ticket import Ticket


@given(st.lists(st.tuples(st.floats(0.0, 1e6), st.integers(0, 1000)), max_size=60), st.randoms())
def test_units_by_deadline_are_told_in_few_stretches_and_none_is_lost(waits: list[tuple[float, int]], random) -> None:  # type: ignore[no-untyped-def]
    costs = DueCosts()
    for deadline, units in waits:
        costs.add(deadline, units)
    told = list(costs)
    assert len(told) <= STRETCHES and told == sorted(told)
    assert sum(units for _, units in told) == sum(units for _, units in waits)
    random.shuffle(waits)
    for deadline, units in waits:
        costs.add(deadline, -units)
    assert not costs and list(costs) == []
    costs.add(1.0, 5)
    assert list(costs) == [(1.0 + SHORTEST / 2, 5)]  # an empty one begins with short stretches again


def test_a_deadline_is_told_within_half_a_stretch() -> None:
    costs = DueCosts()
    for second in range(64):
        costs.add(float(second), 1)
    width = 8.0
    assert list(costs) == [(width * (place + 0.5), 8) for place in range(8)]


class Books(RuleBasedStateMachine):
    """Sequences of two tenants come, go, and come back with the order they had."""

    def __init__(self) -> None:
        super().__init__()
        self.book = QueueBook()
        self.waiting: dict[int, tuple[Ticket, int]] = {}
        self.gone: list[Ticket] = []
        self.seqs = 0

    @rule(tenant=st.sampled_from("ab"), deadline=st.none() | st.floats(0, 100), units=st.integers(0, 100))
    def arrive(self, tenant: str, deadline: float | None, units: int) -> None:
        self.seqs += 1
        self._wait(Ticket(self.seqs, self.seqs, tenant, deadline=deadline), units)

    @precondition(lambda self: self.gone)
    @rule(data=st.data(), units=st.integers(0, 100))
    def come_back(self, data: st.DataObject, units: int) -> None:
        self._wait(self.gone.pop(data.draw(st.integers(0, len(self.gone) - 1))), units)

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        ticket, units = self.waiting.pop(data.draw(st.sampled_from(sorted(self.waiting))))
        self.book.remove(ticket, units)
        self.gone.append(ticket)

    @invariant()
    def agrees(self) -> None:
        self.book.check()
        assert self.book.oldest == min(self.waiting, default=None)
        assert self.book.cost == sum(units for _, units in self.waiting.values())
        for tenant in "ab":
            assert sum(units for _, units in self.book.due(tenant)) == sum(self._due(tenant))

    def _due(self, tenant: str) -> Iterator[int]:
        mine = (each for each in self.waiting.values() if each[0].tenant == tenant)
        return (units for ticket, units in mine if ticket.deadline is not None)

    def _wait(self, ticket: Ticket, units: int) -> None:
        self.waiting[ticket.seq] = ticket, units
        self.book.add(ticket, units)


TestBooks = Books.TestCase
TestBooks.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)


def test_the_dead_are_swept() -> None:
    book = QueueBook()
    tickets = [Ticket(seq, seq) for seq in range(1000)]
    for ticket in tickets:
        book.add(ticket, 1)
    for ticket in tickets[1:]:
        book.remove(ticket, 1)
        book.check()
    assert book.oldest == 0
