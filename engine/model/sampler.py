"""One token for each row of logits: shaped, then the likeliest or a draw. Knows nothing of sequences, steps or text.

A row's token hangs on that row alone: its logits, its Row and nothing of what is beside it.
"""

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from ..stepping.plan import NOT_FINITE
from .draws import Draws, DrawWhole, draw_cut, draw_whole
from .logit_masks import mask_bad_words, mask_early_stops, mask_to_allowed
from .penalties import add_bias, penalize
from .row import Row
from .row_math import likeliest, take_rows


def sample(
    logits: Tensor, rows: Sequence[Row], whole: DrawWhole = draw_whole, top: Sequence[int] | None = None
) -> list[int]:
    """One token id for each row of `logits` [R, V] float32, which is not changed.

    Temperature 0 (or up to GREEDY_TEMPERATURE) takes the likeliest token, the lowest id on ties. Ties in a cut keep
    the lowest ids. Minus infinity is never drawn; a row with any other value that is not finite, or with nothing else,
    gives NOT_FINITE. whole: how whole rows are drawn from. top: each row's likeliest token, if known, or NOT_FINITE.
    """
    if not rows:
        return []
    assert logits.shape[0] == len(rows), f"{logits.shape[0]} rows of logits, {len(rows)} rows to draw"
    top = _finite_top(logits) if top is None else top
    plain = [place for place, row in enumerate(rows) if top[place] != NOT_FINITE and not row.shaped]
    shaped = [place for place, row in enumerate(rows) if top[place] != NOT_FINITE and row.shaped]
    drawn = _draw(logits, top, plain, [rows[place] for place in plain], whole)
    if shaped:
        mine = [rows[place] for place in shaped]
        copied = shape(logits.index_select(0, torch.tensor(shaped, device=logits.device)), mine)
        drawn += _draw(copied, likeliest(copied).tolist(), range(len(mine)), mine, whole)
    tokens = [NOT_FINITE] * len(rows)
    for place, token in zip(plain + shaped, drawn, strict=True):
        tokens[place] = token
    return tokens


def shape(logits: Tensor, rows: Sequence[Row]) -> Tensor:
    """Bias, masks and penalties, in place on `logits` [R, V] float32, whose rows all have something finite."""
    for change in (add_bias, mask_to_allowed, mask_bad_words, penalize, mask_early_stops):
        change(logits, rows)
    return logits


def _finite_top(logits: Tensor) -> list[int]:
    """Each row's likeliest token, NOT_FINITE where its logit isn't, as of a NaN, which is the highest."""
    ids = likeliest(logits)
    finite = logits.gather(1, ids[:, None]).isfinite().flatten()
    return torch.where(finite, ids, NOT_FINITE).tolist()


def _draw(table: Tensor, top: Sequence[int], places: Sequence[int], rows: Sequence[Row], whole: DrawWhole) -> list[int]:
    """A token for each of `rows`, whose logits are at `places`, which rise, in `table`; top: each row's likeliest."""
    tokens = [top[place] for place in places]
    for cut, draw in ((True, partial(draw_cut, whole=whole)), (False, whole)):
        mine = [n for n, row in enumerate(rows) if not row.greedy and row.cut is cut]
        if mine:
            found = [places[n] for n in mine]
            picked = draw(Draws.of(take_rows(table, found), [rows[n] for n in mine], [top[place] for place in found]))
            for n, token in zip(mine, picked.tolist(), strict=True):
                tokens[n] = token
    return tokens
