"""A model's rotary frequencies and tables, every kind of scaling as in transformers' modeling_rope_utils.

yarn: Peng et al. 2023; longrope: Ding et al. 2024; dynamic: a base that grows with the length ("NTK-aware").
"""

import math

import torch
from torch import Tensor

from ..kernels.rope import rotary_table
from .spec import RopeSpec


class Rotary:
    """Makes a step's tables. A token's table depends on its own position and length, never on a neighbour.

    static: tables are made without asking what the lengths are, which on a GPU would wait for it.
    """

    def __init__(self, rope: RopeSpec, head_dim: int, device: torch.device | str, *, static: bool = False) -> None:
        self.rope = rope
        self.static = static
        self.magnitude = magnitude(rope)
        self.exponents = _exponents(rope, head_dim).to(device)  # [R/2]
        self.plain = frequencies(rope, head_dim).to(device)  # [R/2], of lengths up to the edge
        self.long = _divided(rope, _long(rope, self.exponents)) if rope.kind == "longrope" else None

    def table(self, positions: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """cos and signed sin, [T, 1, R] float32 each, for positions [T] of sequences that count as lengths [T] long."""
        return rotary_table(positions, self._frequencies(lengths), self.magnitude)

    def _frequencies(self, lengths: Tensor) -> Tensor:
        """[R/2] where all tokens have the same, else [T, R/2]."""
        if not self.rope.edge:
            return self.plain
        past = lengths > self.rope.edge
        if not self.static and not past.any():
            return self.plain
        return torch.where(past[:, None], self._grown(lengths) if self.long is None else self.long, self.plain)

    def _grown(self, lengths: Tensor) -> Tensor:
        lengths = lengths.clamp(min=self.rope.edge)
        if self.static:
            return _divided(self.rope, _dynamic(self.rope, self.exponents, lengths))
        distinct, places = lengths.unique(return_inverse=True)
        return _divided(self.rope, _dynamic(self.rope, self.exponents, distinct))[places]


def frequencies(rope: RopeSpec, head_dim: int) -> Tensor:
    """Radians a position for each pair of a head's turned dimensions: [R/2] float32. Of lengths up to the edge."""
    return _divided(rope, _scaled(rope, _exponents(rope, head_dim)))


def magnitude(rope: RopeSpec) -> float:
    """What cos and sin are multiplied by."""
    if rope.magnitude is not None:
        return rope.magnitude
    if rope.kind == "yarn":
        return _yarn_magnitude(rope)
    if rope.kind == "longrope" and rope.factor > 1.0:
        return math.sqrt(1 + math.log(rope.factor) / math.log(rope.original_context))
    return 1.0


def _exponents(rope: RopeSpec, head_dim: int) -> Tensor:
    turned = int(head_dim * rope.rotated)  # R
    return torch.arange(0, turned, 2, dtype=torch.float32) / turned


def _divided(rope: RopeSpec, scaled: Tensor) -> Tensor:
    return scaled / torch.tensor(rope.frequency_factors, device=scaled.device) if rope.frequency_factors else scaled


def _scaled(rope: RopeSpec, exponents: Tensor) -> Tensor:
    powers = rope.theta**exponents
    match rope.kind:
        case "longrope":
            return 1.0 / (torch.tensor(rope.short_factors) * powers)
        case "yarn":
            return _yarn(rope, powers)
        case "llama3":
            return _llama3(rope, 1.0 / powers)
        case "linear":
            return 1.0 / powers / rope.factor
        case "default" | "dynamic":
            return 1.0 / powers


def _llama3(rope: RopeSpec, plain: Tensor) -> Tensor:
    """Long wavelengths are stretched by `factor`, short ones kept, those between blended."""
    wavelength = 2 * math.pi / plain
    longest, shortest = (rope.original_context / f for f in (rope.low_freq_factor, rope.high_freq_factor))
    keep = (rope.original_context / wavelength - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor)
    blended = (1 - keep) * plain / rope.factor + keep * plain
    stretched = torch.where(wavelength > longest, plain / rope.factor, blended)
    return torch.where(wavelength < shortest, plain, stretched)


def _yarn(rope: RopeSpec, powers: Tensor) -> Tensor:
    """Pairs that turn beta_fast times or more in the original context are kept, those under beta_slow stretched."""
    size = 2 * len(powers)

    def pair(turns: float) -> float:
        """The pair that turns so often in the original context."""
        return size * math.log(rope.original_context / (turns * 2 * math.pi)) / (2 * math.log(rope.theta))

    low, high = pair(rope.beta_fast), pair(rope.beta_slow)
    if rope.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, size - 1)
    width = high - low if high != low else 0.001
    stretched = ((torch.arange(len(powers), dtype=torch.float32) - low) / width).clamp(0, 1)
    kept = 1 - stretched
    return 1.0 / (rope.factor * powers) * (1 - kept) + 1.0 / powers * kept


def _yarn_magnitude(rope: RopeSpec) -> float:
    def of(scale: float) -> float:
        return 0.1 * scale * math.log(rope.factor) + 1.0 if rope.factor > 1.0 else 1.0

    return of(rope.mscale) / of(rope.mscale_all) if rope.mscale and rope.mscale_all else of(1.0)


def _long(rope: RopeSpec, exponents: Tensor) -> Tensor:
    """longrope past its edge."""
    return 1.0 / (torch.tensor(rope.long_factors, device=exponents.device) * rope.theta**exponents)


def _dynamic(rope: RopeSpec, exponents: Tensor, lengths: Tensor) -> Tensor:
    """lengths [U], none under the edge -> [U, R/2]."""
    size = 2 * len(exponents)
    growth = rope.factor * lengths.to(torch.float32) / rope.edge - (rope.factor - 1)
    # in float64, so that rounding doesn't depend on which lengths stand beside
    power = torch.tensor(size / (size - 2), dtype=torch.float32, device=lengths.device).to(torch.float64)
    bases = rope.theta * (growth.to(torch.float64) ** power).to(torch.float32)
    return 1.0 / (bases[:, None] ** exponents)
