"""What a simulated step takes, and what the scheduler believes it takes: they may differ on purpose."""

from dataclasses import dataclass
from random import Random

from ..door import Coefficients
from ..stepping.cost import Features, StepModel
from ..stepping.plan import StepPlan

# 20 ms a step, 0.22 ms a prompt token, 0.3 ms a sequence: about a 7B model on a small GPU
SMALL_GPU = Coefficients(base=0.02, prompt=0.000_22, sequence=0.000_3, context=0.000_000_3)


@dataclass(frozen=True, slots=True)
class StepCost:
    """The truth. coefficients: made up, or measured (door.Report.coefficients). noise: relative spread of the times."""

    coefficients: Coefficients = SMALL_GPU
    noise: float = 0.0

    def seconds(self, features: Features, random: Random) -> float:
        of = self.coefficients
        plain = of.base + of.prompt * features.prompt + of.sequence * features.sequences + of.context * features.context
        return plain * random.lognormvariate(0.0, self.noise) if self.noise else plain


class FixedModel(StepModel):
    """A step model that learns nothing: the truth times a factor, which is 1 for one that is right."""

    def __init__(self, truth: Coefficients, factor: float = 1.0) -> None:
        base, prompt, sequence, context = truth.base, truth.prompt, truth.sequence, truth.context
        super().__init__(Coefficients(base * factor, prompt * factor, sequence * factor, context * factor))

    def observe(self, features: Features, seconds: float) -> None:
        """Keep to what is believed."""


def features_of(plan: StepPlan) -> Features:
    """What a plan's time depends on."""
    slices = plan.slices + plan.padding
    prompt = sum(len(piece.tokens) for piece in slices if not piece.decode)
    return Features(prompt, len(slices), sum(piece.end for piece in slices))
