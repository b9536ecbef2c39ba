"""A StepPlan as the tensors one forward pass needs. Knows no weights and no layers."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import torch
from torch import Tensor

from ..kernels.attention_tasks import Bounds
from ..stepping.plan import Slice

NONE = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class StepBatch:
    """T tokens of S slices, R of which ask for logits; Q tokens are targets, whose log probabilities are asked for."""

    ids: Tensor  # [T] int64
    positions: Tensor  # [T] int64
    lengths: Tensor  # [T] int64: how long each token's sequence is to rotary scaling that depends on length
    slots: Tensor  # [T] int64: page * page_size + offset
    page_tables: Tensor  # [S, N] int64, short ones padded with the null page
    bounds: tuple[Bounds, ...]  # S of them
    logit_rows: Tensor  # [R] int64, rows of ids
    target_rows: Tensor  # [Q] int64, the rows that predict the targets
    targets: Tensor  # [Q] int64, ids
    opened: Tensor  # int64: pages that this step begins and doesn't fill


def batch_of(slices: Sequence[Slice], page_size: int, device: torch.device) -> StepBatch:
    """The tensors of some slices, on `device`."""
    starts = np.array([s.start for s in slices])
    counts = np.array([len(s.tokens) for s in slices])
    ends = starts + counts
    tables = _page_tables(slices)
    lasts = np.cumsum(counts)
    firsts = lasts - counts  # each slice's first row
    lasts -= 1
    ids = _joined([s.tokens for s in slices], lasts[-1] + 1)
    owner, positions = firsts, starts  # [T] the slice of each row: where all decode, each has one
    if len(ids) > len(slices):
        owner, positions = np.repeat(np.arange(len(slices)), counts), _ranges(starts, counts)
    pages = tables[owner, positions // page_size]
    stretches = np.array([s.stretch for s in slices])
    sampled = np.array([s.samples for s in slices])
    target_rows, targets = _targets(slices, firsts)

    def tensor(values: np.ndarray) -> Tensor:
        return torch.from_numpy(values).to(device)

    return StepBatch(
        ids=tensor(ids),
        positions=tensor(positions),
        lengths=tensor(np.maximum(positions + 1, stretches[owner])),
        slots=tensor(pages * page_size + positions % page_size),
        page_tables=tensor(tables),
        bounds=tuple(map(Bounds, firsts.tolist(), counts.tolist(), ends.tolist())),
        logit_rows=tensor(lasts[sampled]),
        target_rows=tensor(target_rows),
        targets=tensor(targets),
        opened=tensor(_opened(tables, starts, ends, page_size)),
    )


def _targets(slices: Sequence[Slice], firsts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The rows that predict targets, and these."""
    counts = [len(s.targets) for s in slices]
    if not any(counts):  # as nearly always
        return NONE, NONE
    return _ranges(firsts, np.array(counts)), _joined([s.targets for s in slices], sum(counts))


def _ranges(starts: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """The integers [start, start + count) of each pair, joined."""
    offsets = starts - (np.cumsum(counts) - counts)
    ranges: np.ndarray = np.arange(counts.sum()) + np.repeat(offsets, counts)
    return ranges


def _joined(parts: Iterable[tuple[int, ...]], count: int) -> np.ndarray:
    return np.fromiter(chain.from_iterable(parts), np.int64, count)


def _page_tables(slices: Sequence[Slice]) -> np.ndarray:
    sizes = np.array([len(s.pages) for s in slices])
    tables = np.zeros((len(slices), sizes.max()), np.int64)
    tables[np.arange(sizes.max()) < sizes[:, None]] = _joined([s.pages for s in slices], sizes.sum())
    return tables


def _opened(tables: np.ndarray, starts: np.ndarray, ends: np.ndarray, page_size: int) -> np.ndarray:
    """The last page of each slice that begins it and ends inside it."""
    last = ends // page_size
    partial = (ends % page_size != 0) & (last * page_size >= starts)
    rows = np.flatnonzero(partial)
    opened: np.ndarray = tables[rows, last[rows]]
    return opened
