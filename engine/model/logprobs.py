"""Log probabilities of the model's raw distribution, to report beside tokens. Knows no draw, no mask and no text."""

from collections.abc import Sequence

import torch
from torch import Tensor

from ..door import TokenLogprobs
from ..stepping.plan import NOT_FINITE
from .row_math import highest, softmax_mass, take_rows

FLOOR = -9999.0  # what is told of a token that cannot come: minus infinity is no JSON


def token_logprobs(logits: Tensor, tokens: Sequence[int], counts: Sequence[int]) -> list[TokenLogprobs | None]:
    """What to report beside each of `tokens`, drawn from the raw `logits` [R, V] float32.

    counts: how many of the likeliest to add, -1 for nothing. None where nothing is asked, or the token is NOT_FINITE.
    """
    told: list[TokenLogprobs | None] = [None] * len(tokens)
    places = [n for n, count in enumerate(counts) if count >= 0 and tokens[n] != NOT_FINITE]
    if places:
        found = _logprobs(take_rows(logits, places), [tokens[n] for n in places], [counts[n] for n in places])
        for place, each in zip(places, found, strict=True):
            told[place] = each
    return told


def prompt_logprobs(logits: Tensor, targets: Sequence[int], counts: Sequence[int]) -> list[TokenLogprobs]:
    """What to report of each of `targets`, whose raw logits are `logits` [R, V] float32; counts as above, from 0 on.

    A target whose logits are not finite is told alone, at FLOOR and as the last of all.
    """
    finite = logits.amax(dim=-1).isfinite().tolist()  # a NaN is carried on
    told = token_logprobs(logits, [t if ok else NOT_FINITE for t, ok in zip(targets, finite, strict=True)], counts)
    unknown = (TokenLogprobs((target,), (FLOOR,), logits.shape[1]) for target in targets)
    return [each or other for each, other in zip(told, unknown, strict=True)]


def _logprobs(logits: Tensor, tokens: Sequence[int], counts: Sequence[int]) -> list[TokenLogprobs]:
    """Of rows that are finite, each with a count of at least 0."""
    vocab = logits.shape[1]
    counts = [min(count, vocab) for count in counts]
    ids = torch.tensor(tokens, device=logits.device)[:, None]
    values = logits.gather(1, ids)  # [R, 1]
    ranks = (logits >= values).sum(dim=-1).tolist()
    if most := max(counts):
        top_values, top_ids = highest(logits, most)
        ids, values = torch.cat((ids, top_ids), dim=1), torch.cat((values, top_values), dim=1)
    logprobs = (values.double() - _log_mass(logits)[:, None]).clamp(min=FLOOR).tolist()
    return [
        TokenLogprobs(tuple(mine[: 1 + count]), tuple(theirs[: 1 + count]), rank)
        for mine, theirs, count, rank in zip(ids.tolist(), logprobs, counts, ranks, strict=True)
    ]


def _log_mass(logits: Tensor) -> Tensor:
    """log(sum(exp(logits))) of each row, float64 [R]."""
    top = logits.amax(dim=-1).double()
    return top + softmax_mass(logits, torch.ones_like(top)).log()
