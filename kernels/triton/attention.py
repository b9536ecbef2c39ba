"""Causal attention over paged keys and values (PagedAttention, Kwon et al. 2023) as Triton kernels, launched.

The arithmetic is that of the reference, kernels/paged_attention.py; all that a launch depends on is either a tensor on
the device or the same for every step of its shape, so that launches can be recorded once and played again.
"""

from dataclasses import dataclass, replace

import torch
import triton
from torch import Tensor

from ..paged_attention import PLAIN, AttentionKind
from .attention_decode import SPLIT, decode_kernel, reduce_kernel
from .attention_prefill import prefill_kernel
from .compat import LAUNCH_OPTIONS
from .configs import config_for
from .configs.attention import AttentionConfig
from .device import arch_of, multiprocessors

MOST_SPLITS = 64  # of a sequence: past 16,384 positions splits grow instead
SPLITS_JOINED = 16  # at once
LEAST_PROGRAMS = 4  # that share a long sequence's splits, however large the batch
PROGRAMS_A_PROCESSOR = 8  # that decodes are spread over at least, where there are as many splits


@dataclass(frozen=True, slots=True)
class Scratch:
    """Where decodes keep what their splits give, float32; one serves all layers, one launch after another.

    splits: how many a sequence is cut into at most: results depend on it, so all of an engine's steps use the same.
    """

    sums: Tensor  # [sequences * heads * splits * Dv]
    largest: Tensor  # [sequences * heads * splits]
    totals: Tensor  # [sequences * heads * splits]
    splits: int


@dataclass(frozen=True, slots=True)
class AttentionConfigs:
    """How both variants are launched."""

    decode: AttentionConfig
    prefill: AttentionConfig


@dataclass(frozen=True, slots=True)
class Operands:
    """What paged_attention was called with."""

    q: Tensor
    keys: Tensor
    values: Tensor
    page_tables: Tensor
    cu_q: Tensor
    kv_len: Tensor
    out: Tensor
    kind: AttentionKind
    sinks: Tensor | None

    @property
    def sequences(self) -> int:
        return len(self.kv_len)

    @property
    def heads(self) -> int:
        return self.q.shape[1]

    @property
    def kv_heads(self) -> int:
        return self.keys.shape[1]

    @property
    def longest(self) -> int:
        """How many positions the page tables have room for."""
        return self.page_tables.shape[1] * self.keys.shape[2]

    @property
    def scale(self) -> float:
        return float(self.q.shape[2] ** -0.5 if self.kind.scale is None else self.kind.scale)

    @property
    def some_sinks(self) -> Tensor:
        """A launch needs a pointer also where none is read."""
        return self.q if self.sinks is None else self.sinks

    def shape(self) -> dict[str, int]:
        """Both kernels' constants."""
        key_dim, value_dim = self.keys.shape[3], self.values.shape[3]
        return {
            "GROUP": self.heads // self.kv_heads,
            "KEY_DIM": key_dim,
            "VALUE_DIM": value_dim,
            "KEY_BLOCK": triton.next_power_of_2(key_dim),
            "VALUE_BLOCK": triton.next_power_of_2(value_dim),
            "PAGE_SIZE": self.keys.shape[2],
        }

    def check(self, scratch: Scratch) -> None:
        """Our own mistakes in shapes and dtypes, for which a kernel would read past memory."""
        q, keys, values, tables = self.q, self.keys, self.values, self.page_tables
        assert keys.shape[:3] == values.shape[:3] and keys.shape[3] == q.shape[2] and self.heads % self.kv_heads == 0
        assert self.out.shape == (*q.shape[:2], values.shape[3])
        assert q.dtype == keys.dtype == values.dtype
        assert tables.shape[0] == self.sequences and self.cu_q.shape == (self.sequences + 1,)
        assert tables.dtype == self.cu_q.dtype == self.kv_len.dtype == torch.int32
        assert all(each.stride(-1) == 1 for each in (q, keys, values, self.out, tables, self.cu_q, self.kv_len))
        parts = self.sequences * self.heads * scratch.splits
        assert len(scratch.largest) >= parts and len(scratch.sums) >= parts * values.shape[3], "scratch is too small"


def make_scratch(sequences: int, heads: int, value_dim: int, longest: int, device: torch.device) -> Scratch:
    """Room for up to `sequences` of up to `longest` positions; heads and value_dim are the most of any layer."""
    splits = min(MOST_SPLITS, triton.cdiv(longest, SPLIT))
    parts = sequences * heads * splits

    def room(size: int) -> Tensor:
        return torch.empty(size, dtype=torch.float32, device=device)

    return Scratch(room(parts * value_dim), room(parts), room(parts), splits)


