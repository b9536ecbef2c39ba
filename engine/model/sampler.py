"""Draws one token for each row of logits. Knows nothing of sequences, steps or text.

Gumbel-max (Gumbel 1954; Maddison, Tarlow and Minka, "A* sampling", 2014): a draw from softmax(x) is the argmax of
x + Gumbel noise. The noise hangs on (seed, position, token id) alone, so a row never depends on its neighbours.
The cuts come in transformers' order: temperature, top_k, top_p of what top_k left, min_p.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from ..door import Sampling
from ..kernels import noise
from ..stepping.plan import NOT_FINITE

GREEDY_TEMPERATURE = 1e-5  # at or below it a draw is the argmax; above it nothing overflows in float64
TOP_P_ROUNDING = 1e-6  # a token that only a rounding error in the mass would let in stays out
CANDIDATES = (64, 512)  # how many of the likeliest to look at first, then next, before the whole row
OPEN = -1  # a row that is not drawn yet
LIKELIEST = 64  # tokens that set the score which any other must reach
NOISE_BLOCK = 2**18  # most elements of whole-vocabulary noise made at once: 2 MiB stay in a cache
SUM_WIDTH = 256


@dataclass(frozen=True, slots=True)
class Row:
    """How to draw a row's token; `position`: how many outputs the request has so far."""

    sampling: Sampling
    position: int

    @property
    def greedy(self) -> bool:
        return self.sampling.temperature <= GREEDY_TEMPERATURE

    @property
    def cut(self) -> bool:
        """Some tokens are left out before the draw."""
        return self.sampling.top_k > 0 or self.sampling.top_p < 1.0 or self.sampling.min_p > 0.0


class _Draws(NamedTuple):
    """Rows to draw from and their settings: logits [R, V] float32, the rest [R] float64 or int64.

    top_k is V where off, top_p infinite where off, min_p the logarithm (-inf where off). mass: the sum of
    exp((logit - highest) / temperature) over the whole row where top_p needs it, else infinite.
    """

    logits: Tensor
    temperature: Tensor
    top_k: Tensor
    top_p: Tensor
    min_p: Tensor
    keys: Tensor
    mass: Tensor

    def take(self, places: Tensor | slice) -> "_Draws":
        """The rows at `places`, which rise; all of them are not copied."""
        if isinstance(places, Tensor) and len(places) == len(self.keys):
            return self
        return _Draws(*(field[places] for field in self))


def sample(logits: Tensor, rows: Sequence[Row]) -> list[int]:
    """One token id for each row of `logits` [R, V] float32, which is not changed.

    Temperature 0 (or up to GREEDY_TEMPERATURE) takes the likeliest token, the lowest id on ties. While position is
    below min_tokens the stop ids are left out first, unless nothing else is there. Ties in a cut keep the lowest ids.
    A row with a value that is not finite gives NOT_FINITE.
    """
    if not rows:
        return []
    assert logits.shape[0] == len(rows), f"{logits.shape[0]} rows of logits, {len(rows)} rows to draw"
    finite = _finite(logits)
    logits = _without_early_stops(logits, rows)
    tokens: list[int] = logits.argmax(dim=-1).tolist()  # the first of equals
    drawn = [place for place, row in enumerate(rows) if finite[place] and not row.greedy]
    for cut, draw in ((True, _draw_cut), (False, _draw_whole)):
        places = [place for place in drawn if rows[place].cut is cut]
        if places:
            picked = draw(_draws(logits, rows, places))
            for place, token in zip(places, picked.tolist(), strict=True):
                tokens[place] = token
    return [token if ok else NOT_FINITE for token, ok in zip(tokens, finite, strict=True)]


def _finite(logits: Tensor) -> list[bool]:
    extremes = torch.stack((logits.amax(dim=-1), logits.amin(dim=-1)))  # both carry a NaN on
    return [bool(ok) for ok in torch.isfinite(extremes).all(dim=0).tolist()]


