"""A step's input tensors made on the device: ids, positions, slots, page tables. Reference: kernels/step_inputs.py.

A slice's ids come from the host or are its seat's newest token, so a step can be launched before the host has seen what
the one before draws.
"""

import triton
import triton.language as tl
from torch import Tensor

from ..step_inputs import NEWEST, NO_ROW, SKIP, SliceRow, StepTensors

BLOCK = 256  # tokens of a slice, or pages of its table, that one program makes

SEAT: tl.constexpr = tl.constexpr(SliceRow._fields.index("seat"))
START: tl.constexpr = tl.constexpr(SliceRow._fields.index("start"))
SIZE: tl.constexpr = tl.constexpr(SliceRow._fields.index("size"))
FIRST: tl.constexpr = tl.constexpr(SliceRow._fields.index("first"))
STRETCH: tl.constexpr = tl.constexpr(SliceRow._fields.index("stretch"))
LOGIT: tl.constexpr = tl.constexpr(SliceRow._fields.index("logit"))
SOURCE: tl.constexpr = tl.constexpr(SliceRow._fields.index("source"))
WORDS: tl.constexpr = tl.constexpr(len(SliceRow._fields))
FROM_SEAT: tl.constexpr = tl.constexpr(NEWEST)
NO_LOGITS: tl.constexpr = tl.constexpr(NO_ROW)
NO_SLOT: tl.constexpr = tl.constexpr(SKIP)


def put_pages(tables: Tensor, changes: Tensor) -> None:
    """tables [seats, N] int32, contiguous, in place: changes [U, 2] int32 are (seat * N + index, page)."""
    count = len(changes)
    if count:
        _put_pages[(triton.cdiv(count, BLOCK),)](tables, changes, count, BLOCK=BLOCK, num_warps=4)


def fill_inputs(
    out: StepTensors,
    slices: Tensor,
    tokens: Tensor,
    newest: Tensor,
    tables: Tensor,
    page_size: int,
    longest: int,
    block: int = BLOCK,
) -> None:
    """As the reference. longest: at least the size of every row of `slices`, and of logit rows that fill up."""
    places = len(slices)
    width = out.page_tables.shape[1]
    blocks = triton.cdiv(max(longest, width), block)
    _fill_inputs[(places, blocks)](
        *out,
        slices,
        tokens,
        newest,
        tables,
        tables.stride(0),
        out.page_tables.stride(0),
        places,
        len(out.logit_rows),
        width,
        PAGE=page_size,
        BLOCK=block,
        num_warps=4,
    )


@triton.jit(do_not_specialize=["count"])
def _put_pages(tables, changes, count, BLOCK: tl.constexpr):
    which = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = which < count
    place = tl.load(changes + which * 2, mask=inside, other=0)
    tl.store(tables + place, tl.load(changes + which * 2 + 1, mask=inside, other=0), mask=inside)


@triton.jit(do_not_specialize=["places", "logits", "width"])
def _fill_inputs(
    ids,
    positions,
    lengths,
    slots,
    cu_q,
    kv_len,
    logit_rows,
    opened,
    page_tables,
    slices,
    tokens,
    newest,
    tables,
    table_stride,
    out_stride,
    places,
    logits,
    width,
    PAGE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """A slice's rows and part of its page table; the last slice's are what fills up."""
    place = tl.program_id(0)
    row = slices + place * WORDS
    seat = tl.load(row + SEAT).to(tl.int64)
    start = tl.load(row + START)
    size = tl.load(row + SIZE)
    first = tl.load(row + FIRST)
    offsets = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < size
    target = first + offsets
    table = tables + seat * table_stride
    end = start + size
    if place == places - 1:
        nothing = tl.zeros([BLOCK], tl.int64)
        tl.store(ids + target, nothing, mask=inside)
        tl.store(positions + target, nothing, mask=inside)
        tl.store(lengths + target, nothing + 1, mask=inside)
        tl.store(slots + target, nothing + NO_SLOT, mask=inside)
        drawn = tl.load(row + LOGIT) + offsets
        tl.store(logit_rows + drawn, nothing, mask=drawn < logits)
    else:
        at = start + offsets
        source = tl.load(row + SOURCE)
        if source == FROM_SEAT:
            token = tl.zeros([BLOCK], tl.int64) + tl.maximum(tl.load(newest + seat), 0)
        else:
            token = tl.load(tokens + source + offsets, mask=inside, other=0).to(tl.int64)
        pages = tl.where(seat >= 0, (end + PAGE - 1) // PAGE, 0)
        page = tl.load(table + at // PAGE, mask=at < tl.where(seat >= 0, end, 0), other=0).to(tl.int64)
        slot = tl.where(seat >= 0, page * PAGE + at % PAGE, NO_SLOT)
        tl.store(ids + target, token, mask=inside)
        tl.store(positions + target, at.to(tl.int64), mask=inside)
        tl.store(lengths + target, tl.maximum(at + 1, tl.load(row + STRETCH)).to(tl.int64), mask=inside)
        tl.store(slots + target, slot, mask=inside)
        copied = tl.load(table + offsets, mask=offsets < pages, other=0)
        tl.store(page_tables + place.to(tl.int64) * out_stride + offsets, copied, mask=offsets < width)
    if tl.program_id(1) == 0:
        tl.store(cu_q + place, first)
        if place < places - 1:
            tl.store(kv_len + place, end)
            _tell_of_slice(logit_rows, opened, row, place, table, seat, PAGE)


@triton.jit
def _tell_of_slice(logit_rows, opened, row, place, table, seat, PAGE: tl.constexpr):
    """The row of logits that a slice asks for, and the page that it begins and doesn't fill."""
    start = tl.load(row + START)
    size = tl.load(row + SIZE)
    logit = tl.load(row + LOGIT)
    if logit != NO_LOGITS:
        tl.store(logit_rows + logit, (tl.load(row + FIRST) + size - 1).to(tl.int64))
    end = start + size
    last = end // PAGE
    page = tl.full([], 0, tl.int64)
    if (seat >= 0) & (size > 0) & (end % PAGE != 0) & (last * PAGE >= start):
        page += tl.load(table + last)
    tl.store(opened + place, page)
