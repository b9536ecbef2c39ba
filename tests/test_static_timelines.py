"""Static batching through the whole path, each timestamp exact: batches of 4, 10 ms delay, 100 ms a batch, one worker.

Times are in ms here: the clock has no unit. An answer has one token, so that a batch is one step.
"""

from dataclasses import replace

import pytest

from fairstep.door import Coefficients
from fairstep.fairness.policies import make_room
from fairstep.simulation.simulator import SETTINGS, Setup, Simulator
from fairstep.simulation.step_cost import StepCost
from fairstep.simulation.trace import Arrival, Trace
from fairstep.stepping.batch_gate import BatchGate

GATE = BatchGate(size=4, delay=10, compute=100)
Coming = tuple[str, float] | tuple[str, float, float]  # name, arrival, and deadline if it has one
Fate = tuple[float | None, float | None, str]  # dispatched, ended, how


def run(*coming: Coming, batch_ms: float = 100, **how: object) -> tuple[dict[str, Fate], Simulator]:
    arrivals = [
        Arrival(
            at=each[1], tenant=each[0], prompt_tokens=8, outputs=1, deadline=each[2] - each[1] if each[2:] else None
        )
        for each in coming
    ]
    cost = StepCost(Coefficients(batch_ms, 0.0, 0.0, 0.0))
    setup = Setup(settings=replace(SETTINGS, static=True), cost=cost, gate=GATE, **how)  # type: ignore[arg-type]
    simulator = Simulator(Trace.of("timeline", arrivals), make_room("fcfs"), setup)
    log = simulator.run()
    simulator.check()
    return {s.arrival.tenant: (s.sent_at, s.ended_at, s.end) for s in log.stories}, simulator


FOUR = (("a", 0.0), ("b", 0.0), ("c", 0.0), ("d", 0.0))
FIRST_BATCH = dict.fromkeys("abcd", (0.0, 100.0, "stop"))


def test_sparse_a_at_0_and_b_at_7_leave_together_at_10() -> None:
    fates, simulator = run(("A", 0), ("B", 7))
    assert fates == {"A": (10, 110, "stop"), "B": (10, 110, "stop")}
    waits = [story.ended_at - story.arrival.at for story in simulator.log.stories if story.ended_at is not None]
    assert waits == [110, 103]


def test_four_at_once_leave_at_once() -> None:
    assert run(*FOUR)[0] == FIRST_BATCH


def test_busy_e_at_1_starts_at_100_and_not_at_110() -> None:
    fates, simulator = run(*FOUR, ("E", 1))
    assert fates == {**FIRST_BATCH, "E": (100, 200, "stop")}
    assert simulator.log.stories[4].ended_at == 1 + 199


def test_an_overdue_e_takes_a_fresh_f_along() -> None:
    assert run(*FOUR, ("E", 1), ("F", 95))[0] == {**FIRST_BATCH, "E": (100, 200, "stop"), "F": (100, 200, "stop")}


def test_a_fresh_f_alone_waits_its_own_delay() -> None:
    assert run(*FOUR, ("F", 95))[0] == {**FIRST_BATCH, "F": (105, 205, "stop")}


def test_deadline_e_is_refused_on_arrival_when_it_cannot_be_met() -> None:
    fates, simulator = run(*FOUR, ("E", 1, 150), refuses=True)
    assert fates == {**FIRST_BATCH, "E": (None, 1, "refused")}
    assert simulator.log.stories[4].why == "deadline_unattainable"


def test_deadline_e_that_was_let_in_expires_at_50_and_is_never_dispatched() -> None:
    fates, simulator = run(*FOUR, ("E", 1, 150))
    assert fates == {**FIRST_BATCH, "E": (None, 50, "expired")}
    assert simulator.log.steps == 1


def test_a_deadline_sends_a_alone_at_5_and_b_after_it() -> None:
    assert run(("A", 0, 105), ("B", 7))[0] == {"A": (5, 105, "stop"), "B": (105, 205, "stop")}


def test_an_attainable_deadline_is_let_in_and_met() -> None:
    assert run(*FOUR, ("E", 1, 200), refuses=True)[0]["E"] == (100, 200, "stop")


@pytest.mark.parametrize(("slow_door", "late"), [(True, 1), (False, 0)])
def test_a_late_result_of_an_expired_request_revives_nothing(slow_door: bool, late: int) -> None:
    # A batch takes 200 ms where 100 were expected: A's deadline passes while it runs.
    fates, simulator = run(("A", 0, 150), batch_ms=200, slow_door=slow_door)
    assert fates == {"A": (10, 150, "expired")}
    assert simulator.log.stories[0].outputs == 0
    # Over a fast door the worker hears of it before it reports, and has nothing to tell; over a slow one it is dropped.
    assert simulator.log.late_results == late
    assert f'stale_results_total{{model_name="simulated"}} {late}' in simulator.metrics.render(
        simulator.front.stats(0.0)
    ).decode().replace(f"{late}.0", str(late))


def test_a_cancel_while_it_waits_takes_it_out_of_the_batch() -> None:
    arrivals = [
        Arrival(at=0, tenant="A", prompt_tokens=8, outputs=1, cancel=5),
        Arrival(at=7, tenant="B", prompt_tokens=8, outputs=1),
    ]
    setup = Setup(settings=replace(SETTINGS, static=True), cost=StepCost(Coefficients(100, 0, 0, 0)), gate=GATE)
    log = Simulator(Trace.of("cancel", arrivals), make_room("fcfs"), setup).run()
    assert [(s.sent_at, s.ended_at, s.end) for s in log.stories] == [(None, 5, "cancelled"), (17, 117, "stop")]
