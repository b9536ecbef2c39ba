"""Products with weights in blocks: right to float64 on the same rounded numbers, the same bits in every build, and a
row's result its own."""

import ctypes

import pytest
import torch
from torch import Tensor

from cpu_libraries import LEVELS, library
from fairstep.kernels.cpu.memory import StreamMemory
from fairstep.kernels.cpu.pack import GROUP, PackedLinear, pack_blocks
from fairstep.model.blocks import KINDS, BlockKind, Blocks, rounded

HIGHEST_RATIO = 8  # of a group's largest value to what its scale covers


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(torch.bfloat16)


def uneven(rows: int, inputs: int) -> Tensor:
    """With zeros, groups of zeros, single large values, groups of very different size, and ties."""
    x = random(rows, inputs, seed=1).float()
    x[:, 3] *= 50
    x[:, inputs - 1] *= 7
    x[:, :GROUP:5] = 0
    x[::3, -GROUP:] = 0
    x[1::4] *= 1e-3
    x[2::4, GROUP : 2 * GROUP] = 3.0
    return x.to(torch.bfloat16)


def rounded_rows(x: Tensor) -> Tensor:
    """What the products make of x: integers times a scale for each group, in float64."""
    groups = x.float().view(len(x), -1, GROUP)
    first, second = groups.abs().topk(2).values.unsqueeze(-1).unbind(-2)
    most = torch.maximum(second, first / HIGHEST_RATIO)
    factor = torch.where(most > 1e-30, torch.tensor(127.0).div(most), 0.0)
    return ((groups * factor).round().double() * (most * torch.tensor(1 / 127)).double()).view(x.shape)


def multiply(level: str, linear: PackedLinear, x: Tensor, threads: int = 2) -> Tensor:
    out = torch.full((len(x), linear.c.outputs), torch.nan)
    library(level).product(ctypes.byref(linear.c), x.data_ptr(), len(x), out.data_ptr(), threads)
    return out


def packed(blocks: Blocks, bias: Tensor | None = None) -> PackedLinear:
    return pack_blocks(StreamMemory(), blocks.kind, blocks.rows, bias)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("outputs", "inputs"), [(32, 32), (50, 64), (7, 4128)])
@pytest.mark.parametrize("rows", [1, 2, 13, 100])
def test_a_product_is_that_of_float64_on_the_rounded_numbers(
    level: str, kind: BlockKind, rows: int, outputs: int, inputs: int
) -> None:
    weight, x, bias = rounded(random(outputs, inputs), kind), uneven(rows, inputs), random(outputs, seed=2)
    got = multiply(level, packed(weight, bias), x)
    exact = rounded_rows(x) @ weight.dequantised().double().T + bias.double()
    largest = weight.dequantised().double().abs().amax(1)  # a small weight may be the difference of two larger numbers
    magnitude = rounded_rows(x).abs().sum(1, keepdim=True) * largest + 1
    assert ((got - exact).abs() / magnitude).max() < 2**-24 * (inputs / GROUP) ** 0.5 * 8


@pytest.mark.parametrize("kind", KINDS)
def test_rounding_rows_costs_little_even_beside_large_values(kind: BlockKind) -> None:
    weight, x = rounded(random(64, 640), kind), random(50, 640, seed=1)
    x[:, ::GROUP] *= 30  # one in each group
    got, exact = multiply(LEVELS[0], packed(weight), x), x.double() @ weight.dequantised().double().T
    plain = x.double().clone()
    plain[:, ::GROUP] = 0
    error = (got - exact).pow(2).mean().sqrt()
    assert error < 0.015 * (plain @ weight.dequantised().double().T).pow(2).mean().sqrt()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows", [1, 5, 31])
def test_all_builds_give_the_same_bits(kind: BlockKind, rows: int) -> None:
    linear, x = packed(rounded(random(96, 2080), kind)), uneven(rows, 2080)
    first, *others = (multiply(level, linear, x) for level in LEVELS)
    assert all(torch.equal(first, other) for other in others)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("inputs", [64, 2080])
def test_a_rows_result_does_not_depend_on_the_others(level: str, kind: BlockKind, inputs: int) -> None:
    linear, x = packed(rounded(random(64, inputs), kind)), uneven(110, inputs)
    whole = multiply(level, linear, x)
    for rows in [*range(1, 26), 96, 97, 110]:
        for start in (0, 110 - rows):
            assert torch.equal(multiply(level, linear, x[start : start + rows]), whole[start : start + rows])


@pytest.mark.parametrize("kind", KINDS)
def test_threads_change_nothing(kind: BlockKind) -> None:
    linear, x = packed(rounded(random(320, 64), kind)), uneven(30, 64)
    one = multiply(LEVELS[0], linear, x, threads=1)
    assert all(torch.equal(multiply(LEVELS[0], linear, x, threads), one) for threads in (2, 3, 5))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_what_is_not_finite_stays_in_its_row(level: str, kind: BlockKind, bad: float) -> None:
    linear, x = packed(rounded(random(64, 96), kind)), random(30, 96, seed=1)
    whole = multiply(level, linear, x)
    x[7, 40] = bad
    got = multiply(level, linear, x)
    assert got[7].isnan().all()
    kept = [row for row in range(30) if row != 7]
    assert torch.equal(got[kept], whole[kept])


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_smallest_and_largest_numbers_are_products_too(level: str, kind: BlockKind) -> None:
    weight = random(32, 64).float() * torch.logspace(-9, 4, 32)[:, None]  # in half precision's range and below
    x = torch.cat((random(1, 64, seed=1) * 1e-35, random(1, 64, seed=2) * 1e30, torch.zeros(1, 64))).to(torch.bfloat16)
    blocks = rounded(weight, kind)
    got, weights = multiply(level, packed(blocks), x), blocks.dequantised().double()
    assert not got[0].any() and not got[2].any()
    error = (got[1] - rounded_rows(x)[1] @ weights.T).abs()
    assert (error <= 1e-6 * rounded_rows(x)[1].abs().sum() * weights.abs().amax(1)).all()


@pytest.mark.parametrize("level", LEVELS)
def test_every_weight_and_every_value_of_8_bits_is_multiplied_exactly(level: str) -> None:
    weights = torch.arange(-128, 128, dtype=torch.int8).view(8, 32)
    scale = torch.ones(8, 1, dtype=torch.float16).view(torch.uint8)
    linear = pack_blocks(StreamMemory(), "Q8_0", torch.cat((scale, weights.view(torch.uint8)), dim=1))
    x = torch.zeros(1016, 32)
    x[:, 0] = torch.arange(1, 1017) * (1 - 2 * (torch.arange(1016) % 2))
    x[:, 9:11] = torch.tensor([127.0, -127.0])  # the second largest: a scale of one
    got = multiply(level, linear, x.to(torch.bfloat16))
    assert torch.equal(got, x.to(torch.bfloat16).float() @ weights.float().T)
