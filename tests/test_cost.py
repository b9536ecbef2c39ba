"""cost.py: modelled step times on machines we make up: they converge, stay finite, and err on the dear side."""

import math
import random
from dataclasses import dataclass

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fairstep.door import Coefficients
from fairstep.stepping.cost import PRIOR, TOLD_COST, UNLIMITED, Features, StepModel

AUTO = 2.5


@dataclass(frozen=True)
class MadeUp:
    """A machine with known coefficients, some noise, and now and then somebody else on its core."""

    base: float
    prompt: float
    sequence: float
    context: float
    noise: float = 0.05
    outliers: float = 0.0

    def true(self, step: Features) -> float:
        return self.base + self.prompt * step.prompt + self.sequence * step.sequences + self.context * step.context

    def time(self, step: Features, pick: random.Random) -> float:
        slow = 10.0 if pick.random() < self.outliers else 1.0
        return self.true(step) * slow * pick.lognormvariate(0.0, self.noise)


def decodes(pick: random.Random, most: int = 8) -> Features:
    count = pick.randint(1, most)
    return Features(0, count, sum(pick.randint(10, 900) for _ in range(count)))


def with_prompt(model: StepModel, beside: Features, start: int) -> Features:
    allowed = model.allowance(AUTO * model.cost(beside), beside, start)
    return beside.plus_prompt(start, min(max(allowed, 1), 512))


def live(machine: MadeUp, model: StepModel, steps: int, seed: int, prompts: float = 0.3) -> list[Features]:
    """Steps as a scheduler would make them, each observed; those that held prompt tokens."""
    pick, mixed = random.Random(seed), []
    for _ in range(steps):
        step = decodes(pick)
        if pick.random() < prompts:
            step = with_prompt(model, step, pick.randint(0, 500))
            mixed.append(step)
        model.observe(step, machine.time(step, pick))
    return mixed


CPU = MadeUp(base=0.03, prompt=0.003, sequence=0.005, context=5e-6)
GPU = MadeUp(base=0.01, prompt=1e-5, sequence=2e-5, context=1e-8)
COMPUTE_BOUND = MadeUp(base=0.005, prompt=0.005, sequence=0.005, context=5e-6)


def test_before_anything_is_observed_a_prompt_token_costs_at_least_a_decode() -> None:
    of = StepModel().coefficients
    assert of == PRIOR
    assert of.prompt >= of.sequence > 0 and of.base > 0 and of.context > 0


def test_cost_is_linear_in_its_features() -> None:
    model = StepModel(Coefficients(base=1.0, prompt=2.0, sequence=4.0, context=0.5))
    assert model.cost(Features()) == 1.0
    assert model.cost(Features(prompt=3, sequences=2, context=10)) == 1 + 6 + 8 + 5
    assert Features(3, 2, 10).plus_prompt(start=7, length=4) == Features(7, 3, 21)


def test_allowance_by_hand() -> None:
    model = StepModel(Coefficients(base=1.0, prompt=2.0, sequence=4.0, context=0.5))
    beside = Features(0, 1, 10)  # costs 10
    # 4 for the slice, 0.5 * 20 for its start, then 2.5 a token
    assert model.allowance(24.0, beside, start=20) == 0
    assert model.allowance(26.4, beside, start=20) == 0
    assert model.allowance(26.5, beside, start=20) == 1
    assert model.allowance(31.5, beside, start=20) == 3
    assert model.allowance(3.0, beside, start=0) == 0


def test_where_tokens_cost_nothing_as_many_as_can_be_are_allowed() -> None:
    model = StepModel(Coefficients(base=1.0, prompt=0.0, sequence=1.0, context=0.0))
    assert model.allowance(5.0, Features(0, 1, 10), start=3) == UNLIMITED
    assert model.allowance(1.0, Features(0, 1, 10), start=3) == 0


positive = st.floats(1e-9, 10.0)


@given(
    st.builds(Coefficients, positive, positive, positive, positive),
    st.floats(0, 100),
    st.builds(Features, st.integers(0, 500), st.integers(0, 300), st.integers(0, 10**6)),
    st.integers(0, 10**5),
)
def test_an_allowance_is_the_most_that_keeps_the_target(
    coefficients: Coefficients, target: float, beside: Features, start: int
) -> None:
    model = StepModel(coefficients)
    allowed = model.allowance(target, beside, start)
    assert allowed == 0 or model.cost(beside.plus_prompt(start, allowed)) <= target
    assert model.cost(beside.plus_prompt(start, allowed + 1)) > target * (1 - 1e-9)


