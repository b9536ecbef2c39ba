"""StepSettings.static: the worker takes in nobody until all of its batch has ended."""

from dataclasses import replace
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from fairstep.door import Orders, Report
from fairstep.fairness.policies import make_room
from fairstep.request import Delta
from fairstep.simulation.simulator import SETTINGS, Setup, Simulator
from fairstep.simulation.trace import Arrival, Trace
from fairstep.stepping.cost import StepModel
from fairstep.stepping.loop import StepLoop
from fairstep.stepping.plan import StepOutput
from fakes_stepping import admit, settings

SMALL = replace(SETTINGS, static=True, seats=4, step_tokens=16, chunk=16, pages=24, page_size=4, context=60)


def seqs(loop: StepLoop, drawn: int = 3) -> list[int]:
    """Who is in the next step, which is played with token `drawn`."""
    plan = loop.plan()
    loop.commit(plan, StepOutput((drawn,) * sum(piece.samples for piece in plan.slices)), run_seconds=1.0)
    loop.check()
    return [piece.seq for piece in plan.slices]


def test_a_newcomer_waits_until_the_whole_batch_has_ended() -> None:
    loop = StepLoop(settings(static=True), StepModel())
    loop.apply(Orders(1, admit=(admit(1, [1], max_tokens=1), admit(2, [2], max_tokens=3))))
    assert seqs(loop) == [1, 2]
    loop.apply(Orders(2, admit=(admit(3, [3], max_tokens=2),)))
    assert [seqs(loop) for _ in range(4)] == [[2], [2], [3], [3]]


def test_without_the_flag_it_joins_at_once() -> None:
    loop = StepLoop(settings(), StepModel())
    loop.apply(Orders(1, admit=(admit(1, [1], max_tokens=3),)))
    assert seqs(loop) == [1]
    loop.apply(Orders(2, admit=(admit(2, [3], max_tokens=2),)))
    assert seqs(loop) == [1, 2]


def test_a_batch_is_seated_whole_even_if_its_prompts_take_many_steps() -> None:
    loop = StepLoop(settings(static=True, step_tokens=4, chunk=4), StepModel())
    loop.apply(Orders(1, admit=tuple(admit(seq, range(8), max_tokens=1) for seq in (1, 2, 3))))
    assert [seqs(loop) for _ in range(6)] == [[1], [1], [2], [2], [3], [3]]
    loop.apply(Orders(2, admit=(admit(4, [1], max_tokens=1),)))
    assert seqs(loop) == [4]


requests = st.lists(
    st.tuples(st.floats(0, 3), st.integers(1, 40), st.integers(1, 19), st.none() | st.floats(0.01, 2)),
    min_size=1,
    max_size=12,
)


@given(requests)
def test_nobody_joins_a_batch_under_way_and_all_end(rows: list[tuple[float, int, int, float | None]]) -> None:
    arrivals = [Arrival(at=at, prompt_tokens=p, outputs=n, cancel=cancel) for at, p, n, cancel in rows]
    simulator = Simulator(Trace.of("static", arrivals), make_room("fcfs"), Setup(settings=SMALL))
    running = [0]
    receive = simulator.front.receive

    def watch(report: Report, now: float) -> list[Delta]:
        running.append(report.gauges.running)
        return receive(report, now)

    simulator.front.receive = watch  # type: ignore[method-assign]
    log = simulator.run()
    simulator.check()
    assert all(story.end in ("stop", "length", "cancelled") for story in log.stories)
    joined = [(before, after) for before, after in pairwise(running) if after > before]
    assert all(before == 0 for before, _ in joined), "somebody joined a batch under way"
