"""act(gate) * up by the kernel against torch in float64."""

import numpy as np
import pytest
import torch

from fairstep.kernels import activation as plain
from fairstep.kernels.activation import ACTIVATIONS, Activation
from fairstep.kernels.triton.activation import BLOCK, act_mul
from near import DTYPES, assert_near, randoms


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("size", [1, 24, BLOCK + 3])
def test_it_is_the_reference(activation: Activation, dtype: torch.dtype, size: int) -> None:
    gate_up = 2 * randoms(5, 2 * size, dtype=dtype)
    assert_near(act_mul(gate_up, activation), plain.act_mul(gate_up.double(), activation))


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_the_gate_is_rounded_as_torch_rounds_it(activation: Activation) -> None:
    """Most elements are torch's to the last bit; the rest differ where exp and erf do."""
    gate_up = randoms(8, 512, dtype=torch.bfloat16)
    assert (act_mul(gate_up, activation) == plain.act_mul(gate_up, activation)).float().mean() > 0.98


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_no_gate_is_too_far_from_zero(activation: Activation) -> None:
    gate = torch.tensor([-3e38, -1e4, -200.0, -89.0, -1e-38, 0.0, 1e-38, 89.0, 200.0, 1e4, 1e38])
    with np.errstate(over="ignore"):  # the interpreter's exp warns of what a GPU's gives as infinity
        got = act_mul(torch.cat((gate, torch.ones_like(gate)))[None], activation)
    assert_near(got, plain.act_mul(torch.cat((gate, torch.ones_like(gate)))[None].double(), activation))


def test_rows_may_have_any_stride_and_neighbours_are_left_alone() -> None:
    poisoned = torch.full((4, 40), float("nan"))
    poisoned[:, :24] = randoms(4, 24)
    assert_near(act_mul(poisoned[:, :24], "silu"), plain.act_mul(poisoned[:, :24].double(), "silu"))


def test_no_rows_are_no_launch() -> None:
    assert act_mul(torch.empty(0, 8), "silu").shape == (0, 4)


def test_an_odd_width_is_refused() -> None:
    with pytest.raises(ValueError, match="even number"):
        act_mul(torch.zeros(2, 7), "silu")
