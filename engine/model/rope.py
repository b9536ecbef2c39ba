"""A model's rotary frequencies: default, linear and llama3 scaling, as in transformers' modeling_rope_utils."""

import math

import torch
from torch import Tensor

from .spec import RopeSpec


def frequencies(rope: RopeSpec, head_dim: int) -> Tensor:
    """Radians a position for each pair of a head's dimensions: [head_dim / 2] float32."""
    exponents = torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim
    scaled = _scaled(rope, 1.0 / (rope.theta**exponents))
    return scaled / torch.tensor(rope.frequency_factors) if rope.frequency_factors else scaled


def _scaled(rope: RopeSpec, plain: Tensor) -> Tensor:
    if rope.kind == "linear":
        return plain / rope.factor
    return _llama3(rope, plain) if rope.kind == "llama3" else plain


def _llama3(rope: RopeSpec, plain: Tensor) -> Tensor:
    """Long wavelengths are stretched by `factor`, short ones kept, those between blended."""
    wavelength = 2 * math.pi / plain
    longest, shortest = (rope.original_context / f for f in (rope.low_freq_factor, rope.high_freq_factor))
    keep = (rope.original_context / wavelength - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor)
    blended = (1 - keep) * plain / rope.factor + keep * plain
    stretched = torch.where(wavelength > longest, plain / rope.factor, blended)
    return torch.where(wavelength < shortest, plain, stretched)
