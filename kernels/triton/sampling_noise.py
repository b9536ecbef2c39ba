"""Seeded noise inside kernels: the integers of kernels/noise.py, and Gumbel noise made of them, roughly and exactly."""

import triton
import triton.language as tl

GAMMA: tl.constexpr = tl.constexpr(0x9E3779B97F4A7C15)
FIRST: tl.constexpr = tl.constexpr(0xBF58476D1CE4E5B9)
SECOND: tl.constexpr = tl.constexpr(0x94D049BB133111EB)
RANGE: tl.constexpr = tl.constexpr(2**52)
UNIT: tl.constexpr = tl.constexpr(2.0**-52)


@triton.jit
def row_key(seed, position):
    """The key of one (seed, position): uint64 of an int64 and an int32 scalar."""
    mixed = _mix(seed.to(tl.uint64, bitcast=True) + GAMMA)
    return _mix(mixed + (position + 1).to(tl.uint64) * GAMMA)


@triton.jit
def noise_bits(key, ids):
    """int64 in [0, 2**52) for each of `ids`, int32."""
    return (_mix(key + (ids + 1).to(tl.uint64) * GAMMA) >> 12).to(tl.int64)


@triton.jit
def gumbel(bits):
    """Standard Gumbel noise, float64."""
    return -tl.log(-tl.log((bits.to(tl.float64) + 0.5) * UNIT))


@triton.jit
def rough_gumbel(bits):
    """The same in float32, less than 2e-5 away: near 1 the logarithm is a series in what is missing to 1."""
    missing = ((bits - RANGE).to(tl.float32) + 0.5) * -UNIT
    series = missing * (1.0 + missing * (0.5 + missing * (0.33333334 + missing * (0.25 + missing * 0.2))))
    plain = -tl.log((bits.to(tl.float32) + 0.5) * UNIT)
    return -tl.log(tl.where(missing < 0.03125, series, plain))


@triton.jit
def _mix(state):
    """SplitMix64's finaliser, uint64."""
    state = (state ^ (state >> 30)) * FIRST
    state = (state ^ (state >> 27)) * SECOND
    return state ^ (state >> 31)
