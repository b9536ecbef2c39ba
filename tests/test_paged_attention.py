"""Paged attention against float64 loops over the positions of each sequence alone, in every kind of attention."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fairstep.kernels.attention_tasks import Bounds, LayerView, prepare
from fairstep.kernels.kv_write import kv_write
from fairstep.kernels.paged_attention import PLAIN, AttentionKind, needs_masks, paged_attention
from naive_attention import naive_attention

POOL = 64  # pages, the null page among them


@dataclass
class Case:
    """Sequences in a pool of shuffled pages whose unused slots hold large finite garbage."""

    q: Tensor
    keys: Tensor
    values: Tensor
    tables: Tensor
    bounds: list[Bounds]
    alone: list[tuple[Tensor, Tensor]]  # each sequence's keys and values, [kv_len, kv_heads, D]
    kind: AttentionKind = PLAIN
    sinks: Tensor | None = None

    def attend(self, members: list[int] | None = None) -> list[Tensor]:
        """What paged_attention gives for each sequence of a batch of `members`, in their order."""
        members = list(range(len(self.bounds))) if members is None else members
        q = torch.cat([self.rows(self.q, m) for m in members])
        bounds, row = [], 0
        for m in members:
            bounds.append(Bounds(row, self.bounds[m].q_len, self.bounds[m].kv_len))
            row += self.bounds[m].q_len
        kv_heads, page_size = self.keys.shape[1:3]
        view = LayerView(page_size, kv_heads, q.dtype, self.kind.window, needs_masks(self.kind, self.sinks))
        tasks = prepare(bounds, self.tables[members], view)
        out = paged_attention(q, self.keys, self.values, tasks, self.kind, self.sinks)
        return [out[b.q_start : b.q_start + b.q_len] for b in bounds]

    def rows(self, x: Tensor, member: int) -> Tensor:
        return x[self.bounds[member].q_start :][: self.bounds[member].q_len]


def make_case(
    lengths: list[tuple[int, int]],
    *,
    page_size: int = 8,
    kv_heads: int = 2,
    group: int = 2,
    key_dim: int = 32,
    value_dim: int | None = None,
    dtype: torch.dtype = torch.float32,
    garbage: float = 1e4,
    kind: AttentionKind = PLAIN,
    sinks: bool = False,
) -> Case:
    """`lengths`: (q_len, kv_len) of each sequence."""
    random = torch.Generator().manual_seed(0)
    value_dim = value_dim or key_dim

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=random).to(dtype)

    needed = [-(-kv_len // page_size) for _, kv_len in lengths]
    pool = max(POOL, sum(needed) + 1)
    keys = torch.full((pool, kv_heads, page_size, key_dim), garbage, dtype=dtype)
    values = torch.full((pool, kv_heads, page_size, value_dim), -garbage, dtype=dtype)
    free = (torch.randperm(pool - 1, generator=random) + 1).tolist()
    tables = torch.zeros(len(lengths), max(needed), dtype=torch.int64)
    bounds, alone, row = [], [], 0
    for index, (q_len, kv_len) in enumerate(lengths):
        pages = torch.tensor([free.pop() for _ in range(needed[index])])
        tables[index, : needed[index]] = pages
        positions = torch.arange(kv_len)
        k, v = normal(kv_len, kv_heads, key_dim), normal(kv_len, kv_heads, value_dim)
        kv_write(keys, values, k, v, pages[positions // page_size], positions % page_size)
        bounds.append(Bounds(row, q_len, kv_len))
        alone.append((k, v))
        row += q_len
    q = normal(row, kv_heads * group, key_dim)
    return Case(q, keys, values, tables, bounds, alone, kind, 2 * normal(kv_heads * group) if sinks else None)


def assert_right(case: Case, tolerance: float = 2e-6) -> None:
    for member, got in enumerate(case.attend()):
        want = naive_attention(case.rows(case.q, member), *case.alone[member], case.kind, case.sinks)
        torch.testing.assert_close(got.double(), want, atol=tolerance, rtol=tolerance)


EDGES = [1, 2, 7, 8, 9, 15, 16, 17, 63, 64, 65, 130]
MIXED = [(1, 5), (1, 40), (1, 1), (9, 9), (1, 41), (3, 20), (1, 8), (17, 40), (40, 40)]
WINDOWS = [1, 2, 7, 8, 9, 16, 17, 39, 40, 41, 1000]


@pytest.mark.parametrize("page_size", [8, 16, 64])
@pytest.mark.parametrize("group", [1, 3, 4])
def test_decodes_at_page_edges(page_size: int, group: int) -> None:
    assert_right(make_case([(1, n) for n in EDGES], page_size=page_size, group=group))


@pytest.mark.parametrize("page_size", [8, 16, 64])
@pytest.mark.parametrize("group", [1, 3])
def test_prompts_at_page_edges(page_size: int, group: int) -> None:
    whole = [(n, n) for n in EDGES if 1 < n < 70]
    later = [(2, 3), (5, 8), (5, 9), (7, 16), (8, 65), (63, 130)]
    assert_right(make_case(whole + later, page_size=page_size, group=group))


@pytest.mark.parametrize("head_dim", [32, 64, 80])
@pytest.mark.parametrize("kv_heads", [1, 3])
def test_mixed_batches(head_dim: int, kv_heads: int) -> None:
    assert_right(make_case(MIXED, key_dim=head_dim, kv_heads=kv_heads))


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("page_size", [1, 8, 16])
def test_windows_at_their_edges(window: int, page_size: int) -> None:
    assert_right(make_case(MIXED, page_size=page_size, kind=AttentionKind(window=window)))


@pytest.mark.parametrize("softcap", [0.0, 1.5])
@pytest.mark.parametrize("sinks", [False, True])
@pytest.mark.parametrize("window", [0, 10])
def test_prompts_longer_than_a_block_of_queries(softcap: float, sinks: bool, window: int) -> None:
    kind = AttentionKind(window=window, softcap=softcap)
    assert_right(make_case([(130, 140), (257, 257), (1, 90)], kv_heads=1, key_dim=8, kind=kind, sinks=sinks))


@st.composite
def kinds(draw: st.DrawFn) -> AttentionKind:
    window = draw(st.sampled_from([0, 0, *WINDOWS]))
    return AttentionKind(window, draw(st.sampled_from([None, 0.05, 1.0])), draw(st.sampled_from([0.0, 0.7, 50.0])))


@st.composite
def batches(draw: st.DrawFn) -> list[tuple[int, int]]:
    ends = draw(st.lists(st.integers(1, 45), min_size=1, max_size=5))
    return [(draw(st.one_of(st.just(1), st.integers(1, end))), end) for end in ends]


@settings(max_examples=120)
@given(
    lengths=batches(),
    kind=kinds(),
    sinks=st.booleans(),
    page_size=st.sampled_from([1, 4, 16]),
    heads=st.sampled_from([(1, 1), (2, 3), (3, 1)]),
    dims=st.sampled_from([(16, 16), (16, 24), (24, 16), (5, 3)]),
)
def test_any_batch_in_any_kind(
    lengths: list[tuple[int, int]],
    kind: AttentionKind,
    sinks: bool,
    page_size: int,
    heads: tuple[int, int],
    dims: tuple[int, int],
) -> None:
    case = make_case(
        lengths,
        page_size=page_size,
        kv_heads=heads[0],
        group=heads[1],
        key_dim=dims[0],
        value_dim=dims[1],
        kind=kind,
        sinks=sinks,
    )
    assert_right(case, tolerance=5e-6)


@pytest.mark.parametrize("kind", [PLAIN, AttentionKind(30), AttentionKind(softcap=5.0)])
@pytest.mark.parametrize("sinks", [False, True])
def test_bfloat16_stays_within_its_rounding(kind: AttentionKind, sinks: bool) -> None:
    lengths = [(1, 100), (50, 100), (30, 30)]
    assert_right(make_case(lengths, dtype=torch.bfloat16, garbage=100.0, kind=kind, sinks=sinks), tolerance=0.02)


def test_a_softcap_holds_however_large_the_products_are() -> None:
    case = make_case([(1, 20), (9, 9)], kind=AttentionKind(scale=1e6, softcap=3.0))
    assert_right(case)
    assert all(out.isfinite().all() for out in case.attend())


KINDS = [
    PLAIN,
    AttentionKind(window=8),
    AttentionKind(window=13, scale=0.3),
    AttentionKind(softcap=2.0),
    AttentionKind(window=20, softcap=2.0),
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sinks", [False, True])
def test_garbage_in_unused_slots_changes_nothing(kind: AttentionKind, sinks: bool) -> None:
    lengths = [(1, 3), (1, 90), (6, 11), (4, 4)]
    quiet, loud = (make_case(lengths, garbage=value, kind=kind, sinks=sinks) for value in (0.0, 1e30))
    for a, b in zip(quiet.attend(), loud.attend(), strict=True):
        assert torch.equal(a, b)


@pytest.fixture
def one_thread() -> Iterator[None]:
    """For what must be equal to the last bit: torch's float32 kernel rounds by where a thread's buffer lies."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sinks", [False, True])
@pytest.mark.parametrize("value_dim", [32, 48])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_sequence_does_not_depend_on_its_batch(
    kind: AttentionKind, sinks: bool, value_dim: int, dtype: torch.dtype
) -> None:
    lengths = [(1, n) for n in EDGES] + [(6, 20), (12, 12)]
    case = make_case(lengths, value_dim=value_dim, dtype=dtype, garbage=100.0, kind=kind, sinks=sinks)
    together = case.attend()
    for member, got in enumerate(together):
        assert torch.equal(case.attend([member])[0], got)


@pytest.mark.parametrize("q_len", [1, 4])
def test_pages_before_the_window_are_not_read(q_len: int) -> None:
    case = make_case([(q_len, 60)], kind=AttentionKind(window=10))
    want = case.attend()
    seen = (60 - q_len + 1 - 10) // 8  # the first page that the window of the first query reaches
    case.keys[case.tables[0, :seen]] = torch.nan
    case.values[case.tables[0, :seen]] = torch.nan
    assert torch.equal(case.attend()[0], want[0])
    case.values[case.tables[0, seen]] = torch.nan
    assert case.attend()[0].isnan().any()
