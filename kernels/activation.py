"""The gate of a feed-forward network (GLU variants, Shazeer 2020): act(gate) * up. The plain torch version."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Literal

import torch.nn.functional as F
from torch import Tensor

Activation = Literal["silu", "gelu_tanh", "gelu"]

ACTIVATIONS: Mapping[Activation, Callable[[Tensor], Tensor]] = {
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
}


def act_mul(gate_up: Tensor, activation: Activation) -> Tensor:
    """gate_up [T, 2 * size], the gate's half first -> [T, size], both in one dtype; act(gate) is rounded to it too."""
    gate, up = gate_up.chunk(2, dim=-1)
    return ACTIVATIONS[activation](gate).mul_(up)
