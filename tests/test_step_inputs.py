"""The plain form of a step's inputs equals StepBatch, filled up and fed from seats."""

from random import Random

import pytest
import torch
from torch import Tensor

from fairstep.kernels.step_inputs import NEWEST, NO_ROW, NO_SEAT, SliceRow, StepTensors, fill_inputs, put_pages
from fairstep.model.batch import StepBatch
from fairstep.stepping.plan import Slice
from step_slices import assert_filled_up, assert_same, random_steps

CPU = torch.device("cpu")
SEATS, TABLE = 5, 60
TOKENS, SLICES, LOGITS = 300, 7, 6


def poisoned() -> StepTensors:
    def full(*shape: int, dtype: torch.dtype = torch.int64) -> Tensor:
        return torch.full(shape, -77, dtype=dtype)

    narrow = torch.int32
    return StepTensors(
        *(full(TOKENS) for _ in range(4)),
        full(SLICES + 1, dtype=narrow),
        full(SLICES, dtype=narrow),
        full(LOGITS),
        full(SLICES),
        full(SLICES, TABLE, dtype=narrow),
    )


def filled(slices: list[Slice], page_size: int, fed: bool) -> StepTensors:
    """fed: tokens of slices that have one come from the seats."""
    tables = torch.zeros(SEATS, TABLE, dtype=torch.int32)
    newest = torch.zeros(SEATS, dtype=torch.int64)
    rows: list[SliceRow] = []
    ids: list[int] = []
    first = logit = 0
    for piece in slices:
        put_pages(tables, torch.tensor([[piece.seat * TABLE + n, page] for n, page in enumerate(piece.pages)]))
        newest[piece.seat] = piece.tokens[-1]
        count = len(piece.tokens)
        source = NEWEST if fed and count == 1 else len(ids)
        asks = logit if piece.samples else NO_ROW
        rows.append(SliceRow(piece.seat, piece.start, count, first, piece.stretch, asks, source))
        ids += piece.tokens if source != NEWEST else ()
        first += count
        logit += piece.samples
    rows += [SliceRow(NO_SEAT, 0, 0, first, 0, NO_ROW, 0)] * (SLICES - len(rows))
    rows.append(SliceRow(NO_SEAT, 0, TOKENS - first, first, 0, logit, 0))
    out = poisoned()
    fill_inputs(out, torch.tensor(rows, dtype=torch.int32), torch.tensor(ids), newest, tables, page_size)
    return out


@pytest.mark.parametrize("fed", [False, True])
@pytest.mark.parametrize("page_size", [4, 16])
def test_it_is_what_batch_of_makes(page_size: int, fed: bool) -> None:
    for slices in random_steps(Random(page_size), seats=SEATS, page_size=page_size, steps=4):
        out = filled(slices, page_size, fed)
        batch = StepBatch(slices, page_size, CPU)
        assert_same(out, batch, slices, page_size)
        assert_filled_up(out, len(batch.ids), len(slices), len(batch.logit_rows))
