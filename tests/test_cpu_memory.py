"""Memory in huge pages: zero, apart, at cache lines, and kept as long as a piece of it."""

import gc

import pytest
import torch

from fairstep.kernels.cpu.memory import HUGE, LINE, MAPPING, StreamMemory, zeros


def test_pieces_are_zero_and_begin_at_cache_lines() -> None:
    memory = StreamMemory()
    for shape in ((3,), (2, 5), (1000, 7), (64,), (LINE * 3 + 1,)):
        piece = memory.take(*shape)
        assert piece.shape == shape and piece.data_ptr() % LINE == 0 and not piece.any()


def test_pieces_are_apart() -> None:
    memory = StreamMemory()
    pieces = [memory.take(size) for size in (1, LINE, LINE + 1, MAPPING // 2, MAPPING // 2, MAPPING + 5)]
    for number, piece in enumerate(pieces, 1):
        piece[0] = piece[-1] = number
    assert [(int(piece[0]), int(piece[-1])) for piece in pieces] == [(n, n) for n in range(1, 7)]


def test_what_is_larger_than_a_mapping_gets_its_own() -> None:
    assert len(StreamMemory().take(2 * MAPPING + 1)) == 2 * MAPPING + 1


def test_a_piece_outlives_the_memory_that_gave_it() -> None:
    piece = StreamMemory().take(1 << 20)
    gc.collect()
    piece.fill_(7)
    assert int(piece.sum(dtype=torch.int64)) == 7 << 20


@pytest.mark.parametrize("elements", [0, 12, HUGE // 2, HUGE // 2 + 1, 3 * HUGE])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_zeros_are_those_of_torch(elements: int, dtype: torch.dtype) -> None:
    got = zeros((2, elements), dtype)
    assert torch.equal(got, torch.zeros(2, elements, dtype=dtype)) and got.is_contiguous()


def test_large_zeros_begin_at_a_huge_page() -> None:
    assert zeros((HUGE,), torch.uint8).data_ptr() % HUGE == 0
