"""A runner that computes nothing: a step takes its modelled seconds, an answer ends at the length it was given."""

from random import Random

from ..door import Ready
from ..stepping.plan import StepOutput, StepPlan
from ..stepping.settings import StepSettings
from .speech import DOT, END, VOCABULARY
from .step_cost import StepCost, features_of
from .virtual_clock import VirtualClock


class SimulatedRunner:
    """Owner of the answers' lengths: `outputs[seq]` tokens, the last of which ends it."""

    def __init__(self, clock: VirtualClock, cost: StepCost, seed: int = 0) -> None:
        self.outputs: dict[int, int] = {}
        self._clock = clock
        self._cost = cost
        self._random = Random(seed)

    def launch(self, plan: StepPlan) -> "SimulatedStep":
        seconds = self._cost.seconds(features_of(plan), self._random)
        tokens = tuple(
            END if piece.position + 1 >= self.outputs[piece.seq] else DOT for piece in plan.slices if piece.samples
        )
        return SimulatedStep(self._clock, seconds, StepOutput(tokens))


class SimulatedStep:
    """A step under way: to ask for its result lets its time pass."""

    def __init__(self, clock: VirtualClock, seconds: float, output: StepOutput) -> None:
        self._clock = clock
        self._seconds = seconds
        self._output = output

    def result(self) -> StepOutput:
        self._clock.spend(self._seconds)
        self._seconds = 0.0
        return self._output


def ready(settings: StepSettings) -> Ready:
    """What a worker with these settings tells the front."""
    return Ready(
        model="simulated",
        architecture="none",
        vocab_size=VOCABULARY,
        context=min(settings.context, settings.pool_tokens),
        eos_ids=(END,),
        defaults={},
        pages=settings.pages,
        page_size=settings.page_size,
        seats=settings.seats,
        dtype="float32",
        device="none",
        parameters=0,
        seconds={},
        prefix_cache=settings.prefix_cache,
    )