@pytest.mark.parametrize("machine", [CPU, GPU, COMPUTE_BOUND], ids=["cpu", "gpu", "compute bound"])
@pytest.mark.parametrize("seed", range(3))
def test_it_learns_a_machine(machine: MadeUp, seed: int) -> None:
    model, pick = StepModel(), random.Random(seed + 100)
    mixed = live(machine, model, 400, seed)
    for step in [decodes(pick) for _ in range(20)] + mixed[-20:]:
        assert model.cost(step) == pytest.approx(machine.true(step), rel=0.15)


def test_slow_moments_of_a_shared_core_do_not_move_it_much() -> None:
    machine = MadeUp(0.03, 0.003, 0.005, 5e-6, noise=0.05, outliers=0.05)
    model, pick = StepModel(), random.Random(9)
    mixed = live(machine, model, 400, seed=4)
    for step in [decodes(pick) for _ in range(20)] + mixed[-20:]:
        assert model.cost(step) == pytest.approx(machine.true(step), rel=0.25)


def test_one_step_ten_times_slower_hardly_counts() -> None:
    model = StepModel()
    live(CPU, model, 200, seed=1)
    step = Features(20, 4, 2000)
    before = model.cost(step)
    model.observe(Features(0, 4, 1500), 10 * CPU.true(Features(0, 4, 1500)))
    assert model.cost(step) == pytest.approx(before, rel=0.1)


@pytest.mark.parametrize("factor", [10.0, 0.1])
def test_it_follows_a_machine_whose_speed_changes_for_good(factor: float) -> None:
    model, step = StepModel(), Features(20, 4, 2000)
    live(CPU, model, 200, seed=1)
    changed = MadeUp(CPU.base * factor, CPU.prompt * factor, CPU.sequence * factor, CPU.context * factor)
    live(changed, model, 30, seed=2)
    assert model.cost(step) == pytest.approx(changed.true(step), rel=0.3)


def test_a_slow_first_step_is_forgotten() -> None:
    model, pick = StepModel(), random.Random(3)
    first = decodes(pick)
    model.observe(first, 20 * CPU.true(first))
    live(CPU, model, 30, seed=5, prompts=0.0)
    step = Features(0, 4, 1500)
    assert model.cost(step) == pytest.approx(CPU.true(step), rel=0.2)


@pytest.mark.parametrize("machine", [CPU, GPU, COMPUTE_BOUND], ids=["cpu", "gpu", "compute bound"])
def test_while_only_decodes_are_seen_a_prompt_token_stays_dear(machine: MadeUp) -> None:
    model = StepModel()
    live(machine, model, 1000, seed=7, prompts=0.0)
    of = model.coefficients
    alone = model.cost(Features(0, 1, 100))
    assert alone / 5 < of.prompt < 3 * alone


def test_what_was_learned_of_prompts_is_kept_while_there_are_none() -> None:
    model = StepModel()
    live(GPU, model, 200, seed=1)
    learned = model.coefficients.prompt
    live(GPU, model, 3000, seed=2, prompts=0.0)
    assert learned / 2 < model.coefficients.prompt < 2 * learned < 4 * GPU.prompt


@pytest.mark.parametrize(("machine", "most"), [(CPU, 400), (GPU, 80)], ids=["cpu", "gpu"])
def test_a_long_prompt_beside_one_stream_on_an_unknown_machine_soon_gets_what_it_bears(
    machine: MadeUp, most: int
) -> None:
    """Steps of the same shape over and over teach little; what the first few told must last."""
    model, pick = StepModel(), random.Random(5)
    for step in (Features(40, 1, 40), Features(0, 1, 41), Features(0, 1, 42)):
        model.observe(step, machine.time(step, pick))
    done = steps = 0
    while done < 3000:
        alone = Features(0, 1, 43 + steps)
        step = with_prompt(model, alone, done)
        model.observe(step, machine.time(step, pick))
        done, steps = done + step.prompt, steps + 1
    assert steps < most


