"""capacity.py: the arithmetic, and that the step model's rate is what the simulator finds."""

import doctest
from dataclasses import replace

import pytest

from fairstep import capacity
from fairstep.capacity import TimeBudget, fixed_time_rate, plan_capacity, step_model_rate
from fairstep.door import Coefficients
from fairstep.errors import ConfigError
from fairstep.fairness.policies import make_room
from fairstep.simulation.simulator import SETTINGS, Setup, simulate
from fairstep.simulation.step_cost import SMALL_GPU, StepCost
from fairstep.simulation.trace import Arrival, Trace

EACH = fixed_time_rate(mean_batch=32, batch_seconds=0.1)


def test_the_examples_in_its_page_hold() -> None:
    failed, tried = doctest.testmod(capacity)
    assert tried > 5 and not failed


@pytest.mark.parametrize(("workers", "load", "growth"), [(3, 1000 / 960, 40.0), (4, 0.78125, 0.0), (5, 0.625, 0.0)])
def test_a_thousand_a_second(workers: int, load: float, growth: float) -> None:
    plan = plan_capacity(1000, EACH, workers)
    assert (plan.each, plan.least, plan.workers) == (320, 4, workers)
    assert (plan.load, plan.growth) == (load, growth)


def test_half_full_batches_need_seven() -> None:
    plan = plan_capacity(1000, fixed_time_rate(mean_batch=16, batch_seconds=0.1))
    assert (plan.each, plan.least) == (160, 7)
    assert plan_capacity(1000, plan.each, workers=5).growth == 200


def test_no_load_needs_one_worker_and_exact_loads_need_no_more() -> None:
    assert plan_capacity(0, EACH).least == 1
    assert plan_capacity(640, EACH).least == 2


def test_sixty_milliseconds_are_one_pot() -> None:
    budget = TimeBudget(total=200, way_in=20, compute=100, way_out=20)
    assert budget.waiting == 60
    assert budget.holds(by_choice=60, for_worker=0) and budget.holds(by_choice=0, for_worker=60)
    assert not budget.holds(by_choice=60, for_worker=60)


@pytest.mark.parametrize("parts", [(100, 0, 100, 0), (100, 20, 100, 20)])
def test_a_budget_that_compute_takes_whole_is_refused(parts: tuple[int, ...]) -> None:
    total, way_in, compute, way_out = parts
    with pytest.raises(ConfigError, match="leaves no room"):
        TimeBudget(total=total, way_in=way_in, compute=compute, way_out=way_out)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: plan_capacity(-1, 10),
        lambda: plan_capacity(1, 0),
        lambda: plan_capacity(1, 1, workers=0),
        lambda: fixed_time_rate(mean_batch=0, batch_seconds=0.1),
        lambda: fixed_time_rate(mean_batch=1, batch_seconds=0),
        lambda: step_model_rate(SMALL_GPU, SETTINGS, prompt_tokens=9000, outputs=2000),
        lambda: step_model_rate(SMALL_GPU, SETTINGS, prompt_tokens=0, outputs=2000),
    ],
)
def test_what_makes_no_plan_is_refused(wrong: "object") -> None:
    with pytest.raises(ConfigError, match="capacity"):
        wrong()  # type: ignore[operator]


def test_a_step_that_always_takes_the_same_is_the_fixed_time_case() -> None:
    fixed = Coefficients(base=0.1, prompt=0.0, sequence=0.0, context=0.0)
    wide = replace(SETTINGS, step_tokens=10_000)
    assert step_model_rate(fixed, wide, prompt_tokens=8, outputs=1) == fixed_time_rate(mean_batch=32, batch_seconds=0.1)


@pytest.mark.parametrize(("prompt", "outputs"), [(128, 64), (32, 128), (512, 32), (256, 256)])
def test_the_simulator_does_about_as_much(prompt: int, outputs: int) -> None:
    arrivals = [Arrival(at=0.0, prompt_tokens=prompt, outputs=outputs) for _ in range(160)]
    log = simulate(Trace.of("all at once", arrivals), make_room("fcfs"), Setup(cost=StepCost(SMALL_GPU)))
    ends = sorted(story.ended_at or 0.0 for story in log.stories)
    measured = 96 / (ends[127] - ends[31])  # neither the beginning nor the end, where seats are empty
    expected = step_model_rate(SMALL_GPU, SETTINGS, prompt_tokens=prompt, outputs=outputs)
    assert measured == pytest.approx(expected, rel=0.2)
