"""simulator.py: virtual time passes in steps alone, everything happens at its instant, and a seed fixes all of it."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairstep.door import Coefficients
from fairstep.fairness.policies import make_room
from fairstep.simulation.logbook import Logbook
from fairstep.simulation.simulator import SETTINGS, Setup, Simulator, simulate
from fairstep.simulation.step_cost import StepCost
from fairstep.simulation.suites import suite_trace
from fairstep.simulation.summary import summarize
from fairstep.simulation.trace import Arrival, Trace

SECOND = Setup(cost=StepCost(Coefficients(base=1.0, prompt=0.0, sequence=0.0, context=0.0)))  # a step takes one


def run(*arrivals: Arrival, setup: Setup = SECOND, until: float | None = None) -> Logbook:
    simulator = Simulator(Trace.of("test", arrivals, until), make_room("fcfs"), setup)
    log = simulator.run()
    simulator.check()
    return log


def ask(at: float, outputs: int = 2, **more: object) -> Arrival:
    return Arrival(at=at, prompt_tokens=4, outputs=outputs, **more)  # type: ignore[arg-type]


def test_tokens_come_at_the_ends_of_steps() -> None:
    [story] = run(ask(0.25, outputs=3)).stories
    assert (story.sent_at, story.first_at, story.ended_at) == (0.25, 1.25, 3.25)
    assert (story.outputs, story.end) == (3, "stop")


def test_idle_time_passes_at_once() -> None:
    log = run(ask(0.0), ask(1000.0))
    assert [story.ended_at for story in log.stories] == [2.0, 1002.0]
    assert (log.steps, log.busy, log.ended_at) == (4, 4.0, 1002.0)


def test_who_comes_during_a_step_is_asked_at_its_instant_and_runs_in_the_next() -> None:
    _, late = run(ask(0.0), ask(0.5)).stories
    assert (late.sent_at, late.first_at) == (0.5, 2.0)


def test_an_answer_ends_by_itself_or_at_max_tokens() -> None:
    log = run(ask(0.0, outputs=9, max_tokens=2), ask(0.0, outputs=2, max_tokens=9))
    assert [(story.outputs, story.end) for story in log.stories] == [(2, "length"), (2, "stop")]


def test_a_cancel_takes_effect_before_the_step_it_falls_in_is_committed() -> None:
    [story] = run(ask(0.0, outputs=9, cancel=2.5)).stories
    assert (story.end, story.ended_at, story.outputs) == ("cancelled", 2.5, 2)
    assert run(ask(0.0, cancel=9.0)).stories[0].end == "stop"


def test_a_deadline_ends_what_is_not_done_and_counts_in_goodput() -> None:
    late, good = run(ask(0.0, outputs=9, deadline=2.5), ask(0.0, outputs=2, deadline=2.0)).stories
    assert (late.end, late.ended_at) == ("expired", 2.5)
    assert (good.end, good.ended_at) == ("stop", 2.0)
    assert (late.is_good, good.is_good) == (False, True)


def test_a_deadline_for_the_first_token_is_met_by_it() -> None:
    early, late = run(ask(0.0, outputs=5, ttft_deadline=1.0), ask(0.5, outputs=5, ttft_deadline=1.0)).stories
    assert (early.end, early.ended_at) == ("stop", 5.0)
    assert (late.end, late.ended_at) == ("expired", 1.5)


def test_what_can_never_fit_is_refused_with_its_code() -> None:
    log = run(Arrival(at=0.0, prompt_tokens=SETTINGS.context, outputs=1))
    assert (log.stories[0].end, log.stories[0].why) == ("refused", "context_length_exceeded")
    assert (log.steps, log.ended_at) == (0, 0.0)


def test_the_end_of_a_trace_leaves_the_rest_unfinished() -> None:
    log = run(ask(0.0, outputs=99), ask(50.0), until=10.0)
    assert [story.end for story in log.stories] == ["", ""]
    assert (log.ended_at, log.tokens) == (10.0, 10)


def test_service_counts_each_token_once_by_its_kind() -> None:
    own = replace(SECOND, settings=replace(SETTINGS, prefix_cache=True))
    log = run(
        Arrival(at=0.0, tenant="A", prompt_tokens=40, outputs=3, shared=32),
        Arrival(at=9.0, tenant="A", prompt_tokens=40, outputs=3, shared=32),
        Arrival(at=20.0, tenant="B", prompt_tokens=40, outputs=3, shared=32),
        setup=own,
    )
    assert log.books["A"].service.total == pytest.approx(40 + 6 + 8 + 32 * 0.1 + 6)
    assert log.books["B"].service.total == 46  # nobody finds another tenant's prompt
    assert log.books["A"].demand.total == 2 * 46


def test_recomputed_tokens_serve_nobody() -> None:
    small = replace(SECOND, settings=replace(SETTINGS, pages=6, seats=2))
    log = run(*[Arrival(at=0.0, prompt_tokens=16, outputs=60) for _ in range(2)], setup=small)
    assert log.recomputed > 0
    assert log.books["anonymous"].service.total == 2 * (16 + 2 * 60)


def test_the_same_seed_gives_the_same_run_and_another_seed_another() -> None:
    def summary(seed: int) -> object:
        setup = Setup(cost=StepCost(noise=0.2), seed=seed)
        return summarize(simulate(suite_trace("noisy_neighbour", 0), make_room("fcfs"), setup))

    assert summary(1) == summary(1)
    assert summary(1) != summary(2)


def test_a_scheduler_that_takes_steps_for_cheaper_gives_prompts_more_of_them() -> None:
    arrivals = [ask(0.0, outputs=60), *(Arrival(at=0.5, prompt_tokens=400, outputs=1) for _ in range(8))]
    own = replace(SETTINGS, inter_token_target=0.06)
    worst = {}
    for believed in (0.5, 1.0, 1.5, None):
        log = run(*arrivals, setup=Setup(settings=own, believed=believed))
        worst[believed] = max(log.books["anonymous"].gaps)
    assert worst[1.0] <= 0.06 < worst[0.5]
    assert worst[1.5] < worst[1.0]
    assert worst[None] < 0.2  # it learns


requests = st.lists(
    st.builds(
        Arrival,
        at=st.floats(0, 20),
        tenant=st.sampled_from("AB"),
        prompt_tokens=st.integers(1, 60),
        outputs=st.integers(1, 20),
        max_tokens=st.none() | st.integers(1, 20),
        priority=st.integers(-1, 1),
        deadline=st.none() | st.floats(0.1, 60),
        ttft_deadline=st.none() | st.floats(0.1, 30),
        cancel=st.none() | st.floats(0, 30),
    ),
    max_size=15,
)


@settings(deadline=None)
@given(requests, st.booleans(), st.sampled_from([0.0, 0.3]))
def test_every_request_ends_once_and_nothing_is_left(arrivals: list[Arrival], slow_door: bool, noise: float) -> None:
    tight = replace(SETTINGS, seats=3, step_tokens=32, chunk=32, pages=24, page_size=4, context=90, prefix_cache=True)
    setup = Setup(settings=tight, cost=StepCost(SECOND.cost.coefficients, noise), slow_door=slow_door)
    log = run(*arrivals, setup=setup)
    for story in log.stories:
        arrival = story.arrival
        assert story.end in ("stop", "length", "cancelled", "expired") and story.ended_at is not None
        assert not story.is_done or story.outputs == arrival.answer
        latest = arrival.at + max(arrival.deadline or 0.0, arrival.ttft_deadline or 0.0)
        assert story.end != "expired" or story.ended_at <= latest
        assert story.end != "cancelled" or story.ended_at == arrival.at + (arrival.cancel or 0.0)
        times = [arrival.at, story.sent_at, story.first_at, story.last_at, story.ended_at]
        assert [at for at in times if at is not None] == sorted(at for at in times if at is not None)
    assert not log.waiting
    assert log.tokens >= sum(story.outputs for story in log.stories)
