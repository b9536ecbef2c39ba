"""Paged attention as the interpreter runs it, against float64 loops over each sequence alone."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attention_case import make_case
from fairstep.kernels.paged_attention import PLAIN, AttentionKind
from fairstep.kernels.triton.attention import SPLIT, AttentionConfigs
from fairstep.kernels.triton.configs.attention import AttentionConfig
from near import DTYPES

MIXED = [(1, 5), (9, 9), (1, 0), (1, 300), (3, 20), (1, 1), (17, 90), (2, 0)]
SMALL_TILES = AttentionConfigs(AttentionConfig(16, 16, 4, 1), AttentionConfig(16, 16, 4, 1))


@pytest.mark.parametrize("page_size", [16, 24, 64])
def test_decodes_at_the_edges_of_pages_and_splits(page_size: int) -> None:
    edges = [0, 1, page_size - 1, page_size, page_size + 1, SPLIT - 1, SPLIT, SPLIT + 1, 3 * SPLIT + 1]
    make_case([(1, n) for n in edges], page_size=page_size).assert_right()


@pytest.mark.parametrize("page_size", [16, 24, 64])
def test_chunks_at_the_edges_of_pages(page_size: int) -> None:
    ends = [2, page_size - 1, page_size, page_size + 1, 2 * page_size]
    lengths = [(n, n) for n in ends] + [(2, n) for n in ends] + [(page_size, 3 * page_size - 1)]
    make_case(lengths, page_size=page_size).assert_right()


@pytest.mark.parametrize("q_len", [1, 2, 15, 16, 17, 31, 32, 33])
def test_chunks_at_the_edges_of_tiles(q_len: int) -> None:
    make_case([(q_len, q_len + 40), (2, 50), (q_len, q_len)], group=1).assert_right()


@pytest.mark.parametrize("group", [1, 3, 4, 8, 16, 20])
def test_every_group_of_query_heads(group: int) -> None:
    make_case(MIXED, group=group, kv_heads=2 if group < 4 else 1).assert_right()


@pytest.mark.parametrize("head_dim", [32, 64, 80, 96, 112, 128, 256])
def test_every_width_of_heads(head_dim: int) -> None:
    make_case(MIXED, key_dim=head_dim).assert_right()


@pytest.mark.parametrize("widths", [(64, 128), (96, 64), (192, 128)])
def test_keys_and_values_may_differ_in_width(widths: tuple[int, int]) -> None:
    make_case(MIXED, key_dim=widths[0], value_dim=widths[1]).assert_right()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", [PLAIN, AttentionKind(window=20, softcap=30.0)])
def test_every_dtype_keeps_to_its_tolerance(dtype: torch.dtype, kind: AttentionKind) -> None:
    for head_dim in (64, 80):
        make_case(MIXED, dtype=dtype, key_dim=head_dim, kind=kind, sinks=kind.window > 0).assert_right()


@pytest.mark.parametrize("window", [1, 2, 15, 16, 17, 31, 32, 33, SPLIT - 1, SPLIT, SPLIT + 1])
def test_windows_at_the_edges_of_pages_and_splits(window: int) -> None:
    lengths = [(1, window), (1, window + 1), (1, SPLIT + window), (3, 34), (18, window + 17), (1, 2 * SPLIT + 5)]
    lengths = [(min(q_len, kv_len), kv_len) for q_len, kv_len in lengths]
    make_case(lengths, kind=AttentionKind(window=window)).assert_right(SMALL_TILES if window < 64 else None)


@pytest.mark.parametrize("softcap", [0.0, 0.5, 50.0])
@pytest.mark.parametrize("sinks", [False, True])
@pytest.mark.parametrize("scale", [None, 0.02])
def test_every_kind(softcap: float, sinks: bool, scale: float | None) -> None:
    make_case(MIXED, kind=AttentionKind(scale=scale, softcap=softcap), sinks=sinks).assert_right()


@pytest.mark.parametrize("slots_first", [False, True])
@pytest.mark.parametrize("page_size", [1, 16])
def test_memory_may_have_any_order_within_a_page(slots_first: bool, page_size: int) -> None:
    lengths = [(1, 40), (7, 30)]
    make_case(lengths, page_size=page_size, kv_heads=3, group=1, slots_first=slots_first).assert_right()


@st.composite
def batches(draw: st.DrawFn) -> list[tuple[int, int]]:
    ends = draw(st.lists(st.integers(1, 70), min_size=1, max_size=4))
    return [(draw(st.one_of(st.just(1), st.integers(1, end))), end) for end in ends]


@settings(max_examples=30)
@given(
    lengths=batches(),
    kind=st.builds(AttentionKind, st.sampled_from([0, 0, 1, 7, 40]), st.none(), st.sampled_from([0.0, 3.0])),
    sinks=st.booleans(),
    page_size=st.sampled_from([1, 8, 12]),
    heads=st.sampled_from([(1, 1), (2, 3), (1, 6)]),
    widths=st.sampled_from([(16, 16), (16, 24), (24, 16)]),
    tile=st.sampled_from([16, 32]),
)
def test_any_batch_in_any_kind(
    lengths: list[tuple[int, int]],
    kind: AttentionKind,
    sinks: bool,
    page_size: int,
    heads: tuple[int, int],
    widths: tuple[int, int],
    tile: int,
) -> None:
    case = make_case(
        lengths,
        page_size=page_size,
        kv_heads=heads[0],
        group=heads[1],
        key_dim=widths[0],
        value_dim=widths[1],
        kind=kind,
        sinks=sinks,
    )
    case.assert_right(AttentionConfigs(AttentionConfig(16, tile, 4, 1), AttentionConfig(tile, tile, 4, 1)))
