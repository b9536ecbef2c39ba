"""Batches for paged attention, in memory where all that no sequence owns is NaN, beside each sequence on its own."""

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from fairstep.kernels.paged_attention import PLAIN, AttentionKind
from fairstep.kernels.triton.attention import AttentionConfigs, Scratch, make_scratch, paged_attention
from naive_attention import naive_attention
from near import assert_near

CPU = torch.device("cpu")
LONGEST = 2048  # positions that scratch is made for


@dataclass
class Case:
    """S sequences; the padded ones among them own no page."""

    lengths: list[tuple[int, int]]  # q_len and kv_len of each
    q: Tensor
    keys: Tensor
    values: Tensor
    page_tables: Tensor
    alone: list[tuple[Tensor, Tensor]]  # each sequence's keys and values, [kv_len, kv_heads, D]
    kind: AttentionKind
    sinks: Tensor | None
    queries: list[Tensor] = field(init=False)  # each sequence's rows of q

    def __post_init__(self) -> None:
        self.queries = list(self.q.split([q_len for q_len, _ in self.lengths]))

    def attend(self, configs: AttentionConfigs | None = None, scratch: Scratch | None = None) -> list[Tensor]:
        """What each sequence gets; scratch and out are full of NaN before."""
        q_lens = torch.tensor([0, *(q_len for q_len, _ in self.lengths)])
        out = torch.full((*self.q.shape[:2], self.values.shape[3]), torch.nan, dtype=self.q.dtype)
        paged_attention(
            self.q,
            self.keys,
            self.values,
            self.page_tables,
            q_lens.cumsum(0).to(torch.int32),
            torch.tensor([kv_len for _, kv_len in self.lengths], dtype=torch.int32),
            out,
            scratch or self.scratch(),
            only_decodes=all(q_len <= 1 for q_len, _ in self.lengths),
            kind=self.kind,
            sinks=self.sinks,
            configs=configs,
        )
        return list(out.split(q_lens[1:].tolist()))

    def scratch(self, longest: int = LONGEST) -> Scratch:
        scratch = make_scratch(len(self.lengths), self.q.shape[1], self.values.shape[3], longest, CPU)
        for part in (scratch.sums, scratch.largest, scratch.totals):
            part.fill_(torch.nan)
        return scratch

    def only(self, members: list[int], *, columns: int | None = None) -> "Case":
        """The same memory with some of the sequences, in the order given. columns: of the page tables."""
        return replace(
            self,
            lengths=[self.lengths[m] for m in members],
            q=torch.cat([self.queries[m] for m in members]),
            page_tables=self.page_tables[members, :columns].contiguous(),
            alone=[self.alone[m] for m in members],
        )

    def assert_right(self, configs: AttentionConfigs | None = None) -> None:
        for q, (k, v), got in zip(self.queries, self.alone, self.attend(configs), strict=True):
            if len(k):
                assert_near(got, naive_attention(q, k, v, self.kind, self.sinks))
            else:
                assert not got.any()  # NaN is true


def make_case(
    lengths: list[tuple[int, int]],
    *,
    page_size: int = 16,
    kv_heads: int = 1,
    group: int = 2,
    key_dim: int = 64,
    value_dim: int | None = None,
    dtype: torch.dtype = torch.float32,
    kind: AttentionKind = PLAIN,
    sinks: bool = False,
    slots_first: bool = False,
) -> Case:
    """slots_first: memory with a slot's heads side by side instead of a head's slots."""
    random = torch.Generator().manual_seed(0)
    value_dim = value_dim or key_dim

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=random).to(dtype)

    def memory(dim: int) -> Tensor:
        shape = (pool, page_size, kv_heads, dim) if slots_first else (pool, kv_heads, page_size, dim)
        empty = torch.full(shape, torch.nan, dtype=dtype)
        return empty.transpose(1, 2) if slots_first else empty

    needed = [-(-kv_len // page_size) for _, kv_len in lengths]
    pool = sum(needed) + 5
    keys, values = memory(key_dim), memory(value_dim)
    free = (torch.randperm(pool - 1, generator=random) + 1).tolist()
    tables = torch.zeros(len(lengths), max(*needed, 1), dtype=torch.int32)
    alone = []
    for row, (_, kv_len) in enumerate(lengths):
        pages = torch.tensor([free.pop() for _ in range(needed[row])], dtype=torch.int64)
        tables[row, : len(pages)] = pages
        positions = torch.arange(kv_len)
        k, v = normal(kv_len, kv_heads, key_dim), normal(kv_len, kv_heads, value_dim)
        keys[pages[positions // page_size], :, positions % page_size] = k
        values[pages[positions // page_size], :, positions % page_size] = v
        alone.append((k, v))
    heads = kv_heads * group
    q = normal(sum(q_len for q_len, _ in lengths), heads, key_dim)
    return Case(lengths, q, keys, values, tables, alone, kind, 2 * normal(heads) if sinks else None)
