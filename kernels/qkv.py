"""From the joined projection to attention: queries and keys normed and turned, keys and values written. Plain torch."""

from collections.abc import Sequence

import torch
from torch import Tensor

from .kv_write import kv_write
from .norm import rms_norm
from .rope import rotate


def qkv_rope_write(
    qkv: Tensor,
    slots: Tensor,
    keys: Tensor,
    values: Tensor,
    table: tuple[Tensor, Tensor] | None = None,
    norms: Sequence[Tensor] = (),
    eps: float = 0.0,
    *,
    interleaved: bool = False,
) -> Tensor:
    """Split qkv [T, (heads + 2 * kv_heads) * D], write keys and values, return queries [T, heads, D] in qkv's dtype.

    keys, values [pages, kv_heads, page_size, D]. slots [T] int64: page * page_size + offset; -1 marks padding, whose
    keys and values go nowhere and whose queries are zero. table: cos and signed sin of rope.py, [T, 1, R] with R up to
    D; None turns nothing. norms: weights of queries and keys, each a head long [D] or as long as all heads.
    interleaved: as in rope.py.
    """
    _, kv_heads, page_size, dim = keys.shape
    width = kv_heads * dim
    q, k, v = qkv.split([qkv.shape[1] - 2 * width, width, width], dim=1)
    if norms:
        q, k = (_normed(part, weight, eps) for part, weight in zip((q, k), norms, strict=True))
    q, k, v = (part.view(len(qkv), -1, dim) for part in (q, k, v))
    if table is not None:
        q, k = (rotate(part, *table, interleaved=interleaved) for part in (q, k))
    real = slots >= 0
    kept = slots[real]
    kv_write(keys, values, k[real], v[real], kept // page_size, kept % page_size)
    return torch.where(real[:, None, None], q, torch.zeros_like(q))


def _normed(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x [T, n * size] in groups of the weight's size."""
    return rms_norm(x.reshape(-1, len(weight)), weight, eps, x.dtype).view(x.shape)
