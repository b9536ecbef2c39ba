"""Paged attention against a plain float64 computation over each sequence alone."""

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from fairstep.kernels.kv_write import kv_write
from fairstep.kernels.paged_attention import Bounds, padded_pages, paged_attention, prepare

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

    def attend(self, members: list[int] | None = None) -> list[Tensor]:
        """What paged_attention gives for each sequence of a batch of `members`, in their order."""
        members = list(range(len(self.bounds))) if members is None else members
        q = torch.cat([self.rows(self.q, m) for m in members])
        bounds, row = [], 0
        for m in members:
            bounds.append(Bounds(row, self.bounds[m].q_len, self.bounds[m].kv_len))
            row += self.bounds[m].q_len
        tasks = prepare(bounds, self.tables[members], self.keys.shape[2], self.keys.shape[1], q.dtype)
        out = paged_attention(q, self.keys, self.values, tasks)
        return [out[b.q_start : b.q_start + b.q_len] for b in bounds]

    def rows(self, x: Tensor, member: int) -> Tensor:
        return x[self.bounds[member].q_start :][: self.bounds[member].q_len]


def make_case(
    lengths: list[tuple[int, int]],
    *,
    page_size: int = 8,
    kv_heads: int = 2,
    group: int = 2,
    head_dim: int = 32,
    dtype: torch.dtype = torch.float32,
    garbage: float = 1e4,
) -> Case:
    """`lengths`: (q_len, kv_len) of each sequence."""
    random = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=random).to(dtype)

    needed = [-(-kv_len // page_size) for _, kv_len in lengths]
    pool = max(POOL, sum(needed) + 1)
    keys = torch.full((pool, kv_heads, page_size, head_dim), garbage, dtype=dtype)
    values = torch.full_like(keys, -garbage)
    free = (torch.randperm(pool - 1, generator=random) + 1).tolist()
    tables = torch.zeros(len(lengths), max(needed), dtype=torch.int64)
    bounds, alone, row = [], [], 0
    for index, (q_len, kv_len) in enumerate(lengths):
        pages = torch.tensor([free.pop() for _ in range(needed[index])])
        tables[index, : needed[index]] = pages
        positions = torch.arange(kv_len)
        k, v = normal(kv_len, kv_heads, head_dim), normal(kv_len, kv_heads, head_dim)
        kv_write(keys, values, k, v, pages[positions // page_size], positions % page_size)
        bounds.append(Bounds(row, q_len, kv_len))
        alone.append((k, v))
        row += q_len
    return Case(normal(row, kv_heads * group, head_dim), keys, values, tables, bounds, alone)


def naive(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """q [q_len, heads, D] are the last positions of k, v [kv_len, kv_heads, D]; everything in float64."""
    q, k, v = q.double(), k.double(), v.double()
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
    scores = torch.einsum("qhd,khd->hqk", q, k) / q.shape[-1] ** 0.5
    first = k.shape[0] - q.shape[0]
    later = torch.arange(k.shape[0]) > torch.arange(first, k.shape[0])[:, None]
    return torch.einsum("hqk,khd->qhd", scores.masked_fill(later, -torch.inf).softmax(-1), v)


def assert_right(case: Case, tolerance: float = 2e-6) -> None:
    for member, got in enumerate(case.attend()):
        want = naive(case.rows(case.q, member), *case.alone[member])
        torch.testing.assert_close(got.double(), want, atol=tolerance, rtol=tolerance)


EDGES = [1, 2, 7, 8, 9, 15, 16, 17, 63, 64, 65, 130]


@pytest.mark.parametrize("page_size", [8, 16, 64])
@pytest.mark.parametrize("group", [1, 3, 4])
def test_decodes_at_page_edges(page_size: int, group: int) -> None:
    assert_right(make_case([(1, n) for n in EDGES], page_size=page_size, group=group))


@pytest.mark.parametrize("page_size", [8, 16, 64])
@pytest.mark.parametrize("group", [1, 3, 4])
def test_prompts_at_page_edges(page_size: int, group: int) -> None:
    whole = [(n, n) for n in EDGES if n > 1]
    later = [(2, 3), (5, 8), (5, 9), (7, 16), (8, 65), (63, 130)]
    assert_right(make_case(whole + later, page_size=page_size, group=group))


@pytest.mark.parametrize("head_dim", [32, 64, 80])
@pytest.mark.parametrize("kv_heads", [1, 3])
def test_mixed_batches(head_dim: int, kv_heads: int) -> None:
    lengths = [(1, 5), (1, 40), (1, 1), (9, 9), (1, 41), (3, 20), (1, 8)]
    assert_right(make_case(lengths, head_dim=head_dim, kv_heads=kv_heads))


def test_bfloat16_stays_within_its_rounding() -> None:
    assert_right(make_case([(1, 100), (50, 100), (30, 30)], dtype=torch.bfloat16, garbage=100.0), tolerance=0.02)


def test_garbage_in_unused_slots_changes_nothing() -> None:
    lengths = [(1, 3), (1, 90), (6, 11), (4, 4)]
    quiet, loud = make_case(lengths, garbage=0.0), make_case(lengths, garbage=1e30)
    for a, b in zip(quiet.attend(), loud.attend(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_sequence_does_not_depend_on_its_batch(dtype: torch.dtype) -> None:
    case = make_case([(1, n) for n in EDGES] + [(6, 20), (12, 12)], dtype=dtype, garbage=100.0)
    together = case.attend()
    for member, got in enumerate(together):
        assert torch.equal(case.attend([member])[0], got)


def test_a_padded_page_table_is_at_most_a_quarter_longer() -> None:
    for pages in range(1, 3000):
        assert pages <= padded_pages(pages) <= pages * 1.25


def test_padding_is_the_null_page_whatever_the_table_holds_past_the_end() -> None:
    case = make_case([(1, 9 * 8), (1, 5)])  # 9 pages are padded to 10
    padded = torch.cat([case.tables, torch.full((2, 5), POOL - 1)], dim=1)
    tasks = prepare(case.bounds, padded, 8, 2, case.q.dtype)
    pages = tasks.decodes[0].gather.view(1, 2, -1) // 2
    assert pages.shape[-1] == 10
    assert pages[0, 0].tolist() == [*case.tables[0].tolist(), 0]