def _without_early_stops(logits: Tensor, rows: Sequence[Row]) -> Tensor:
    places: list[int] = []
    ids: list[int] = []
    vocab = logits.shape[1]
    for place, row in enumerate(rows):
        if row.position < row.sampling.min_tokens:
            stops = {stop for stop in row.sampling.stop_ids if 0 <= stop < vocab}
            if len(stops) < vocab:  # else nothing would be left
                places += [place] * len(stops)
                ids += stops
    if not places:
        return logits
    masked = logits.clone()
    masked[places, ids] = -math.inf
    return masked


def _draws(logits: Tensor, rows: Sequence[Row], places: list[int]) -> _Draws:
    vocab, device = logits.shape[1], logits.device
    chosen = [rows[place].sampling for place in places]

    def numbers(values: list[float]) -> Tensor:
        return torch.tensor(values, dtype=torch.float64, device=device)

    def integers(values: list[int]) -> Tensor:
        return torch.tensor(values, dtype=torch.int64, device=device)

    draws = _Draws(
        logits=logits if len(places) == len(rows) else logits[places],
        temperature=numbers([s.temperature for s in chosen]),
        top_k=integers([min(s.top_k, vocab) if s.top_k > 0 else vocab for s in chosen]),
        top_p=numbers([s.top_p if s.top_p < 1.0 else math.inf for s in chosen]),
        min_p=numbers([math.log(s.min_p) if s.min_p > 0.0 else -math.inf for s in chosen]),
        keys=noise.keys(
            integers([noise.as_int64(s.seed) for s in chosen]), integers([rows[place].position for place in places])
        ),
        mass=numbers([math.inf] * len(places)),
    )
    needed = (draws.top_p.isfinite() & (draws.top_k == vocab)).nonzero().flatten()
    if len(needed):
        draws.mass[needed] = _row_sums(_weights(draws.take(needed)))
    return draws


