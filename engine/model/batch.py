"""A StepPlan as the tensors one forward pass needs. Knows no weights and no layers."""

from array import array
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import accumulate, chain

import numpy as np
import torch
from torch import Tensor

from ..kernels.attention_tasks import Bounds
from ..stepping.pages import NULL_PAGE
from ..stepping.plan import Slice

NONE = np.zeros(0, np.int64)


class StepBatch:
    """T tokens of S slices, R of which ask for logits; Q tokens are targets, whose log probabilities are asked for.

    Arrays of plain integers, and tensors that are made when they are first asked for: between two steps, when caches
    are full of weights, each of these costs ten times as much as one of those.
    extents: [S, 3] int32: each slice's first row, its rows, and its sequence's positions with them. tables: the pages,
    [S, widest] int64.
    """

    def __init__(self, slices: Sequence[Slice], page_size: int, device: torch.device) -> None:
        self._slices = slices
        self._page_size = page_size
        self._device = device
        counts = [len(piece.tokens) for piece in slices]
        ends = list(accumulate(counts))
        lengths = [piece.start + count for piece, count in zip(slices, counts, strict=True)]
        firsts = (end - count for end, count in zip(ends, counts, strict=True))
        self.tokens = ends[-1]
        self.slices = len(slices)
        self.longest = max(lengths)
        self.widest = max([len(piece.pages) for piece in slices])
        self.token_ids = array("q", chain.from_iterable([piece.tokens for piece in slices]))
        self.extents = array("i", chain.from_iterable(zip(firsts, counts, lengths, strict=True)))
        self.tables = array("q", chain.from_iterable([self._padded(piece.pages) for piece in slices]))
        self.drawn = array("i", [end - 1 for piece, end in zip(slices, ends, strict=True) if piece.samples])

    def _padded(self, pages: tuple[int, ...]) -> tuple[int, ...]:
        return pages + (NULL_PAGE,) * (self.widest - len(pages))

    @property
    def has_targets(self) -> bool:
        """Whether Q is not 0."""
        return any(piece.targets for piece in self._slices)

    @cached_property
    def bounds(self) -> tuple[Bounds, ...]:
        """S of them."""
        return tuple([Bounds(*each) for each in self._extents.tolist()])

    @cached_property
    def ids(self) -> Tensor:
        """[T] int64."""
        return self._tensor(np.array(self.token_ids, np.int64))

    @cached_property
    def page_tables(self) -> Tensor:
        """[S, N] int64, short ones padded with the null page."""
        return self._tensor(self._tables)

    @cached_property
    def positions(self) -> Tensor:
        """[T] int64."""
        return self._tensor(self._positions)

    @cached_property
    def lengths(self) -> Tensor:
        """[T] int64: how long each token's sequence is to rotary scaling that depends on length."""
        stretches = np.array([piece.stretch for piece in self._slices])
        return self._tensor(np.maximum(self._positions + 1, stretches[self._owners]))

    @cached_property
    def slots(self) -> Tensor:
        """[T] int64: page * page_size + offset."""
        pages = self._tables[self._owners, self._positions // self._page_size]
        return self._tensor(pages * self._page_size + self._positions % self._page_size)

    @cached_property
    def logit_rows(self) -> Tensor:
        """[R] int64, rows of ids."""
        return self._tensor(np.array(self.drawn, np.int64))

    @cached_property
    def target_rows(self) -> Tensor:
        """[Q] int64, the rows that predict the targets."""
        counts = np.array([len(piece.targets) for piece in self._slices])
        return self._tensor(_ranges(self._extents[:, 0], counts) if self.has_targets else NONE)

    @cached_property
    def targets(self) -> Tensor:
        """[Q] int64, ids."""
        each = [piece.targets for piece in self._slices]
        return self._tensor(_joined(each, sum(map(len, each))))

    @cached_property
    def opened(self) -> Tensor:
        """Pages that this step begins and doesn't fill, int64: the last of each slice that begins it and ends in it."""
        _, counts, ends = self._extents.T
        last = ends // self._page_size
        partial = (ends % self._page_size != 0) & (last * self._page_size >= ends - counts)
        rows = np.flatnonzero(partial)
        return self._tensor(self._tables[rows, last[rows]])

    @cached_property
    def _extents(self) -> np.ndarray:
        return np.array(self.extents, np.int64).reshape(self.slices, 3)

    @cached_property
    def _tables(self) -> np.ndarray:
        return np.array(self.tables, np.int64).reshape(self.slices, self.widest)

    @cached_property
    def _owners(self) -> np.ndarray:
        """[T] the slice of each row."""
        return np.repeat(np.arange(self.slices), self._extents[:, 1])

    @cached_property
    def _positions(self) -> np.ndarray:
        _, counts, ends = self._extents.T
        return _ranges(ends - counts, counts)

    def _tensor(self, values: np.ndarray) -> Tensor:
        return torch.from_numpy(values).to(self._device)


def _ranges(starts: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """The integers [start, start + count) of each pair, joined."""
    offsets = starts - (np.cumsum(counts) - counts)
    ranges: np.ndarray = np.arange(counts.sum()) + np.repeat(offsets, counts)
    return ranges


def _joined(parts: Iterable[tuple[int, ...]], count: int) -> np.ndarray:
    return np.fromiter(chain.from_iterable(parts), np.int64, count)
