"""A plan's tensors equal what its definition says, token by token."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from fairstep.door import Sampling
from fairstep.model.batch import StepBatch
from fairstep.stepping.plan import Slice

CPU = torch.device("cpu")


@st.composite
def slices(draw: st.DrawFn, page_size: int) -> list[Slice]:
    parts = []
    for seq in range(draw(st.integers(1, 6))):
        start, length = draw(st.integers(0, 40)), draw(st.integers(1, 20))
        needed = -(-(start + length) // page_size)
        pages = draw(st.lists(st.integers(1, 500), min_size=needed, max_size=needed + 3, unique=True))
        tokens = draw(st.lists(st.integers(0, 99), min_size=length, max_size=length))
        targets = tuple(draw(st.lists(st.integers(0, 99), max_size=length)))
        stretch = draw(st.integers(0, 80))
        part = Slice(seq, 1, start, tuple(tokens), tuple(pages), draw(st.booleans()), 0, Sampling(), False)
        parts.append(replace(part, targets=targets, stretch=stretch))
    return parts


@given(st.data(), st.sampled_from([1, 4, 16]))
def test_each_token_has_its_position_and_slot(data: st.DataObject, page_size: int) -> None:
    parts = data.draw(slices(page_size))
    batch = StepBatch(parts, page_size, CPU)
    positions = [p for s in parts for p in range(s.start, s.end)]
    slots = [s.pages[p // page_size] * page_size + p % page_size for s in parts for p in range(s.start, s.end)]
    assert batch.ids.tolist() == [token for s in parts for token in s.tokens]
    assert batch.positions.tolist() == positions
    assert batch.slots.tolist() == slots


@given(st.data(), st.sampled_from([1, 4, 16]))
def test_each_slice_has_its_bounds_its_pages_and_its_row_of_logits(data: st.DataObject, page_size: int) -> None:
    parts = data.draw(slices(page_size))
    batch = StepBatch(parts, page_size, CPU)
    row, rows = 0, []
    for part, bounds, table in zip(parts, batch.bounds, batch.page_tables.tolist(), strict=True):
        assert (bounds.q_start, bounds.q_len, bounds.kv_len) == (row, len(part.tokens), part.end)
        assert table[: len(part.pages)] == list(part.pages)
        assert not any(table[len(part.pages) :])
        row += len(part.tokens)
        rows += [row - 1] if part.samples else []
    assert batch.logit_rows.tolist() == rows


@given(st.data())
def test_a_token_counts_as_one_of_a_sequence_that_ends_with_it_or_is_as_long_as_the_slice_says(
    data: st.DataObject,
) -> None:
    parts = data.draw(slices(4))
    lengths = [max(p + 1, s.stretch) for s in parts for p in range(s.start, s.end)]
    batch = StepBatch(parts, 4, CPU)
    assert batch.lengths.tolist() == lengths
    assert batch.lengths.dtype is torch.int64


@given(st.data())
def test_each_target_stands_beside_the_row_of_the_token_before_it(data: st.DataObject) -> None:
    parts = data.draw(slices(4))
    batch = StepBatch(parts, 4, CPU)
    pairs = [
        (bounds.q_start + index, target)
        for part, bounds in zip(parts, batch.bounds, strict=True)
        for index, target in enumerate(part.targets)
    ]
    assert list(zip(batch.target_rows.tolist(), batch.targets.tolist(), strict=True)) == pairs
    assert batch.target_rows.dtype is batch.targets.dtype is torch.int64


@given(st.data(), st.sampled_from([1, 4, 16]))
def test_opened_pages_are_those_begun_and_not_filled(data: st.DataObject, page_size: int) -> None:
    parts = data.draw(slices(page_size))
    opened = []
    for part in parts:
        for index, page in enumerate(part.pages):
            first, last = index * page_size, (index + 1) * page_size - 1
            if part.start <= first < part.end and last >= part.end:
                opened.append(page)
    assert StepBatch(parts, page_size, CPU).opened.tolist() == opened