def configs_for(q: Tensor, keys: Tensor, values: Tensor) -> AttentionConfigs:
    """What the tables say for tensors of paged_attention."""
    head_dim, group, arch = max(keys.shape[3], values.shape[3]), q.shape[1] // keys.shape[1], arch_of(q.device)
    configs = AttentionConfigs(
        config_for(arch, head_dim, group, "decode"), config_for(arch, head_dim, group, "prefill")
    )
    if q.element_size() > 2:  # the tables are for 16 bits: twice as wide tiles would not fit
        return AttentionConfigs(
            *(replace(each, block_n=each.block_n // 2) for each in (configs.decode, configs.prefill))
        )
    return configs


def paged_attention(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    page_tables: Tensor,
    cu_q: Tensor,
    kv_len: Tensor,
    out: Tensor,
    scratch: Scratch,
    *,
    only_decodes: bool,
    kind: AttentionKind = PLAIN,
    sinks: Tensor | None = None,
    configs: AttentionConfigs | None = None,
) -> Tensor:
    """q [T, heads, Dk] over keys [pages, kv_heads, page_size, Dk] and values [..., Dv] -> out [T, heads, Dv], returned.

    All in one 16-bit dtype, or in float32 for tests; any strides but 1 in the last dimension. Sequence s has the
    queries [cu_q[s], cu_q[s + 1]), which are the last of its kv_len[s] positions, all written already;
    page_tables [S, N], cu_q [S + 1] and kv_len [S] are int32. A query sees the positions up to its own; nothing else in
    its pages is read. Rows past cu_q[S] are left as they are, rows of a sequence without positions become zeros.

    only_decodes: promises that no sequence has two queries or more. Decodes are computed the same way in any batch.
    sinks [heads]: one more logit of each head's softmax, without a value. configs: instead of the tables'.
    """
    x = Operands(q, keys, values, page_tables, cu_q, kv_len, out, kind, sinks)
    x.check(scratch)
    configs = configs or configs_for(q, keys, values)
    if x.sequences:
        _decode(x, scratch, configs.decode)
        _reduce(x, scratch)
        if not only_decodes:
            _prefill(x, configs.prefill)
    return out


def _decode(x: Operands, scratch: Scratch, config: AttentionConfig) -> None:
    splits = min(scratch.splits, triton.cdiv(x.longest, SPLIT))
    programs = _programs(splits, x.sequences * x.kv_heads, x.q.device)
    decode_kernel[x.kv_heads, programs, x.sequences](
        x.q,
        x.keys,
        x.values,
        x.page_tables,
        x.cu_q,
        x.kv_len,
        scratch.sums,
        scratch.largest,
        scratch.totals,
        scratch.splits,
        x.page_tables.stride(0),
        x.scale,
        *x.q.stride()[:2],
        *x.keys.stride()[:3],
        *x.values.stride()[:3],
        **x.shape(),
        WINDOW=x.kind.window,
        SOFTCAP=x.kind.softcap,
        SPLIT=SPLIT,
        **_launch(config),
    )


def _reduce(x: Operands, scratch: Scratch) -> None:
    value_dim = x.values.shape[3]
    reduce_kernel[x.heads, x.sequences](
        scratch.sums,
        scratch.largest,
        scratch.totals,
        x.some_sinks,
        x.cu_q,
        x.kv_len,
        x.out,
        scratch.splits,
        *x.out.stride()[:2],
        VALUE_DIM=value_dim,
        VALUE_BLOCK=triton.next_power_of_2(value_dim),
        WINDOW=x.kind.window,
        SINKS=x.sinks is not None,
        SPLIT=SPLIT,
        BLOCK_SPLITS=SPLITS_JOINED,
        num_warps=8 if value_dim > 128 else 4,  # with 4, triton 3.7 spills on sm_80
        **LAUNCH_OPTIONS,
    )


def _prefill(x: Operands, config: AttentionConfig) -> None:
    queries = config.block_m // (x.heads // x.kv_heads)  # of a tile
    prefill_kernel[len(x.q) // queries + x.sequences, x.kv_heads](
        x.q,
        x.keys,
        x.values,
        x.page_tables,
        x.cu_q,
        x.kv_len,
        x.some_sinks,
        x.out,
        x.sequences,
        x.page_tables.stride(0),
        x.scale,
        *x.q.stride()[:2],
        *x.out.stride()[:2],
        *x.keys.stride()[:3],
        *x.values.stride()[:3],
        **x.shape(),
        WINDOW=x.kind.window,
        SOFTCAP=x.kind.softcap,
        SINKS=x.sinks is not None,
        **_launch(config),
    )


def _programs(splits: int, tiles: int, device: torch.device) -> int:
    """Into how many programs each sequence and kv head goes. No result depends on it."""
    wanted: int = triton.cdiv(PROGRAMS_A_PROCESSOR * multiprocessors(device), tiles)
    return min(splits, max(LEAST_PROGRAMS, wanted))


def _launch(config: AttentionConfig) -> dict[str, int]:
    return {
        "BLOCK_M": config.block_m,
        "BLOCK_N": config.block_n,
        "num_warps": config.num_warps,
        "num_stages": config.num_stages,
        **LAUNCH_OPTIONS,
    }
