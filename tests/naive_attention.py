"""Attention as its definition says it: one query and one head after the other in float64, over one sequence."""

import math

import torch
from torch import Tensor

from fairstep.kernels.paged_attention import AttentionKind


def naive_attention(q: Tensor, k: Tensor, v: Tensor, kind: AttentionKind, sinks: Tensor | None) -> Tensor:
    """q [q_len, heads, Dk] are the last positions of k [kv_len, kv_heads, Dk], v [kv_len, kv_heads, Dv]."""
    out = torch.empty(*q.shape[:2], v.shape[-1], dtype=torch.float64)
    first, group = len(k) - len(q), q.shape[1] // k.shape[1]
    scale = 1 / math.sqrt(q.shape[-1]) if kind.scale is None else kind.scale
    for row in range(len(q)):
        end = first + row + 1
        begin = max(0, end - kind.window) if kind.window else 0
        for head in range(q.shape[1]):
            scores = k[begin:end, head // group].double() @ q[row, head].double() * scale
            if kind.softcap:
                scores = kind.softcap * torch.tanh(scores / kind.softcap)
            weights = torch.exp(scores)
            total = weights.sum() + (0.0 if sinks is None else torch.exp(sinks[head].double()))
            out[row, head] = weights @ v[begin:end, head // group].double() / total
    return out
