"""outlook.py: what is to be expected of one more request, from what waits, what runs and what was measured."""

from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from fairstep.admission.deadlines import NO_DEADLINES, Deadlines
from fairstep.admission.forecast import Forecast, Prospect
from fairstep.admission.limits import Need
from fairstep.door import Coefficients, Gauges, Headroom, Report, Result, SliceRecord, StepRecord
from fairstep.fairness.policies import make_room
from fairstep.fairness.shares import Room
from fairstep.fairness.ticket import Ticket
from fairstep.outlook import Outlook
from fairstep.tenants import TenantTerms
from fakes_worker import ready, settings

STEP = 0.1
SEATS = 4
FULL = Room(0, 1000)
NEED = Need(prompt_tokens=10, max_tokens=20)


class Worked:
    """A room and its outlook, with all seats taken by `busy` tenant's sequences that usually draw 10 tokens."""

    def __init__(self, policy: Any = "drr", *, measured: bool = True, known: bool = True, cached: bool = True) -> None:
        self.room = make_room(policy)
        info = structs.replace(ready(settings(seats=SEATS, pages=1000)), prefix_cache=cached)
        self.outlook = Outlook(self.room, info, shared=False)
        self.seqs = 0
        if known:
            for _ in range(8):
                for tenant in ("busy", "a", "b"):
                    self.outlook.lengths.add(tenant, 10)
        for _ in range(SEATS):
            seq = self.wait("busy")
            self.room.take()
            self.outlook.begin(seq, 0.0)
        if measured:
            self.step(0.0)

    def wait(self, tenant: str, **ticket: Any) -> int:
        self.seqs += 1
        ticket = {"prompt_tokens": 10, "max_tokens": 20, **ticket}
        waits = Ticket(self.seqs, self.seqs, tenant, **ticket)
        self.room.add(waits)
        self.outlook.wait(waits, waits.prompt_tokens, 0.0)
        return self.seqs

    def step(self, now: float, *results: Result, seconds: float = STEP) -> None:
        slices = tuple(SliceRecord(seq + 1, 1, 0, 10, False) for seq in range(SEATS))
        of = Coefficients(base=0.05, prompt=0.0, sequence=0.0, context=0.0)  # half of what steps take
        step = StepRecord(1, slices, 40, 0, STEP / 2, 0.0, 0.0, of, 0.0, seconds)
        self.outlook.report(Report(1, results, Headroom(0, 1000), Gauges(), of, step), now)
        for result in results:
            self.outlook.took(result)

    def ask(self, tenant: str = "a", deadlines: Deadlines = NO_DEADLINES, need: Need = NEED, **more: Any) -> Prospect:
        found = self.outlook.prospect(need, TenantTerms(tenant), deadlines, 0.0, **{"free": FULL, **more})
        assert found is not None
        return found

    def expected(self, *args: Any, **more: Any) -> Forecast:
        found = self.ask(*args, **more).expected
        assert found is not None
        return found

    def check(self) -> None:
        running = set(range(1, SEATS + 1))
        self.outlook.check(set(range(1, self.seqs + 1)) - running, running)


def test_before_any_step_nothing_is_foreseen() -> None:
    worked = Worked(measured=False)
    assert worked.outlook.prospect(NEED, TenantTerms("a"), NO_DEADLINES, 0.0, free=FULL) is None


def test_before_any_answer_nothing_is_expected_and_the_least_is_known() -> None:
    found = Worked(known=False).ask()
    assert found.expected is None and 0.0 < found.least.first <= STEP


def test_of_an_unknown_tenant_the_wait_is_known_and_of_its_answer_what_is_certain() -> None:
    found = Worked().expected("new", need=replace(NEED, least=3))
    assert found.wait == pytest.approx(10 * STEP) and found.answer == pytest.approx(2 * STEP)


def test_a_newcomer_waits_until_a_sequence_that_runs_has_drawn_what_is_usual() -> None:
    worked = Worked()
    assert worked.expected(free=Room(1, 1000)).wait == 0.0
    assert worked.expected().wait == pytest.approx(10 * STEP)
    worked.step(0.0, *(Result(seq, 1, (5,) * 4, computed=10) for seq in range(1, SEATS + 1)))
    assert worked.expected().wait == pytest.approx(6 * STEP)
    assert worked.expected().answer == pytest.approx(9 * STEP)
    worked.check()


def test_steps_take_what_they_took_whatever_the_model_says() -> None:
    worked = Worked()
    for _ in range(500):
        worked.step(0.0, seconds=3 * STEP)
    assert worked.expected().wait == pytest.approx(30 * STEP, rel=0.01)


