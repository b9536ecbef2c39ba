"""quantum.py: a quantum that follows what requests cost, by steps; what drr.py promises while it changes."""

import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairness_drive import History, MeteredTurns
from fairstep.config import EngineConfig
from fairstep.errors import ConfigError
from fairstep.fairness.drr import DeficitRoundRobin
from fairstep.fairness.policies import auto_quantum, make_room
from fairstep.fairness.pricing import UNIT, CostModel
from fairstep.fairness.quantum import MOST, WINDOW, AutoQuantum, is_far
from fairstep.fairness.ticket import Ticket
from fairstep.front_setup import quantum_of

LARGEST = 5  # times the quantum that a history begins with


def after(sizing: AutoQuantum, *costs: int) -> int:
    """The quantum after a window of each cost."""
    for cost in costs:
        for _ in range(WINDOW):
            sizing.admitted(cost)
            sizing.check()
    return sizing.units


def test_it_becomes_what_the_median_request_costs() -> None:
    sizing = AutoQuantum(100, 100)
    for number in range(WINDOW):
        sizing.admitted((10, 250, 9000)[number % 3])
    assert sizing.units == 250


def test_it_stays_between_the_least_and_four_times_that() -> None:
    assert AutoQuantum(1, 100).units == 100
    assert after(AutoQuantum(100, 100), 10_000) == MOST * 100
    assert after(AutoQuantum(100, 100), 10_000, 1) == 100


def test_it_changes_after_a_window_and_not_before() -> None:
    sizing = AutoQuantum(100, 100)
    assert {sizing.admitted(300) for _ in range(WINDOW - 1)} == {100}
    assert sizing.admitted(300) == 300


def test_a_quarter_more_or_less_changes_nothing() -> None:
    assert after(AutoQuantum(200, 100), 250, 150, 200) == 200
    assert after(AutoQuantum(200, 100), 251) == 251


def test_of_a_batch_it_is_the_whole_batch() -> None:
    assert AutoQuantum(100, 100, batch=32).units == 3200
    assert after(AutoQuantum(100, 100, batch=32), 300) == 9600


@given(st.lists(st.integers(1, 10_000), min_size=WINDOW, max_size=5 * WINDOW))
def test_it_changes_at_most_once_a_window_and_by_more_than_a_quarter(costs: list[int]) -> None:
    sizing = AutoQuantum(500, 250)
    for place, cost in enumerate(costs, start=1):
        before = sizing.units
        now = sizing.admitted(cost)
        sizing.check()
        assert now == before or (place % WINDOW == 0 and is_far(before, now))


def test_all_tiers_change_together_and_a_new_one_begins_with_the_quantum_of_now() -> None:
    sizing = AutoQuantum(100, 100)
    first = sizing.adopt(DeficitRoundRobin(sizing.units))
    after(sizing, 300)
    second = sizing.adopt(DeficitRoundRobin(sizing.units))
    assert first.quantum == second.quantum == 300
    after(sizing, 150)
    assert first.quantum == second.quantum == 150


def test_rounds_that_went_by_gave_the_old_quantum_and_those_to_come_give_the_new_one() -> None:
    turns = DeficitRoundRobin(10)
    for name in "ab":
        turns.enter(name, 1)
    turns.start("a")
    turns.charge("a", 110)  # a owes 100
    for _ in range(4):
        turns.start("b")
        turns.charge("b", 10)
    owed = turns.debt("a")
    assert owed == 100 - 10 * (turns.round - 1)
    before = turns.round
    turns.resize(30)
    turns.check()
    assert (turns.debt("a"), turns.round) == (owed, before)
    served = ""
    while "a" not in served:
        name = turns.first(lambda name: True)
        assert name is not None
        turns.start(name)
        turns.charge(name, 30)
        turns.check()
        served += name
    assert turns.round - before == owed // 30 + 1


class ChangingTurns(MeteredTurns):
    """Deficit round robin whose quantum changes all the time, up to LARGEST times what it was."""

    def __init__(self, quantum: int, told: Callable[[str, int], None], bypass: int = 0) -> None:
        super().__init__(quantum, told, bypass)
        self._first = quantum
        self._random = random.Random(quantum)

    def charge(self, tenant: str, units: int) -> None:
        super().charge(tenant, units)
        if self._random.random() < 0.2:
            self.resize(self._first * self._random.randint(1, LARGEST))
            self.check()


@pytest.mark.parametrize("bypass", [0, 1])
def test_the_promise_holds_with_the_largest_quantum(bypass: int) -> None:
    ratios = []
    for seed in range(40):
        history = History(seed, ChangingTurns, bypass)
        for meter in history.meters:
            meter.quantum *= LARGEST
        ratios.append(history.run(100))
    assert max(ratios) <= 1


def test_a_room_has_the_quantum_of_its_requests() -> None:
    room = make_room("drr", quantum=auto_quantum(CostModel(), 100))
    assert room.quantum == 400 * UNIT  # the default is more than four steps' prompt tokens
    for seq in range(WINDOW):
        room.add(Ticket(seq, seq, "ab"[seq % 2], tier=seq % 2, prompt_tokens=250, max_tokens=10))
    while len(room):
        ticket = room.take()
        room.check()
        room.spent(ticket.seq, computed=250)
    assert room.quantum == 250 * UNIT
    assert room.largest_quantum == 400 * UNIT


def test_whoever_waits_again_has_paid_and_counts_once() -> None:
    room = make_room("drr", quantum=auto_quantum(CostModel(), 100))
    ticket = Ticket(1, 1, "a", prompt_tokens=100, max_tokens=1)
    for _ in range(2 * WINDOW):
        room.add(ticket)
        room.take()
    assert room.quantum == 400 * UNIT


def test_under_requests_it_is_a_request() -> None:
    assert after(auto_quantum(CostModel(kind="requests"), 512), UNIT, UNIT) == UNIT


def test_only_drr_has_a_quantum_that_changes() -> None:
    room = make_room("fcfs", quantum=auto_quantum(CostModel(), 100))
    for seq in range(WINDOW):
        room.add(Ticket(seq, seq, "a", prompt_tokens=150, max_tokens=1))
        room.take()
    assert room.quantum == room.largest_quantum == 400 * UNIT


def test_settings_give_a_number_a_default_or_auto() -> None:
    cost = CostModel()
    assert quantum_of(EngineConfig(), cost) == 500 * UNIT
    assert quantum_of(EngineConfig(quantum=70), cost) == 70 * UNIT
    auto = quantum_of(EngineConfig(quantum="auto", step_tokens=300), cost)
    assert isinstance(auto, AutoQuantum) and auto.units == 500 * UNIT
    assert after(auto, 1) == 300 * UNIT


def test_static_batches_have_the_quantum_of_a_full_batch() -> None:
    assert quantum_of(EngineConfig(batching="static", batch_size=8), CostModel()) == 4000 * UNIT
    assert quantum_of(EngineConfig(batching="static", max_seats=4, quantum=70), CostModel()) == 70 * UNIT
    auto = quantum_of(EngineConfig(batching="static", max_seats=4, quantum="auto", step_tokens=300), CostModel())
    assert isinstance(auto, AutoQuantum) and auto.units == 2000 * UNIT
    assert after(auto, 700 * UNIT) == 2800 * UNIT


@pytest.mark.parametrize("wrong", ["often", 0, -1, 1.5, True])
def test_another_quantum_is_a_mistake(wrong: object) -> None:
    with pytest.raises(ConfigError, match="quantum must be"):
        EngineConfig(quantum=wrong)  # type: ignore[arg-type]
