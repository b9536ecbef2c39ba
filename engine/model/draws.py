"""Draws tokens from rows of logits at a temperature, after the cuts: top_k, top_p of what top_k left, min_p.

Gumbel-max (Gumbel 1954; Maddison, Tarlow and Minka, "A* sampling", 2014): a draw from softmax(x) is the argmax of
x + Gumbel noise. The noise hangs on (seed, position, token id) alone, so a row never depends on its neighbours.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from ..kernels import noise
from .row import Row
from .row_math import highest, likeliest, row_sums, softmax_mass, softmax_weights

TOP_P_ROUNDING = 1e-6  # a token that only a rounding error in the mass would let in stays out
CANDIDATES = (64, 512)  # how many of the likeliest to look at first, then next, before the whole row
OPEN = -1  # a row that is not drawn yet
LIKELIEST = 64  # tokens that set the score which any other must reach
NOISE_BLOCK = 2**18  # most elements of whole-vocabulary noise made at once: 2 MiB stay in a cache


class Draws(NamedTuple):
    """Rows to draw from and their settings: logits [R, V] float32, the rest [R] float64 or int64.

    top_k is V where off, top_p infinite where off, min_p the logarithm (-inf where off). mass: the sum of
    exp((logit - highest) / temperature) over the whole row where top_p needs it, else infinite. top: each row's
    likeliest token.
    """

    logits: Tensor
    temperature: Tensor
    top_k: Tensor
    top_p: Tensor
    min_p: Tensor
    keys: Tensor
    mass: Tensor
    top: Tensor

    @classmethod
    def of(cls, logits: Tensor, rows: Sequence[Row], top: Sequence[int] | None = None) -> "Draws":
        """Of rows above GREEDY_TEMPERATURE, whose logits are finite or minus infinity, not all the latter.

        top: where it is known.
        """
        vocab, device = logits.shape[1], logits.device
        chosen = [row.sampling for row in rows]

        def numbers(values: list[float]) -> Tensor:
            return torch.tensor(values, dtype=torch.float64, device=device)

        def integers(values: list[int]) -> Tensor:
            return torch.tensor(values, dtype=torch.int64, device=device)

        seeds, positions = integers([noise.as_int64(s.seed) for s in chosen]), integers([row.position for row in rows])
        draws = cls(
            logits=logits,
            temperature=numbers([s.temperature for s in chosen]),
            top_k=integers([min(s.top_k, vocab) if s.top_k > 0 else vocab for s in chosen]),
            top_p=numbers([s.top_p if s.top_p < 1.0 else math.inf for s in chosen]),
            min_p=numbers([math.log(s.min_p) if s.min_p > 0.0 else -math.inf for s in chosen]),
            keys=noise.keys(seeds, positions),
            mass=numbers([math.inf] * len(rows)),
            top=likeliest(logits) if top is None else integers(list(top)),
        )
        needed = (draws.top_p.isfinite() & (draws.top_k == vocab)).nonzero().flatten()
        if len(needed):
            draws.mass[needed] = softmax_mass(draws.take(needed).logits, draws.temperature[needed])
        return draws

    def take(self, places: Tensor | slice) -> "Draws":
        """The rows at `places`, which rise; all of them are not copied."""
        if isinstance(places, Tensor) and len(places) == len(self.keys):
            return self
        return Draws(*(field[places] for field in self))


DrawWhole = Callable[[Draws], Tensor]  # ids [R] int64 out of whole rows


def draw_whole(draws: Draws) -> Tensor:
    """Ids [R] drawn from whole rows, in blocks of rows so that the noise needs little memory."""
    count, vocab = draws.logits.shape
    size = max(1, NOISE_BLOCK // vocab)
    blocks = (draws.take(slice(start, start + size)) for start in range(0, count, size))
    return torch.cat([_draw_whole_block(block) for block in blocks])


def _draw_whole_block(draws: Draws) -> Tensor:
    """As adding noise to every logit would draw, but the logarithms are taken only where a token can still win.

    The best score among the likeliest tokens is a floor. Any other token starts at or below the last of these, so it
    needs noise above the difference; the hash alone rules out nearly all.
    """
    vocab = draws.logits.shape[1]
    keys = draws.keys[:, None]
    values, first = draws.logits.topk(min(LIKELIEST, vocab), dim=-1)  # [R, K]
    scaled = values.double() / draws.temperature[:, None]
    floor = (scaled + noise.gumbel(noise.bits(keys, first))).amax(dim=-1)
    least = noise.least_bits(floor - scaled[:, -1])
    able = noise.bits(keys, torch.arange(vocab, device=keys.device)) >= least[:, None]  # [R, V]
    rows, ids = able.scatter_(1, first, True).nonzero(as_tuple=True)
    return _gumbel_max(draws, rows, ids, draws.logits[rows, ids].double() / draws.temperature[rows])


def _gumbel_max(draws: Draws, rows: Tensor, ids: Tensor, scaled: Tensor) -> Tensor:
    """Ids [R], each row's candidate with the best noisy score; rows, ids and scaled [N] list the candidates.

    A row without candidates gives V.
    """
    count, vocab = draws.logits.shape
    scores = scaled + noise.gumbel(noise.bits(draws.keys[rows], ids))
    best = scores.new_full((count,), -math.inf).scatter_reduce(0, rows, scores, "amax")
    wins = scores == best[rows]
    return ids.new_full((count,), vocab).scatter_reduce(0, rows[wins], ids[wins], "amin")


def draw_cut(draws: Draws, whole: DrawWhole = draw_whole) -> Tensor:
    """Ids [R] drawn from rows with a cut: by the cheapest way that settles each row, which hangs on the row alone.

    whole: how a whole row is drawn from.
    """
    vocab = draws.logits.shape[1]
    picked = torch.full_like(draws.top_k, OPEN)
    ways: list[Callable[[Draws], Tensor]] = [partial(_draw_among, size=size) for size in CANDIDATES if size < vocab]
    ways += [partial(_draw_if_kept, whole=whole), partial(_draw_among, size=vocab)]
    for draw in ways:
        places = (picked == OPEN).nonzero().flatten()
        if not len(places):
            break
        picked[places] = draw(draws.take(places))
    return picked


def _draw_among(draws: Draws, size: int) -> Tensor:
    """Ids [R] drawn looking at the `size` likeliest tokens; OPEN where the cut may keep others."""
    values, ids = highest(draws.logits, size)
    scaled = values.double() / draws.temperature[:, None]
    passing = kept(draws, scaled)
    settled = (draws.top_k <= size) | ((draws.top_k == draws.logits.shape[1]) & ~passing[:, -1])
    rows, columns = (passing & settled[:, None]).nonzero(as_tuple=True)
    winners = _gumbel_max(draws, rows, ids[rows, columns], scaled[rows, columns])
    return torch.where(settled, winners, OPEN)


def _draw_if_kept(draws: Draws, whole: DrawWhole = draw_whole) -> Tensor:
    """Ids [R] drawn without order: a winner over all tokens that passes the cuts also wins among those that pass.

    OPEN where it does not pass, or where top_k and top_p together leave the mass unknown. Spares flat rows a sort.
    """
    logits, vocab = draws.logits, draws.logits.shape[1]
    ids = whole(draws)
    winner = logits.gather(1, ids[:, None])  # [R, 1]
    lower_ids = torch.arange(vocab, device=ids.device) < ids[:, None]
    before = (logits > winner) | ((logits == winner) & lower_ids)  # [R, V]
    distance = winner[:, 0].double() / draws.temperature - logits.amax(dim=-1).double() / draws.temperature
    passes = (before.sum(dim=-1) < draws.top_k) & (distance >= draws.min_p)
    passes &= row_sums(softmax_weights(logits, draws.temperature) * before) < _limit(draws, draws.mass)
    known = draws.top_p.isinf() | (draws.top_k == vocab)
    return torch.where(passes & known, ids, OPEN)


def kept(draws: Draws, scaled: Tensor) -> Tensor:
    """Which candidates, likeliest first, pass all cuts: bool [R, K] from scaled [R, K] float64.

    Wrong for rows with K < top_k < V, whose mass is not known yet.
    """
    size = scaled.shape[1]
    distance = scaled - scaled[:, :1]
    inside = torch.arange(size, device=scaled.device) < draws.top_k[:, None]
    weights = distance.exp() * inside
    reached = weights.cumsum(dim=-1)
    limit = _limit(draws, torch.where(draws.top_k <= size, reached[:, -1], draws.mass))
    return inside & (reached - weights < limit[:, None]) & (distance >= draws.min_p[:, None])


def _limit(draws: Draws, mass: Tensor) -> Tensor:
    """The mass before a token that shuts it out under top_p, [R]."""
    return draws.top_p * (1.0 - TOP_P_ROUNDING) * mass
