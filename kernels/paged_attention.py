"""Causal attention over paged keys and values (PagedAttention, Kwon et al. 2023) in plain torch: the reference.

Keys and values lie as [pages, kv_heads, page_size, D], so that selecting (page, head) rows gives the operands of the
product without another copy. How a sequence is computed depends on its own length, never on its batch.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Bounds:
    """Where one sequence's queries lie: rows [q_start, q_start + q_len) are its last q_len of kv_len positions."""

    q_start: int
    q_len: int
    kv_len: int


@dataclass(frozen=True, slots=True)
class DecodeGroup:
    """Sequences with one query each whose page tables are padded to the same length N."""

    rows: Tensor  # [B] rows of q
    gather: Tensor  # [B * kv_heads * N] rows of the (page, head) view
    mask: Tensor  # [B, 1, 1, N * page_size], 0 or -inf


@dataclass(frozen=True, slots=True)
class PromptTask:
    """One sequence with several queries."""

    bounds: Bounds
    gather: Tensor  # [kv_heads * N]
    mask: Tensor | None  # [q_len, kv_len], 0 or -inf; None: no earlier positions, plain causal


@dataclass(frozen=True, slots=True)
class AttentionTasks:
    """What every layer of a step does alike, made once a step by `prepare`."""

    decodes: tuple[DecodeGroup, ...]
    prompts: tuple[PromptTask, ...]


def padded_pages(pages: int) -> int:
    """The page count a decode of `pages` is padded to: at most a quarter more, four sizes an octave."""
    step = 1 << max(0, pages.bit_length() - 3)
    return -(-pages // step) * step


def prepare(
    bounds: Sequence[Bounds], page_tables: Tensor, page_size: int, kv_heads: int, dtype: torch.dtype
) -> AttentionTasks:
    """Sort a step's sequences into tasks.

    page_tables: [S, N] int64, row s for bounds[s]; entries past a sequence's pages are never read. dtype: of q.
    """
    by_size: dict[int, list[int]] = defaultdict(list)
    prompts = []
    for index, item in enumerate(bounds):
        pages = -(-item.kv_len // page_size)
        if item.q_len == 1:
            by_size[padded_pages(pages)].append(index)
        else:
            gather = _gather_rows(page_tables[index : index + 1, :pages], kv_heads)
            prompts.append(PromptTask(item, gather, _causal_mask(item, page_tables.device, dtype)))
    groups = (
        _decode_group(bounds, members, size, page_tables, page_size, kv_heads, dtype)
        for size, members in by_size.items()
    )
    return AttentionTasks(tuple(groups), tuple(prompts))


def paged_attention(q: Tensor, keys: Tensor, values: Tensor, tasks: AttentionTasks) -> Tensor:
    """q [T, heads, D] over keys, values [pages, kv_heads, page_size, D] -> [T, heads, D].

    heads is a multiple of kv_heads. A query sees the positions up to its own, which must be written already; other
    slots of its pages and of the null page 0 may hold anything finite.
    """
    out = torch.empty_like(q)
    for group in tasks.decodes:
        out.index_copy_(0, group.rows, _decode(q.index_select(0, group.rows), keys, values, group))
    for task in tasks.prompts:
        rows = slice(task.bounds.q_start, task.bounds.q_start + task.bounds.q_len)
        out[rows] = _prompt(q[rows], keys, values, task)
    return out


def _decode(q: Tensor, keys: Tensor, values: Tensor, group: DecodeGroup) -> Tensor:
    """One query a sequence, q [B, heads, D]: the query heads of a kv head stand where queries usually do."""
    batch, heads, head_dim = q.shape
    kv_heads = keys.shape[1]
    out = F.scaled_dot_product_attention(
        q.reshape(batch, kv_heads, heads // kv_heads, head_dim),
        _select(keys, group.gather, batch),
        _select(values, group.gather, batch),
        attn_mask=group.mask,
    )
    return out.reshape(batch, heads, head_dim)


def _prompt(q: Tensor, keys: Tensor, values: Tensor, task: PromptTask) -> Tensor:
    """Several queries of one sequence, q [q_len, heads, D]."""
    length = task.bounds.kv_len
    out = F.scaled_dot_product_attention(
        q.transpose(0, 1).unsqueeze(0),  # [1, heads, q_len, D]
        _select(keys, task.gather, 1)[:, :, :length],
        _select(values, task.gather, 1)[:, :, :length],
        attn_mask=task.mask,
        is_causal=task.mask is None,
        enable_gqa=True,
    )
    return out.squeeze(0).transpose(0, 1)


def _select(cache: Tensor, gather: Tensor, batch: int) -> Tensor:
    """The positions of some sequences: [batch, kv_heads, N * page_size, D]."""
    pages, kv_heads, page_size, head_dim = cache.shape
    chosen = cache.view(pages * kv_heads, page_size * head_dim).index_select(0, gather)
    return chosen.view(batch, kv_heads, -1, head_dim)


def _gather_rows(tables: Tensor, kv_heads: int) -> Tensor:
    """Page tables [B, N] -> rows of the (page, head) view in the order (sequence, head, page)."""
    heads = torch.arange(kv_heads, device=tables.device)
    return (tables[:, None, :] * kv_heads + heads[None, :, None]).reshape(-1)


def _decode_group(
    bounds: Sequence[Bounds],
    members: Sequence[int],
    size: int,
    page_tables: Tensor,
    page_size: int,
    kv_heads: int,
    dtype: torch.dtype,
) -> DecodeGroup:
    device = page_tables.device
    lengths = torch.tensor([bounds[i].kv_len for i in members], device=device)
    tables = page_tables.new_zeros(len(members), size)
    width = min(size, page_tables.shape[1])
    tables[:, :width] = page_tables[torch.tensor(members, device=device), :width]
    used = torch.arange(size, device=device) * page_size < lengths[:, None]
    seen = torch.arange(size * page_size, device=device) < lengths[:, None]  # [B, size * page_size]
    return DecodeGroup(
        rows=torch.tensor([bounds[i].q_start for i in members], device=device),
        gather=_gather_rows(tables * used, kv_heads),
        mask=_additive(seen, dtype)[:, None, None, :],
    )


def _causal_mask(bounds: Bounds, device: torch.device, dtype: torch.dtype) -> Tensor | None:
    if bounds.q_len == bounds.kv_len:
        return None
    first = bounds.kv_len - bounds.q_len
    queries = torch.arange(first, bounds.kv_len, device=device)
    return _additive(torch.arange(bounds.kv_len, device=device) <= queries[:, None], dtype)


def _additive(seen: Tensor, dtype: torch.dtype) -> Tensor:
    return torch.zeros(seen.shape, dtype=dtype, device=seen.device).masked_fill_(~seen, float("-inf"))
