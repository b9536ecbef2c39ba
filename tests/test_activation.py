"""act(gate) * up in plain torch: each activation by its formula."""

import math

import pytest
import torch

from fairstep.kernels.activation import Activation, act_mul


def by_hand(x: float, activation: Activation) -> float:
    match activation:
        case "silu":
            return x / (1 + math.exp(-x))
        case "gelu":
            return x * 0.5 * (1 + math.erf(x / math.sqrt(2)))
        case "gelu_tanh":
            return x * 0.5 * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


@pytest.mark.parametrize("activation", ["silu", "gelu", "gelu_tanh"])
def test_the_gate_comes_first_and_is_activated(activation: Activation) -> None:
    gate, up = [-3.0, -0.5, 0.0, 0.7, 2.5], [2.0, -1.0, 4.0, 0.5, 3.0]
    got = act_mul(torch.tensor([gate + up]), activation)
    wanted = [by_hand(x, activation) * y for x, y in zip(gate, up, strict=True)]
    torch.testing.assert_close(got, torch.tensor([wanted]))


def test_the_activated_gate_is_rounded_before_it_is_multiplied() -> None:
    gate, up = torch.randn(2, 4, 16, generator=torch.Generator().manual_seed(0)).to(torch.bfloat16)
    got = act_mul(torch.cat((gate, up), dim=1), "silu")
    assert torch.equal(got, torch.nn.functional.silu(gate) * up)
