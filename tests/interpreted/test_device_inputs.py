"""A step's inputs made by kernels: those of StepBatch and of the plain version, filled up, and fed on the device."""

from random import Random

import pytest
import torch
from msgspec.structs import replace
from torch import Tensor

from fairstep.door import Sampling
from fairstep.kernels import step_inputs as plain
from fairstep.kernels.step_inputs import SliceRow, StepTensors
from fairstep.kernels.triton import inputs
from fairstep.model.batch import StepBatch
from fairstep.model.device_inputs import DeviceInputs, Sizes
from fairstep.stepping.plan import Slice
from step_slices import assert_filled_up, assert_same, awaiting, random_steps

CPU = torch.device("cpu")
SEATS, TOKENS, PAGES = 6, 400, 200


def owner(page_size: int) -> DeviceInputs:
    return DeviceInputs(seats=SEATS, tokens=TOKENS, pages=PAGES, page_size=page_size, device=CPU)


def piece(seat: int = 0, start: int = 0, tokens: tuple[int, ...] = (1,), pages: tuple[int, ...] = (3, 5)) -> Slice:
    return Slice(seat + 1, 1, start, tokens, pages, True, 0, Sampling(), len(tokens) == 1, seat=seat)


@pytest.mark.parametrize("page_size", [1, 4, 16])
def test_steps_equal_those_of_batch_of(page_size: int) -> None:
    device = owner(page_size)
    for slices in random_steps(Random(page_size), seats=SEATS, page_size=page_size, steps=8):
        made = device.prepare(slices)
        batch = StepBatch(slices, page_size, CPU)
        assert_same(made.tensors, batch, slices, page_size)
        assert (made.tokens, made.slices, made.logits) == (len(batch.ids), len(slices), len(batch.logit_rows))
        if len(batch.targets):
            assert made.target_rows is not None and made.targets is not None
            assert made.target_rows.tolist() == batch.target_rows.tolist()
            assert made.targets.tolist() == batch.targets.tolist()
        else:
            assert made.target_rows is made.targets is None
        device.check()


def test_what_fills_up_computes_nothing_and_memory_stays_in_place() -> None:
    device = owner(4)
    sizes = Sizes(tokens=256, slices=SEATS, logits=SEATS, pages=40)
    memory = set()
    for slices in random_steps(Random(5), seats=SEATS, page_size=4, steps=5):
        made = device.prepare(slices, sizes)
        batch = StepBatch(slices, 4, CPU)
        assert_same(made.tensors, batch, slices, 4)
        assert_filled_up(made.tensors, len(batch.ids), len(slices), len(batch.logit_rows))
        assert [len(part) for part in made.tensors] == [256] * 4 + [7, 6, 6, 6, 6]
        memory.add(tuple(part.data_ptr() for part in made.tensors))
    assert len(memory) == 1


def test_a_token_drawn_on_the_device_is_the_next_step_s_input() -> None:
    device = owner(4)
    device.prepare([piece(seat, tokens=(7, 8, 9)) for seat in range(3)])
    device.newest[:3] = torch.tensor([70, -1, 90])  # the second row was not finite
    known = piece(1, 3, (5,))
    slices = [awaiting(piece(2, 3)), known, awaiting(piece(0, 3)), awaiting(piece(1, 3))][:3]
    assert device.prepare(slices).tensors.ids.tolist() == [90, 5, 70]
    assert device.prepare([awaiting(piece(1, 4))]).tensors.ids.tolist() == [0]


def test_only_pages_that_were_added_are_sent() -> None:
    device = owner(4)
    pages = tuple(range(1, 9))
    assert len(device._page_changes([piece(pages=pages)])) == 8
    assert len(device._page_changes([piece(pages=pages)])) == 0
    assert device._page_changes([piece(pages=(*pages, 44))]).tolist() == [[8, 44]]
    assert len(device._page_changes([replace(piece(pages=(9, 9)), attempt=2)])) == 2