def test_whose_siblings_alone_wait_has_no_turn_yet() -> None:
    worked = Worked()
    worked.outlook.wait(Ticket(99, 99, "b", prompt_tokens=1, max_tokens=20), 10, 0.0)  # outside the room
    low = worked.outlook.prospect(NEED, TenantTerms("a", tier=1), NO_DEADLINES, 0.0, free=FULL)
    assert low is not None and low.expected is not None


def test_what_is_more_urgent_of_its_own_goes_before_it_and_a_flood_of_others_takes_turns() -> None:
    worked = Worked()
    for number in range(8):
        worked.wait("a", deadline=50.0 + number)
        worked.wait("b")
    worked.check()
    first = worked.expected(deadlines=Deadlines(whole=49.0)).wait
    last = worked.expected(deadlines=Deadlines(whole=59.0)).wait
    assert first == pytest.approx(10 * STEP) and last > 3 * first
    for _ in range(500):
        worked.wait("b")
    assert worked.expected(deadlines=Deadlines(whole=49.0)).wait == first
    assert worked.expected(deadlines=Deadlines(whole=59.0)).wait <= last + first
    assert worked.expected("b").wait > 20 * first


def test_under_first_come_first_served_all_of_it_is_before_a_newcomer() -> None:
    turns, queue = Worked(), Worked("fcfs")
    for worked in (turns, queue):
        for _ in range(200):
            worked.wait("b")
    assert queue.expected().wait > 4 * turns.expected().wait


def test_those_that_will_have_given_up_are_not_before_it() -> None:
    patient, hasty = Worked(), Worked()
    for _ in range(40):
        patient.wait("a", deadline=100.0)
        hasty.wait("a", deadline=1.5)
    deadlines = Deadlines(whole=200.0)
    assert hasty.expected(deadlines=deadlines).wait < 2.5 < patient.expected(deadlines=deadlines).wait


def test_a_sequence_that_comes_back_waits_again() -> None:
    worked = Worked()
    ticket = replace(Ticket(1, 1, "busy"), prompt_tokens=10, max_tokens=20)
    worked.room.add(ticket)
    worked.outlook.back(ticket)
    worked.outlook.check({1}, {2, 3, 4})
    worked.outlook.begin(1, 1.0)
    worked.outlook.end(2, natural=True)
    worked.outlook.end(2, natural=True)
    worked.outlook.check(set(), {1, 3, 4})


def test_the_least_is_of_the_shortest_step_and_of_chunks_where_nothing_is_cached() -> None:
    worked = Worked()
    worked.step(0.0, seconds=0.01)
    assert worked.outlook.least(10_000).first == pytest.approx(0.009), "its pages may be found"
    assert worked.outlook.least(10, outputs=5).whole == pytest.approx(0.045)
    cold = Worked(cached=False)
    cold.step(0.0, seconds=0.01)
    assert cold.outlook.least(1024).first == pytest.approx(2 * 0.009)


def test_units_are_counted_while_somebody_waits() -> None:
    worked = Worked()
    worked.wait("a")
    for number in range(20):
        worked.step(number * STEP, Result(1, 1, (5,), computed=10))
    assert worked.outlook.rate == pytest.approx((40 * 1000 + 2000) / STEP, rel=0.01)


def test_a_worker_that_is_being_started_has_its_seats_from_when_it_is_ready() -> None:
    worked = Worked()
    worked.outlook.lengths.add("busy", 1000)  # those that run go on for long
    for _ in range(8):
        worked.wait("a")
    alone = worked.expected("b").wait
    worked.outlook.coming = (3.0,)
    beside = worked.expected("b").wait
    assert 3.0 <= beside < alone
    worked.outlook.coming = (1e6,)
    assert worked.expected("b").wait == pytest.approx(alone)


def test_its_first_seats_are_for_those_that_have_lost_their_worker() -> None:
    worked = Worked()
    worked.outlook.resize(Room(0, 0))  # all that run were on it
    worked.outlook.coming = (3.0,)
    lost = worked.expected("b", free=Room(0, 0)).wait
    worked.outlook.coming = (3.0, 3.0)
    assert 3.0 <= worked.expected("b", free=Room(0, 0)).wait < lost


def test_what_waits_is_told_in_seconds_of_one_worker_and_by_deadline() -> None:
    worked = Worked()
    assert worked.outlook.demand(1, 0.0) == (0.0, []), "no rate is known yet"
    worked.wait("a", deadline=20.0)
    worked.wait("b", deadline=5.0)
    worked.wait("a")
    for step in range(20):
        worked.step(step * STEP)
    (queued, due), (twice, _) = worked.outlook.demand(1, 1.0), worked.outlook.demand(2, 1.0)
    assert [left for left, _ in due] == [4.0, 19.0]
    assert [work for _, work in due] == pytest.approx([queued / 3, 2 * queued / 3]) and queued > 0.0
    assert twice == pytest.approx(2 * queued), "each of two is half as fast"
