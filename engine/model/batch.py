"""A StepPlan as the tensors one forward pass needs. Knows no weights and no layers."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import torch
from torch import Tensor

from ..kernels.paged_attention import Bounds
from ..stepping.plan import Slice


@dataclass(frozen=True, slots=True)
class StepBatch:
    """T tokens of S slices, R of which ask for logits."""

    ids: Tensor  # [T] int64
    positions: Tensor  # [T] int64
    slots: Tensor  # [T] int64: page * page_size + offset
    page_tables: Tensor  # [S, N] int64, short ones padded with the null page
    bounds: tuple[Bounds, ...]  # S of them
    logit_rows: Tensor  # [R] int64, rows of ids
    opened: Tensor  # int64: pages that this step begins and doesn't fill


def batch_of(slices: Sequence[Slice], page_size: int, device: torch.device) -> StepBatch:
    """The tensors of some slices, on `device`."""
    starts = np.array([s.start for s in slices])
    lengths = np.array([len(s.tokens) for s in slices])
    tables = _page_tables(slices)
    firsts = np.cumsum(lengths) - lengths  # each slice's first row
    owner = np.repeat(np.arange(len(slices)), lengths)  # [T] the slice of each row
    positions = np.arange(len(owner)) + (starts - firsts)[owner]
    pages = tables[owner, positions // page_size]
    ids = np.fromiter(chain.from_iterable(s.tokens for s in slices), np.int64, len(owner))
    sampled = np.array([s.samples for s in slices])

    def tensor(values: np.ndarray) -> Tensor:
        return torch.from_numpy(values).to(device)

    return StepBatch(
        ids=tensor(ids),
        positions=tensor(positions),
        slots=tensor(pages * page_size + positions % page_size),
        page_tables=tensor(tables),
        bounds=tuple(map(Bounds, firsts.tolist(), lengths.tolist(), (starts + lengths).tolist())),
        logit_rows=tensor((firsts + lengths - 1)[sampled]),
        opened=tensor(_opened(tables, starts, starts + lengths, page_size)),
    )


def _page_tables(slices: Sequence[Slice]) -> np.ndarray:
    sizes = np.array([len(s.pages) for s in slices])
    tables = np.zeros((len(slices), sizes.max()), np.int64)
    flat = np.fromiter(chain.from_iterable(s.pages for s in slices), np.int64, sizes.sum())
    tables[np.arange(sizes.max()) < sizes[:, None]] = flat
    return tables


def _opened(tables: np.ndarray, starts: np.ndarray, ends: np.ndarray, page_size: int) -> np.ndarray:
    """The last page of each slice that begins it and ends inside it."""
    last = ends // page_size
    partial = (ends % page_size != 0) & (last * page_size >= starts)
    rows = np.flatnonzero(partial)
    opened: np.ndarray = tables[rows, last[rows]]
    return opened