def test_a_slice_of_no_sequence_writes_nowhere_and_reads_no_page() -> None:
    blank = replace(piece(-1, 0, (1, 2, 3, 4, 5), (0, 0)), seq=0, attempt=0)
    made = owner(4).prepare([blank, piece()]).tensors
    assert made.slots.tolist() == [-1] * 5 + [12]
    assert made.page_tables.tolist() == [[0, 0], [3, 0]]
    assert made.kv_len.tolist() == [5, 1] and made.cu_q.tolist() == [0, 5, 6]
    assert made.opened.tolist() == [0, 3]


def test_the_seat_of_a_new_sequence_shows_none_of_the_old_pages() -> None:
    device = owner(4)
    device.prepare([piece(pages=(4, 5, 6, 7), tokens=tuple(range(16)))])
    made = device.prepare([replace(piece(pages=(9,)), seq=77), piece(1, pages=(1, 2, 3, 8), tokens=tuple(range(16)))])
    assert made.tensors.page_tables.tolist() == [[9, 0, 0, 0], [1, 2, 3, 8]]


def test_more_than_there_is_memory_for_is_our_own_fault() -> None:
    device = owner(4)
    with pytest.raises(AssertionError, match="rows"):
        device.prepare([piece(pages=tuple(range(1, 126)), tokens=(1,) * (TOKENS + 1))])
    with pytest.raises(AssertionError, match="slices"):
        device.prepare([piece(-1)] * (2 * SEATS + 1))


def test_check_finds_a_page_table_that_differs() -> None:
    device = owner(4)
    device.prepare([piece()])
    device._tables[0, 1] = 9
    with pytest.raises(AssertionError, match="seat 0"):
        device.check()


def blank_tensors(tokens: int, slices: int, logits: int, pages: int) -> StepTensors:
    """Filled with what nobody should see."""

    def full(*shape: int, dtype: torch.dtype) -> Tensor:
        return torch.full(shape, -77, dtype=dtype)

    wide, narrow = torch.int64, torch.int32
    return StepTensors(
        *(full(tokens, dtype=wide) for _ in range(4)),
        full(slices + 1, dtype=narrow),
        full(slices, dtype=narrow),
        full(logits, dtype=wide),
        full(slices, dtype=wide),
        full(slices, pages, dtype=narrow),
    )


@pytest.mark.parametrize("block", [4, 64])
def test_the_kernels_equal_the_plain_version(block: int) -> None:
    rows = [
        SliceRow(2, 9, 1, 0, 0, 0, -1),
        SliceRow(0, 0, 13, 1, 30, -1, 0),
        SliceRow(-1, 3, 4, 14, 0, 1, 13),
        SliceRow(1, 6, 2, 18, 0, 2, 17),
        SliceRow(-1, 0, 0, 20, 0, -1, 0),
        SliceRow(-1, 0, 9, 20, 0, 3, 0),
    ]
    slices = torch.tensor(rows, dtype=torch.int32)
    tokens = torch.arange(50, 70, dtype=torch.int32)
    newest = torch.tensor([1, 2, 33, 4])
    tables = torch.arange(1, 45, dtype=torch.int32).reshape(4, 11)
    made, wanted = (blank_tensors(29, 5, 6, 5) for _ in range(2))
    inputs.fill_inputs(made, slices, tokens, newest, tables, 3, longest=13, block=block)
    plain.fill_inputs(wanted, slices, tokens, newest, tables, 3)
    for name, got, want in zip(StepTensors._fields, made, wanted, strict=True):
        assert torch.equal(got, want), name


def test_pages_are_put_as_the_plain_version_puts_them() -> None:
    made, wanted = torch.zeros(3, 200, dtype=torch.int32), torch.zeros(3, 200, dtype=torch.int32)
    changes = torch.stack((torch.randperm(600)[:300], torch.arange(300)), 1).to(torch.int32)
    inputs.put_pages(made, changes)
    inputs.put_pages(made, changes[:0])
    plain.put_pages(wanted, changes)
    assert torch.equal(made, wanted)
