"""step_cost.py and runner.py: what a simulated step takes and draws."""

from random import Random
from statistics import fmean, pstdev

import pytest

from fairstep.door import Coefficients, Orders
from fairstep.simulation.runner import SimulatedRunner
from fairstep.simulation.speech import DOT, END, prompt_of
from fairstep.simulation.step_cost import FixedModel, StepCost, features_of
from fairstep.simulation.virtual_clock import VirtualClock
from fairstep.stepping.cost import Features
from fairstep.stepping.loop import StepLoop
from fakes_stepping import admit, settings

PLAIN = Coefficients(base=1.0, prompt=0.1, sequence=0.01, context=0.001)
STEP = Features(prompt=5, sequences=2, context=30)


def test_a_step_costs_the_sum_of_its_parts() -> None:
    assert StepCost(PLAIN).seconds(STEP, Random(0)) == pytest.approx(1.0 + 0.5 + 0.02 + 0.03)


def test_noise_spreads_the_times_and_a_seed_fixes_them() -> None:
    def times(seed: int) -> list[float]:
        random = Random(seed)
        return [StepCost(PLAIN, noise=0.1).seconds(STEP, random) for _ in range(2000)]

    assert times(1) == times(1) != times(2)
    assert pstdev(times(1)) / fmean(times(1)) == pytest.approx(0.1, rel=0.1)


def test_a_fixed_model_believes_what_it_was_told_and_nothing_else() -> None:
    model = FixedModel(PLAIN, 0.5)
    for _ in range(20):
        model.observe(STEP, 100.0)
    assert model.cost(STEP) == pytest.approx(0.5 * 1.55)


def test_a_step_takes_its_time_once_and_draws_until_the_answer_ends() -> None:
    clock = VirtualClock()
    runner = SimulatedRunner(clock, StepCost(PLAIN))
    runner.outputs = {1: 2, 2: 1}
    loop = StepLoop(settings(), FixedModel(PLAIN))
    ends = {"max_tokens": 9, "stop_ids": (END,)}
    loop.apply(Orders(1, admit=(admit(1, [7, 7, 7], **ends), admit(2, [8], **ends))))
    plan = loop.plan()
    assert features_of(plan) == Features(prompt=4, sequences=2, context=4)
    step = runner.launch(plan)
    assert clock.now() == 0.0
    output = step.result()
    assert output.tokens == (DOT, END)
    assert clock.now() == pytest.approx(1.0 + 0.4 + 0.02 + 0.004) and step.result() is output
    assert clock.now() == pytest.approx(1.424)
    loop.commit(plan, output, run_seconds=1.0)
    plan = loop.plan()
    assert features_of(plan) == Features(prompt=0, sequences=1, context=4)
    assert runner.launch(plan).result().tokens == (END,)


def test_prompts_share_what_their_tenants_share_and_nothing_more() -> None:
    one, other = prompt_of(0, 6, 4, tenant=0), prompt_of(1, 6, 4, tenant=0)
    assert one[:4] == other[:4] and not set(one[4:]) & set(other[4:])
    assert not set(one) & set(prompt_of(2, 6, 4, tenant=1))
    assert prompt_of(3, 5, 0, tenant=0) == (one[5] + 6,) * 5
