"""What a model makes of a step: the plain way, forward pass and logits one after the other, for every CausalModel."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from .batch import StepBatch


class CausalModel(Protocol):
    """A decoder-only model on one device that keeps keys and values in pages."""

    @property
    def device(self) -> torch.device: ...

    def hidden(self, batch: StepBatch) -> Tensor:
        """Compute a step and keep its keys and values: what `logits` takes, [T, hidden]."""
        ...

    def logits(self, rows: Tensor) -> Tensor:
        """Logits [R, vocab] float32 of some rows [R, hidden] of `hidden`."""
        ...


@dataclass(frozen=True, slots=True)
class Computed:
    """hidden: [T, hidden]. logits: [R, vocab] float32 of the rows that ask for them.

    likeliest: of each of those the id of the highest logit, of equals the lowest, or NOT_FINITE where that or any other
    is not finite, but for minus infinity; None where nobody has looked.
    """

    hidden: Tensor
    logits: Tensor
    likeliest: Sequence[int] | None = None


Compute = Callable[[StepBatch], Computed]


@torch.inference_mode()
def computed(model: CausalModel, batch: StepBatch) -> Computed:
    """A step by a model's two calls."""
    hidden = model.hidden(batch)
    if not batch.drawn:
        return Computed(hidden, hidden.new_empty(0))
    return Computed(hidden, model.logits(hidden.index_select(0, batch.logit_rows)))
