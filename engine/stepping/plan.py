"""What a step will do, as frozen values: the only thing that crosses from the scheduler to the runner.

Knows no torch. A runner turns a StepPlan into tensors and answers with a StepOutput.
"""

from dataclasses import dataclass
from typing import Protocol

from ..door import Sampling

NOT_FINITE = -1  # in StepOutput.tokens: this row's logits were not finite


@dataclass(frozen=True, slots=True)
class Slice:
    """One sequence's token range in a step.

    tokens: the ids at positions [start, start + len(tokens)). pages: the page table, covering at least the range's
    end. samples: the range reaches the last known token, so its last position's logits are drawn from.
    position: how many outputs the request has so far (over all attempts); the noise is keyed by it.
    """

    seq: int
    attempt: int
    start: int
    tokens: tuple[int, ...]
    pages: tuple[int, ...]
    samples: bool
    position: int
    sampling: Sampling
    decode: bool

    @property
    def end(self) -> int:
        return self.start + len(self.tokens)


@dataclass(frozen=True, slots=True)
class StepPlan:
    """A step: slices in the order they run, decodes first. Costs are modelled seconds (door.StepRecord)."""

    number: int
    slices: tuple[Slice, ...]
    modelled: float = 0.0
    decode_only: float = 0.0
    target: float = 0.0


@dataclass(frozen=True, slots=True)
class StepOutput:
    """One token for each slice with `samples`, in the plan's order; NOT_FINITE where the logits were not."""

    tokens: tuple[int, ...]


class Handle(Protocol):
    """A step under way."""

    def result(self) -> StepOutput: ...


class Runner(Protocol):
    """Computes steps: tensors, kernels, sampler. Owns KV memory and the device."""

    def launch(self, plan: StepPlan) -> Handle: ...
