"""Seeded noise as a counter hash of (seed, output position, token id): no state, so a draw never depends on its batch.

The mixer is SplitMix64's (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014, with
Stafford's variant 13 of the finaliser): adds, xors and products modulo 2**64. Any other version must give these bits.
"""

import torch
from torch import Tensor

BITS = 52  # with half a unit added still exact in a float64, so never 0 and never 1
_GAMMA = 0x9E3779B97F4A7C15 - 2**64  # all constants as int64 sees them
_FIRST = 0xBF58476D1CE4E5B9 - 2**64
_SECOND = 0x94D049BB133111EB - 2**64
_UNIT = 2.0**-BITS
_SLACK = 2  # units by which rounding in least_bits may err


def as_int64(value: int) -> int:
    """An integer modulo 2**64 as the int64 with the same bits."""
    return (value + 2**63) % 2**64 - 2**63


def keys(seeds: Tensor, positions: Tensor) -> Tensor:
    """One key for each (seed, position): int64 [R] from int64 [R] and int64 [R]. Seeds above 2**63 by as_int64."""
    mixed = _mix_(seeds + _GAMMA)
    return _mix_(mixed + (positions + 1) * _GAMMA)


def bits(keys: Tensor, ids: Tensor) -> Tensor:
    """The noise as integers in [0, 2**BITS): int64, of the shape that keys and ids (int64) broadcast to."""
    mixed = _mix_(keys + (ids + 1) * _GAMMA)
    return mixed.bitwise_right_shift_(64 - BITS).bitwise_and_(2**BITS - 1)


def uniform(bits: Tensor) -> Tensor:
    """Uniform float64 in (0, 1), both ends excluded."""
    return (bits.double() + 0.5) * _UNIT


def gumbel(bits: Tensor) -> Tensor:
    """Standard Gumbel noise, float64, from about -3.6 to 36.8: the argmax of log p + gumbel is a draw from p."""
    return -torch.log(-torch.log(uniform(bits)))


def least_bits(floor: Tensor) -> Tensor:
    """A bound below which `bits` surely give gumbel noise under `floor` (float64): int64 of the same shape."""
    needed = torch.exp(-torch.exp(-floor))
    return (needed * 2.0**BITS).long() - _SLACK


def _mix_(state: Tensor) -> Tensor:
    """SplitMix64's finaliser, in place."""
    shifted = torch.empty_like(state)
    _xor_shifted_(state, 30, shifted).mul_(_FIRST)
    _xor_shifted_(state, 27, shifted).mul_(_SECOND)
    return _xor_shifted_(state, 31, shifted)


def _xor_shifted_(state: Tensor, count: int, shifted: Tensor) -> Tensor:
    """state ^= state >> count without sign: int64 shifts bring in the sign, so the mask takes it out again."""
    torch.bitwise_right_shift(state, count, out=shifted)
    return state.bitwise_xor_(shifted.bitwise_and_(2 ** (64 - count) - 1))
