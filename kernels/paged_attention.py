"""Causal attention over paged keys and values (PagedAttention, Kwon et al. 2023) in plain torch: the reference.

Keys and values lie as [pages, kv_heads, page_size, D], so that selecting (page, head) rows gives the operands of the
product without another copy. What a step's layers do alike is made by attention_tasks.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from .attention_tasks import AttentionTasks, DecodeGroup, PromptTask

QUERY_BLOCK = 128  # queries of a prompt whose scores are held at once where torch has no operation of its own


@dataclass(frozen=True, slots=True)
class AttentionKind:
    """How a layer attends.

    window: how many positions a query sees, itself included; 0 all. scale: of the products; None is Dk ** -0.5.
    softcap: scaled products x become softcap * tanh(x / softcap) (Gemma 2); 0 off.
    """

    window: int = 0
    scale: float | None = None
    softcap: float = 0.0


PLAIN = AttentionKind()


def needs_masks(kind: AttentionKind, sinks: Tensor | None) -> bool:
    """Whether torch has no operation for it, so that it is computed step by step: its tasks are made with masks."""
    return kind.softcap != 0 or sinks is not None


def paged_attention(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    tasks: AttentionTasks,
    kind: AttentionKind = PLAIN,
    sinks: Tensor | None = None,
) -> Tensor:
    """q [T, heads, Dk] over keys [pages, kv_heads, page_size, Dk] and values [..., Dv] -> [T, heads, Dv].

    heads is a multiple of kv_heads. A query sees the positions up to its own, which must be written already; other
    slots of its pages and of the null page 0 may hold anything finite. `tasks` are made for kind.window and, where
    needs_masks says so, with always_masks. sinks [heads]: one more logit of each head's softmax, without a value
    (gpt-oss).
    """
    out = q.new_empty(*q.shape[:2], values.shape[-1])
    for group in tasks.decodes:
        out.index_copy_(0, group.rows, _decode(q.index_select(0, group.rows), keys, values, group, kind, sinks))
    for task in tasks.prompts:
        out[task.rows] = _prompt(q[task.rows], keys, values, task, kind, sinks)
    return out


def _decode(
    q: Tensor, keys: Tensor, values: Tensor, group: DecodeGroup, kind: AttentionKind, sinks: Tensor | None
) -> Tensor:
    """One query a sequence, q [B, heads, Dk]: the query heads of a kv head stand where queries usually do."""
    batch, heads, head_dim = q.shape
    kv_heads = keys.shape[1]
    grouped = q.reshape(batch, kv_heads, heads // kv_heads, head_dim)
    k, v = _select(keys, group.gather, batch), _select(values, group.gather, batch)
    if needs_masks(kind, sinks):
        out = _explicit(grouped, k, v, group.mask, kind, sinks)
    else:
        out = F.scaled_dot_product_attention(grouped, k, v, attn_mask=group.mask, scale=kind.scale)
    return out.reshape(batch, heads, -1)


def _prompt(
    q: Tensor, keys: Tensor, values: Tensor, task: PromptTask, kind: AttentionKind, sinks: Tensor | None
) -> Tensor:
    """Several queries of one sequence, q [q_len, heads, Dk]."""
    k = _select(keys, task.gather, 1)[:, :, : task.keys]
    v = _select(values, task.gather, 1)[:, :, : task.keys]
    if needs_masks(kind, sinks):
        return _blocks(q, k, v, task, kind, sinks)
    out = F.scaled_dot_product_attention(
        q.transpose(0, 1).unsqueeze(0),  # [1, heads, q_len, Dk]
        k,
        v,
        attn_mask=task.mask,
        is_causal=task.mask is None,
        scale=kind.scale,
        enable_gqa=True,
    )
    return out.squeeze(0).transpose(0, 1)


def _blocks(q: Tensor, k: Tensor, v: Tensor, task: PromptTask, kind: AttentionKind, sinks: Tensor | None) -> Tensor:
    """_explicit for a prompt's queries, some at a time: q [q_len, heads, Dk] -> [q_len, heads, Dv]."""
    assert task.mask is not None, "these tasks were made without masks"
    heads, kv_heads = q.shape[1], k.shape[1]
    outs = []
    for some, mask in zip(q.split(QUERY_BLOCK), task.mask.split(QUERY_BLOCK), strict=True):
        grouped = some.transpose(0, 1).reshape(1, kv_heads, -1, q.shape[-1])  # [1, kv_heads, group * block, Dk]
        out = _explicit(grouped, k, v, mask.repeat(heads // kv_heads, 1), kind, sinks)
        outs.append(out.view(heads, len(some), -1).transpose(0, 1))
    return torch.cat(outs)


def _explicit(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, kind: AttentionKind, sinks: Tensor | None) -> Tensor:
    """Step by step in float32: q [B, kv_heads, Q, Dk], a kv head's query heads one after the other in Q; k and v
    [B, kv_heads, K, D], mask broadcast to [B, kv_heads, Q, K]."""
    scores = q.to(torch.float32) @ k.to(torch.float32).transpose(-1, -2)
    scores *= q.shape[-1] ** -0.5 if kind.scale is None else kind.scale
    if kind.softcap:
        scores.div_(kind.softcap).tanh_().mul_(kind.softcap)
    scores += mask
    if sinks is not None:
        queries = q.shape[1] * q.shape[2] // len(sinks)  # of a head
        column = sinks.to(torch.float32).repeat_interleave(queries).view(1, q.shape[1], -1, 1)
        scores = torch.cat((scores, column.expand(len(q), -1, -1, -1)), dim=-1)
    weights = scores.softmax(dim=-1)[..., : k.shape[2]]
    return (weights @ v.to(torch.float32)).to(q.dtype)


def _select(cache: Tensor, gather: Tensor, batch: int) -> Tensor:
    """The positions of some sequences: [batch, kv_heads, N * page_size, D]."""
    pages, kv_heads, page_size, head_dim = cache.shape
    chosen = cache.view(pages * kv_heads, page_size * head_dim).index_select(0, gather)
    return chosen.view(batch, kv_heads, -1, head_dim)