def _draw_whole(draws: _Draws) -> Tensor:
    """Ids [R] drawn from whole rows, in blocks of rows so that the noise needs little memory."""
    count, vocab = draws.logits.shape
    size = max(1, NOISE_BLOCK // vocab)
    blocks = (draws.take(slice(start, start + size)) for start in range(0, count, size))
    return torch.cat([_draw_whole_block(block) for block in blocks])


def _draw_whole_block(draws: _Draws) -> Tensor:
    """As adding noise to every logit would draw, but the logarithms are taken only where a token can still win.

    The best score among the likeliest tokens is a floor. Any other token starts at or below the last of these, so it
    needs noise above the difference; the hash alone rules out nearly all.
    """
    vocab = draws.logits.shape[1]
    keys = draws.keys[:, None]
    values, likeliest = draws.logits.topk(min(LIKELIEST, vocab), dim=-1)  # [R, K]
    scaled = values.double() / draws.temperature[:, None]
    floor = (scaled + noise.gumbel(noise.bits(keys, likeliest))).amax(dim=-1)
    least = noise.least_bits(floor - scaled[:, -1])
    able = noise.bits(keys, torch.arange(vocab, device=keys.device)) >= least[:, None]  # [R, V]
    rows, ids = able.scatter_(1, likeliest, True).nonzero(as_tuple=True)
    return _gumbel_max(draws, rows, ids, draws.logits[rows, ids].double() / draws.temperature[rows])


def _gumbel_max(draws: _Draws, rows: Tensor, ids: Tensor, scaled: Tensor) -> Tensor:
    """Ids [R], each row's candidate with the best noisy score; rows, ids and scaled [N] list the candidates.

    A row without candidates gives V.
    """
    count, vocab = draws.logits.shape
    scores = scaled + noise.gumbel(noise.bits(draws.keys[rows], ids))
    best = scores.new_full((count,), -math.inf).scatter_reduce(0, rows, scores, "amax")
    wins = scores == best[rows]
    return ids.new_full((count,), vocab).scatter_reduce(0, rows[wins], ids[wins], "amin")


def _draw_cut(draws: _Draws) -> Tensor:
    """Ids [R] drawn from rows with a cut: by the cheapest way that settles each row, which hangs on the row alone."""
    vocab = draws.logits.shape[1]
    picked = torch.full_like(draws.top_k, OPEN)
    ways: list[Callable[[_Draws], Tensor]] = [partial(_draw_among, size=size) for size in CANDIDATES if size < vocab]
    ways += [_draw_if_kept, partial(_draw_among, size=vocab)]
    for draw in ways:
        places = (picked == OPEN).nonzero().flatten()
        if not len(places):
            break
        picked[places] = draw(draws.take(places))
    return picked


def _draw_among(draws: _Draws, size: int) -> Tensor:
    """Ids [R] drawn looking at the `size` likeliest tokens; OPEN where the cut may keep others."""
    values, ids = _likeliest(draws.logits, size)
    scaled = values.double() / draws.temperature[:, None]
    kept = _kept(draws, scaled)
    settled = (draws.top_k <= size) | ((draws.top_k == draws.logits.shape[1]) & ~kept[:, -1])
    rows, columns = (kept & settled[:, None]).nonzero(as_tuple=True)
    winners = _gumbel_max(draws, rows, ids[rows, columns], scaled[rows, columns])
    return torch.where(settled, winners, OPEN)


def _draw_if_kept(draws: _Draws) -> Tensor:
    """Ids [R] drawn without order: a winner over all tokens that passes the cuts also wins among those that pass.

    OPEN where it does not pass, or where top_k and top_p together leave the mass unknown. Spares flat rows a sort.
    """
    logits, vocab = draws.logits, draws.logits.shape[1]
    ids = _draw_whole(draws)
    winner = logits.gather(1, ids[:, None])  # [R, 1]
    lower_ids = torch.arange(vocab, device=ids.device) < ids[:, None]
    before = (logits > winner) | ((logits == winner) & lower_ids)  # [R, V]
    distance = winner[:, 0].double() / draws.temperature - logits.amax(dim=-1).double() / draws.temperature
    passes = (before.sum(dim=-1) < draws.top_k) & (distance >= draws.min_p)
    passes &= _row_sums(_weights(draws) * before) < _limit(draws, draws.mass)
    known = draws.top_p.isinf() | (draws.top_k == vocab)
    return torch.where(passes & known, ids, OPEN)


def _kept(draws: _Draws, scaled: Tensor) -> Tensor:
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


def _limit(draws: _Draws, mass: Tensor) -> Tensor:
    """The mass before a token that shuts it out under top_p, [R]."""
    return draws.top_p * (1.0 - TOP_P_ROUNDING) * mass


def _weights(draws: _Draws) -> Tensor:
    """exp((logit - highest) / temperature), float32 [R, V]."""
    distance = draws.logits - draws.logits.amax(dim=-1, keepdim=True)
    return distance.div_(draws.temperature[:, None].float()).exp_()


def _row_sums(values: Tensor) -> Tensor:
    """Sums over the last axis, float64 [R], in pieces: torch adds one long row alone in another order than many."""
    whole = values.shape[1] - values.shape[1] % SUM_WIDTH
    pieces = values[:, :whole].reshape(len(values), whole // SUM_WIDTH, SUM_WIDTH).sum(dim=-1)
    rest = values[:, whole:].sum(dim=-1)
    return pieces.double().sum(dim=-1) + rest.double()


def _likeliest(logits: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """The `size` highest logits of each row and their ids [R, size], highest first, of equals the lowest id first."""
    if size == logits.shape[1]:
        values, ids = logits.sort(dim=-1, descending=True, stable=True)
        return values, ids
    values, ids = logits.topk(size + 1, dim=-1)
    tied = (values[:, -1] == values[:, -2]).nonzero().flatten()  # topk may take any of equals over the edge
    ids = ids[:, :-1]
    if len(tied):
        ids[tied] = _ordered(logits[tied]).topk(size, dim=-1).indices
    ids = ids.sort(dim=-1).values
    values, places = logits.gather(1, ids).sort(dim=-1, descending=True, stable=True)
    return values, ids.gather(1, places)


def _ordered(logits: Tensor) -> Tensor:
    """int64 keys that order as the logits do, of equals the lowest id highest."""
    raw = (logits + 0.0).view(torch.int32)  # + 0.0: no negative zero
    ordered = torch.where(raw < 0, raw ^ 0x7FFFFFFF, raw).long()
    return (ordered << 32) - torch.arange(logits.shape[1], device=logits.device)
