"""A step's input tensors, out of its slices in short and what is kept of each seat. The plain torch version.

A slice is a range of one sequence's tokens; a seat is a sequence's place, whose newest token and page table are kept.
"""

from typing import NamedTuple

import torch
from torch import Tensor

NEWEST = -1  # as `source`: the seat's newest token
NO_ROW = -1  # as `logit`: its logits are not asked for
NO_SEAT = -1  # nothing is kept, and its keys and values are written nowhere
SKIP = -1  # a slot that is not written


class SliceRow(NamedTuple):
    """One slice, int32 each: positions [start, start + size) of the sequence at `seat`, in rows from `first` on.

    stretch: rotary scaling takes the token at p for one of max(p + 1, stretch). logit: which row of logits its last
    token asks for. source: where its ids begin among the host's tokens.
    """

    seat: int
    start: int
    size: int
    first: int
    stretch: int
    logit: int
    source: int


class StepTensors(NamedTuple):
    """What a forward pass takes: T rows of S slices, R of which ask for logits, each filled up to a size of its own.

    Rows that fill up have id 0, position 0, length 1 and slot SKIP; slices that do have no rows and kv_len 0;
    logit_rows that do are 0. page_tables: of each slice, 0 past its pages. opened: a page that the slice begins and
    doesn't fill, or 0. cu_q: slice s has rows [cu_q[s], cu_q[s + 1]).
    """

    ids: Tensor  # [T] int64
    positions: Tensor  # [T] int64
    lengths: Tensor  # [T] int64
    slots: Tensor  # [T] int64: page * page_size + offset
    cu_q: Tensor  # [S + 1] int32
    kv_len: Tensor  # [S] int32
    logit_rows: Tensor  # [R] int64
    opened: Tensor  # [S] int64
    page_tables: Tensor  # [S, N] int32


def put_pages(tables: Tensor, changes: Tensor) -> None:
    """tables [seats, N] int32, in place: changes [U, 2] int32 are (seat * N + index, page)."""
    tables.view(-1)[changes[:, 0].long()] = changes[:, 1].to(tables.dtype)


def fill_inputs(
    out: StepTensors, slices: Tensor, tokens: Tensor, newest: Tensor, tables: Tensor, page_size: int
) -> None:
    """Fill `out`. slices [S + 1, 7] int32: SliceRows; those without tokens come last, and the last of all gives in
    `first`, `logit` and `size` how many rows and logit rows there are, and how many rows fill up. tokens [K] int32:
    the host's. newest [seats] int64, below 0 counts as 0. tables [seats, N] int32: page tables.
    """
    *rows, end = (SliceRow(*row) for row in slices.tolist())
    for part, value in ((out.ids, 0), (out.positions, 0), (out.lengths, 1), (out.slots, SKIP)):
        part[end.first :] = value
    out.logit_rows[end.logit :] = 0
    out.cu_q.copy_(torch.tensor([*(row.first for row in rows), end.first]))
    out.kv_len.copy_(torch.tensor([row.start + row.size for row in rows]))
    out.page_tables.zero_()
    out.opened.zero_()
    for place, row in enumerate(rows):
        if row.size:
            _fill_slice(out, place, row, tokens, newest, tables, page_size)


def _fill_slice(
    out: StepTensors, place: int, row: SliceRow, tokens: Tensor, newest: Tensor, tables: Tensor, page_size: int
) -> None:
    mine, end = slice(row.first, row.first + row.size), row.start + row.size
    positions = torch.arange(row.start, end)
    out.ids[mine] = newest[row.seat].clamp(min=0) if row.source == NEWEST else tokens[row.source :][: row.size].long()
    out.positions[mine] = positions
    out.lengths[mine] = (positions + 1).clamp(min=row.stretch)
    out.slots[mine] = SKIP
    if row.logit != NO_ROW:
        out.logit_rows[row.logit] = row.first + row.size - 1
    if row.seat == NO_SEAT:
        return
    pages = -(-end // page_size)
    out.page_tables[place, :pages] = tables[row.seat, :pages]
    out.slots[mine] = tables[row.seat, positions // page_size].long() * page_size + positions % page_size
    last = end // page_size
    if end % page_size and last * page_size >= row.start:
        out.opened[place] = tables[row.seat, last]
