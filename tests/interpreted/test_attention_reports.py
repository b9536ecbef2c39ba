"""Bugs reported of other engines' attention kernels, each played against ours."""

import pytest
import torch

from attention_case import CPU, Case, make_case
from fairstep.kernels.paged_attention import PLAIN, AttentionKind
from fairstep.kernels.triton.attention import MOST_SPLITS, SPLIT, AttentionConfigs, make_scratch
from fairstep.kernels.triton.configs.attention import AttentionConfig
from naive_attention import naive_attention
from near import assert_near, far_pages, randoms

TILES_OF_16 = AttentionConfigs(AttentionConfig(16, 16, 4, 1), AttentionConfig(16, 16, 4, 1))


def test_padded_rows_without_positions_are_zeros_and_poison_nobody() -> None:
    """vllm #57017, #57094, #38436: a split of nothing was divided by its weight of nothing."""
    for sinks in (False, True):
        case = make_case([(1, 0), (1, 40), (1, 0), (4, 0)], sinks=sinks)
        case.assert_right()
        for row in (0, 2, 3):
            assert not case.attend()[row].any()


def test_values_outside_the_window_are_not_multiplied() -> None:
    """vllm #30887: a NaN there times a weight of zero is NaN."""
    case = make_case([(1, 60), (4, 60)], kind=AttentionKind(window=10), page_size=4)
    for row, first in ((0, 50), (1, 47)):
        gone = case.page_tables[row, : first // 4].long()
        case.keys[gone] = torch.nan
        case.values[gone] = torch.nan
        last = case.page_tables[row, first // 4].long()
        case.values[last, :, : first % 4] = torch.nan
    case.assert_right()
    case.assert_right(TILES_OF_16)


def test_pages_that_a_window_left_behind_may_be_given_back() -> None:
    case = make_case([(1, 600), (4, 600)], kind=AttentionKind(window=30))
    case.page_tables[:, : (600 - 4 - 30) // 16] = 0
    case.assert_right()


def test_a_tile_that_a_row_sees_nothing_of_gives_no_nan() -> None:
    """vllm #4405, FlagAttention #25, sglang #38142, aiter #2505: -inf minus -inf."""
    case = make_case([(16, 48), (30, 60)], group=1, kind=AttentionKind(window=2))
    case.assert_right(TILES_OF_16)  # the first row's window lies in a tile that the last row sees nothing of


def test_a_softcap_holds_however_large_the_products_are() -> None:
    """vllm #56578, tokenspeed #183: both exponentials overflowed, and infinity by infinity is NaN."""
    case = make_case([(1, 20), (9, 9)], kind=AttentionKind(scale=1e4, softcap=3.0))
    case.assert_right()


@pytest.mark.parametrize("q_len", [1, 3])
def test_pages_past_two_to_the_31_elements(q_len: int) -> None:
    """tokenspeed #501, aiter #4474, flash-linear-attention #1080: page times stride did not fit in 32 bits."""
    keys, values = far_pages(16, 64), far_pages(16, 64)
    k, v = (randoms(20, 1, 64, dtype=torch.float16, seed=seed) for seed in (1, 2))
    for page, part in ((8, slice(0, 16)), (1, slice(16, 20))):
        keys[page, 0, : part.stop - part.start] = k[part, 0]
        values[page, 0, : part.stop - part.start] = v[part, 0]
    q = randoms(q_len, 2, 64, dtype=torch.float16, seed=3)
    tables = torch.tensor([[8, 1]], dtype=torch.int32)
    Case([(q_len, 20)], q, keys, values, tables, [(k, v)], PLAIN, None).assert_right()


def test_a_last_page_s_stale_slots_are_masked_where_tiles_are_pages() -> None:
    """zml #563: the mask was left out where a tile is as long as a page."""
    case = make_case([(1, 17), (1, 33), (5, 18), (17, 47)], page_size=16)
    case.assert_right(TILES_OF_16)


@pytest.mark.parametrize("page_size", [48, 100, 2048])
def test_tiles_do_not_follow_the_page_size(page_size: int) -> None:
    """aiter #2393, vllm #38502: a page of no power of two, or a huge one, was taken for a tile."""
    make_case([(1, 130), (7, 101)], page_size=page_size).assert_right()


@pytest.mark.parametrize("window", [0, 1, 200, SPLIT, SPLIT + 1])
def test_what_the_splits_write_is_what_is_joined(window: int) -> None:
    """vllm #47188: under a window the reducer read splits that nobody had written."""
    lengths = [0, 1, SPLIT, SPLIT + 1, 700, 3 * SPLIT]
    case = make_case([(1, n) for n in lengths], group=1, kind=AttentionKind(window=window))
    scratch = case.scratch()
    case.assert_right()
    case.attend(scratch=scratch)
    written = (~scratch.totals.view(len(lengths), scratch.splits).isnan()).sum(1).tolist()
    firsts = [max(0, n - window) if window else 0 for n in lengths]
    assert written == [-(-n // SPLIT) - first // SPLIT for n, first in zip(lengths, firsts, strict=True)]


@pytest.mark.parametrize("head_dim", [80, 96, 112])
@pytest.mark.parametrize("q_len", [1, 4])
def test_every_dimension_of_a_head_counts(head_dim: int, q_len: int) -> None:
    """vllm #4127, sglang #1281, triton #621: widths of no power of two failed, or lost their last dimensions."""
    case = make_case([(q_len, 30)], key_dim=head_dim)
    case.q[..., :-1] = 0  # the last dimension alone decides
    case.assert_right()
    [got] = case.attend()
    case.q[..., -1] *= -1
    assert not torch.equal(case.attend()[0], got)


def test_scratch_is_bounded_and_splits_grow_with_longer_sequences() -> None:
    """sglang: half a thousand splits took 4 GiB of scratch, and replayed graphs failed."""
    scratch = make_scratch(8, 4, 64, 1 << 20, CPU)
    assert scratch.splits == MOST_SPLITS and len(scratch.totals) == 8 * 4 * MOST_SPLITS
    case = make_case([(1, 3 * SPLIT + 1), (1, 2 * SPLIT), (1, 5 * SPLIT), (1, 9)])
    narrow = case.scratch(longest=2 * SPLIT)
    assert narrow.splits == 2
    for q, (k, v), got in zip(case.queries, case.alone, case.attend(scratch=narrow), strict=True):
        assert_near(got, naive_attention(q, k, v, PLAIN, None))


def test_sinks_may_be_left_out() -> None:
    """vllm #22368: a pointer that was None broke the launch."""
    without, with_sinks = (make_case([(1, 9), (3, 9)], sinks=sinks) for sinks in (False, True))
    without.assert_right()
    with_sinks.assert_right()
    assert not torch.equal(torch.cat(without.attend()), torch.cat(with_sinks.attend()))


def test_a_sink_of_minus_infinity_is_none() -> None:
    case = make_case([(1, 40), (5, 20), (1, 0), (3, 0)])
    wanted = case.attend()
    case.sinks = torch.full((2,), -torch.inf)
    assert all(map(torch.equal, case.attend(), wanted))
