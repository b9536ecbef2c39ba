"""Ids that may not be drawn: all but the allowed ones, ends of bad words, stop ids before their time.

A mask that would leave a row nothing to draw is not applied to it; masks come in this order.
"""

from collections.abc import Collection, Iterator, Sequence

import torch
from torch import Tensor

from .row import Row, Spots


def mask_to_allowed(logits: Tensor, rows: Sequence[Row]) -> None:
    """Leave allowed ids alone in rows that name some, in place on logits [R, V] float32."""
    spots = Spots.of([row.sampling.allowed for row in rows], logits)
    if not len(spots.ids):
        return
    values = logits[spots]
    best = logits.new_full((len(rows),), -torch.inf).scatter_reduce(0, spots.rows, values, "amax")
    usable = best > -torch.inf  # [R]
    logits.index_fill_(0, usable.nonzero().flatten(), -torch.inf)
    kept = usable[spots.rows]
    logits[spots.rows[kept], spots.ids[kept]] = values[kept]


def mask_bad_words(logits: Tensor, rows: Sequence[Row]) -> None:
    """Rule out the last id of each bad word whose other ids end the tokens so far, in place on logits [R, V]."""
    _ban(logits, [list(_ends(row)) for row in rows])


def mask_early_stops(logits: Tensor, rows: Sequence[Row]) -> None:
    """Rule out stop ids while a row has fewer than min_tokens outputs, in place on logits [R, V]."""
    _ban(logits, [row.sampling.stop_ids if row.stops_early else () for row in rows])


def _ends(row: Row) -> Iterator[int]:
    for word in row.sampling.bad_words:
        if word and row.known[len(row.known) - len(word) + 1 :] == word[:-1]:
            yield word[-1]


def _ban(logits: Tensor, banned: Sequence[Collection[int]]) -> None:
    spots = Spots.of(banned, logits)
    if not len(spots.ids):
        return
    before = logits[spots]
    logits[spots] = -torch.inf
    back = (logits.amax(dim=-1) == -torch.inf)[spots.rows]  # in rows that have nothing left
    logits[spots.rows[back], spots.ids[back]] = before[back]
