"""Logit bias and penalties for tokens that were there before: what changes logits without ruling tokens out.

The repetition penalty is CTRL's (Keskar et al. 2019), presence and frequency penalties are those of OpenAI's API. Each
is computed in float64 and rounded once; what is minus infinity stays so.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from .row import Row, Spots

LARGEST = torch.finfo(torch.float32).max


def add_bias(logits: Tensor, rows: Sequence[Row]) -> None:
    """Add each row's bias, in place on logits [R, V] float32. Ids outside the vocabulary have no logit."""
    bias = [{token: add for token, add in row.sampling.bias if 0 <= token < logits.shape[1]} for row in rows]
    spots = Spots.of(bias, logits)
    added = torch.tensor([add for each in bias for add in each.values()], dtype=torch.float64, device=logits.device)
    _write(logits, spots, logits[spots].double() + added)


def penalize(logits: Tensor, rows: Sequence[Row]) -> None:
    """Apply repetition, then frequency and presence penalties, in place on logits [R, V] float32."""
    _penalize_repetition(logits, rows)
    _penalize_outputs(logits, rows)


def _penalize_repetition(logits: Tensor, rows: Sequence[Row]) -> None:
    """Divide the positive logits of tokens in prompt and outputs, multiply the others."""
    factors = [row.sampling.repetition for row in rows]
    spots = Spots.of([row.known if factor != 1.0 else () for row, factor in zip(rows, factors, strict=True)], logits)
    factor = _per_spot(factors, spots)
    values = logits[spots].double()
    _write(logits, spots, torch.where(values > 0, values / factor, values * factor))


def _penalize_outputs(logits: Tensor, rows: Sequence[Row]) -> None:
    """Take the frequency penalty off for each time that a token was drawn, the presence penalty once."""
    counted = [row.sampling.frequency != 0.0 or row.sampling.presence != 0.0 for row in rows]
    outputs = [row.known[row.prompt_len :] if count else () for row, count in zip(rows, counted, strict=True)]
    spots, times = Spots.of(outputs, logits).counted(logits)
    frequency = _per_spot([row.sampling.frequency for row in rows], spots)
    presence = _per_spot([row.sampling.presence for row in rows], spots)
    _write(logits, spots, logits[spots].double() - frequency * times - presence)


def _per_spot(values: list[float], spots: Spots) -> Tensor:
    """The value of each spot's row, [N] float64."""
    return torch.tensor(values, dtype=torch.float64, device=spots.rows.device)[spots.rows]


def _write(logits: Tensor, spots: Spots, values: Tensor) -> None:
    """Put float64 values [N] there, rounded; what is finite stays so. Where a spot repeats its values are equal."""
    finite = values.clamp(-LARGEST, LARGEST).to(torch.float32)
    logits[spots] = torch.where(values == -torch.inf, -torch.inf, finite)
