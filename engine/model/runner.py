"""Runs steps with a Decoder on one device: plan in, tokens out. Knows no scheduling; it computes what it is handed."""

from dataclasses import dataclass

from ..door import Sampling
from ..stepping.pages import NULL_PAGE
from ..stepping.plan import Slice, StepOutput, StepPlan
from .batch import batch_of
from .decoder import Decoder
from .kv import KVMemory
from .sampler import Row, sample


@dataclass(frozen=True, slots=True)
class FinishedStep:
    """A step that was computed by the time `launch` returned."""

    output: StepOutput

    def result(self) -> StepOutput:
        return self.output


class TorchRunner:
    """A stepping.plan.Runner. `kv` is the memory that the decoder's backend writes to."""

    def __init__(self, decoder: Decoder, kv: KVMemory) -> None:
        self.decoder = decoder
        self.kv = kv

    def launch(self, plan: StepPlan) -> FinishedStep:
        """Compute a plan with at least one slice. Raises what torch raises; pages of the plan are then undefined."""
        logits = self.decoder.forward(batch_of(plan.slices, self.kv.page_size, self.decoder.device))
        rows = [Row(s.sampling, s.position) for s in plan.slices if s.samples]
        return FinishedStep(StepOutput(tuple(sample(logits, rows))))

    def warm_up(self, lengths: tuple[int, ...] = (1, 1, 16)) -> None:
        """Run a few slices on the null page, so that the first request doesn't pay for what torch sets up lazily."""
        for length in lengths:
            self.launch(StepPlan(0, (_blank_slice(length, self.kv.page_size),)))
        self.kv.clear_null_page()

    def check(self) -> None:
        self.kv.check()


def _blank_slice(length: int, page_size: int) -> Slice:
    """Some tokens of no sequence."""
    pages = (NULL_PAGE,) * -(-length // page_size)
    return Slice(0, 0, 0, (0,) * length, pages, samples=True, position=0, sampling=Sampling(), decode=length == 1)
