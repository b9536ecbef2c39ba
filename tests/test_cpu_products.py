"""Products on packed weights, in every build: right to float64, and a row's result its own."""

import ctypes

import pytest
import torch
from torch import Tensor

from cpu_libraries import LEVELS, library
from fairstep.kernels.cpu.memory import StreamMemory
from fairstep.kernels.cpu.pack import PackedLinear, interleaved, pack_linear


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(torch.bfloat16)


def multiply(level: str, linear: PackedLinear, x: Tensor, threads: int = 2) -> Tensor:
    out = torch.full((len(x), linear.c.outputs), torch.nan)
    library(level).product(ctypes.byref(linear.c), x.data_ptr(), len(x), out.data_ptr(), threads)
    return out


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize(("outputs", "inputs"), [(32, 32), (50, 64), (96, 160), (7, 4128)])
@pytest.mark.parametrize("rows", [1, 2, 13, 100])
def test_a_product_is_that_of_float64(level: str, rows: int, outputs: int, inputs: int, biased: bool) -> None:
    weight, x = random(outputs, inputs), random(rows, inputs, seed=1)
    bias = random(outputs, seed=2) if biased else None
    got = multiply(level, pack_linear(StreamMemory(), weight, bias), x)
    exact = x.double() @ weight.double().T + (bias.double() if bias is not None else 0)
    magnitude = x.double().abs() @ weight.double().abs().T + 1
    assert ((got - exact).abs() / magnitude).max() < 2**-24 * inputs**0.5 * 4


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("inputs", [64, 2080])
def test_a_rows_result_does_not_depend_on_the_others(level: str, inputs: int) -> None:
    linear, x = pack_linear(StreamMemory(), random(64, inputs), random(64, seed=3)), random(110, inputs, seed=1)
    whole = multiply(level, linear, x)
    for rows in [*range(1, 26), 96, 97, 110]:
        for start in (0, 110 - rows):
            assert torch.equal(multiply(level, linear, x[start : start + rows]), whole[start : start + rows])


@pytest.mark.parametrize("level", LEVELS)
def test_threads_change_nothing(level: str) -> None:
    linear, x = pack_linear(StreamMemory(), random(320, 64)), random(30, 64, seed=1)
    one = multiply(level, linear, x, threads=1)
    assert all(torch.equal(multiply(level, linear, x, threads), one) for threads in (2, 3, 5))


@pytest.mark.parametrize("level", LEVELS)
def test_what_is_not_a_number_stays_in_its_row_and_in_its_output(level: str) -> None:
    weight, x = random(64, 64), random(30, 64, seed=1)
    whole = multiply(level, pack_linear(StreamMemory(), weight), x)
    x[7, 3] = torch.nan
    weight[5, 60] = torch.inf
    got = multiply(level, pack_linear(StreamMemory(), weight), x)
    assert got[7].isnan().all() and not got[:, 5].isfinite().any()
    kept = [row for row in range(30) if row != 7], [output for output in range(64) if output != 5]
    assert torch.equal(got[kept[0]][:, kept[1]], whole[kept[0]][:, kept[1]])


def test_gate_and_up_stand_by_turns_in_sixteens() -> None:
    gate, up = torch.arange(32.0), torch.arange(32.0) + 100
    assert interleaved(gate, up).tolist() == [*range(16), *range(100, 116), *range(16, 32), *range(116, 132)]
    rows = interleaved(gate[:, None].expand(32, 3), up[:, None].expand(32, 3))
    assert rows.shape == (64, 3) and torch.equal(rows[:, 2], interleaved(gate, up))
