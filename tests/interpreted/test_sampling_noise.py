"""Noise inside kernels is the CPU's, bit by bit; the rough form is as near as its readers rely on."""

import torch
import triton
import triton.language as tl

from fairstep.kernels import noise
from fairstep.kernels.triton.sampling_noise import gumbel, noise_bits, rough_gumbel, row_key


@triton.jit
def _noise_kernel(seeds, positions, bits, exact, SIZE: tl.constexpr):
    row = tl.program_id(0)
    ids = tl.arange(0, SIZE)
    made = noise_bits(row_key(tl.load(seeds + row), tl.load(positions + row)), ids)
    tl.store(bits + row * SIZE + ids, made)
    tl.store(exact + row * SIZE + ids, gumbel(made))


@triton.jit
def _rough_kernel(bits, rough, SIZE: tl.constexpr):
    index = tl.arange(0, SIZE)
    tl.store(rough + index, rough_gumbel(tl.load(bits + index)))


def test_the_integers_are_the_cpu_s() -> None:
    seeds = torch.tensor([noise.as_int64(seed) for seed in (0, 1, 2**63 - 1, 2**63 + 5, 2**64 - 1)])
    positions = torch.tensor([0, 1, 7, 100_000, 2**31 - 2], dtype=torch.int32)
    bits = torch.empty(5, 512, dtype=torch.int64)
    exact = torch.empty(5, 512, dtype=torch.float64)
    _noise_kernel[(5,)](seeds, positions, bits, exact, SIZE=512)
    wanted = noise.bits(noise.keys(seeds, positions.long())[:, None], torch.arange(512))
    assert torch.equal(bits, wanted)
    torch.testing.assert_close(exact, noise.gumbel(wanted), atol=1e-12, rtol=1e-12)


def test_rough_noise_is_near_from_one_end_to_the_other() -> None:
    top = 2**noise.BITS
    edges = [0, 1, 2, 3, top // 32, top // 2, top - top // 32 - 1, top - top // 32, top - 3, top - 2, top - 1]
    random = torch.randint(0, top, (1000,), generator=torch.Generator().manual_seed(0))
    near = top - 2 ** torch.arange(0, 52)
    bits = torch.cat((torch.tensor(edges), random, near))
    bits = torch.cat((bits, bits.new_zeros(2048 - len(bits))))
    rough = torch.empty(2048)
    _rough_kernel[(1,)](bits, rough, SIZE=2048)
    assert (rough.double() - noise.gumbel(bits)).abs().max() < 2e-5