@pytest.mark.parametrize("steps", [0, 1, 3, 30])
def test_however_much_is_in_doubt_an_automatic_target_bears_a_token_beside_one_decode(steps: int) -> None:
    for seed in range(20):
        model = StepModel()
        live(MadeUp(0.03, 0.003, 0.005, 5e-6, noise=0.1), model, steps, seed, prompts=0.0)
        alone = Features(0, 1, 20)
        assert model.allowance(AUTO * model.cost(alone), alone, 0) >= 1


def any_machine(pick: random.Random) -> MadeUp:
    """From a tenth of a millisecond to a hundred a step; a decode costs at least what a prompt token does."""
    base, prompt = 10 ** pick.uniform(-4, -1), 10 ** pick.uniform(-3, -0.2)
    sequence, context = prompt + pick.choice((0.0, 0.01, 0.3)), pick.choice((0.0, 1e-5, 1e-4, 1e-3))
    return MadeUp(base, base * prompt, base * sequence, base * context, pick.choice((0.0, 0.05, 0.1)), outliers=0.02)


def test_steps_beside_decodes_are_hardly_over_the_target_from_the_first() -> None:
    """By the true cost: a machine that is still unknown is asked for little, a known one for what it bears."""
    ratios = []
    for seed in range(100):
        pick = random.Random(seed)
        machine, model = any_machine(pick), StepModel()
        for number in range(100):
            step = alone = decodes(pick)
            if number >= 5 and pick.random() < 0.3:
                step = with_prompt(model, alone, pick.randint(0, 500))
                if step.prompt > 1:
                    ratios.append(machine.true(step) / machine.true(alone))
            model.observe(step, machine.time(step, pick))
    ratios.sort()
    assert ratios[len(ratios) // 2] > 2.0, "what the decodes bear is used"
    assert ratios[int(0.95 * len(ratios))] < 1.1 * AUTO
    assert ratios[-1] < 2.5 * AUTO


seconds = st.floats(allow_nan=True, allow_infinity=True) | st.floats(1e-9, 1e6) | st.floats(0.001, 1.0)
counts = st.builds(Features, st.integers(0, 10**6), st.integers(1, 4096), st.integers(1, 10**8))


@given(st.lists(st.tuples(counts, seconds), max_size=40))
@settings(max_examples=200, deadline=None)
@example([(Features(0, 1, 1), 0.0)])
@example([(Features(10**6, 1, 1), 2e-9), (Features(0, 1, 1), 9e5)] * 10)
def test_whatever_is_observed_coefficients_stay_finite_and_positive(steps: list[tuple[Features, float]]) -> None:
    model = StepModel()
    for features, took in steps:
        model.observe(features, took)
        of = model.coefficients
        for value in (of.base, of.prompt, of.sequence, of.context):
            assert math.isfinite(value) and value > 0.0
        assert model.allowance(0.1, features, 10) >= 0


def test_times_that_cannot_be_are_left_out() -> None:
    model = StepModel()
    for took in (0.0, -1.0, math.nan, math.inf, 1e-12):
        model.observe(Features(0, 1, 10), took)
    assert model.coefficients == PRIOR


def test_a_step_that_told_log_probabilities_does_not_make_decodes_dear() -> None:
    model = StepModel()
    live(CPU, model, 200, seed=1)
    before, step = model.cost(Features(0, 4, 1500)), Features(30, 5, 1530, told=30)
    for _ in range(100):
        model.observe(step, TOLD_COST * CPU.true(step))
    assert model.cost(Features(0, 4, 1500)) == before
    assert model.cost(step) == pytest.approx(
        model.cost(Features(30, 5, 1530)) + (TOLD_COST - 1) * 30 * model.coefficients.prompt
    )


@pytest.mark.parametrize("tells", [False, True])
def test_what_is_allowed_with_log_probabilities_keeps_the_target_too(tells: bool) -> None:
    model, beside = StepModel(), Features(0, 4, 1500)
    target = 50 * model.cost(beside)
    most = model.allowance(target, beside, 7, tells=tells)
    assert model.cost(beside.plus_prompt(7, most, tells=tells)) <= target
    assert model.cost(beside.plus_prompt(7, most + 1, tells=tells)) > target
