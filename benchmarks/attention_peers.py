"""Attention by others, to compare with: torch's own without pages, FlashInfer and flash-attn where they are installed.

Each is made ready once, then called: (name, call) with results as ours, [sequences * queries, heads, dim].
"""

from collections.abc import Callable, Iterator
from importlib.util import find_spec

import torch
import torch.nn.functional as F
from torch import Tensor

from attention_work import DTYPE, PAGE, AttentionTensors

Call = Callable[[], Tensor]
WORKSPACE = 128 * 2**20


def peers(tensors: AttentionTensors) -> Iterator[tuple[str, Callable[[], Call]]]:
    """Names, and what makes each ready."""
    yield "sdpa", lambda: sdpa(tensors)
    if find_spec("flashinfer"):
        yield "flashinfer", lambda: flashinfer(tensors)
    if find_spec("flash_attn_interface"):
        yield "flash-attn 3", lambda: flash_attn(tensors, "flash_attn_interface")
    if find_spec("flash_attn"):
        yield "flash-attn 2", lambda: flash_attn(tensors, "flash_attn")


def sdpa(tensors: AttentionTensors) -> Call:
    work = tensors.work
    keys, values = tensors.dense
    q = tensors.q.view(work.sequences, work.queries, work.heads, work.dim).transpose(1, 2)
    mask, causal = None, work.queries > 1
    if causal and work.queries < work.context:  # is_causal would align the first query with the first key
        positions = torch.arange(work.context, device=q.device)
        mask, causal = positions <= positions[-work.queries :, None], False

    def call() -> Tensor:
        out = F.scaled_dot_product_attention(q, keys, values, attn_mask=mask, is_causal=causal, enable_gqa=True)
        return out.transpose(1, 2).reshape(tensors.q.shape)

    return call


def flashinfer(tensors: AttentionTensors) -> Call:
    """On the pages as they are: our layout is its HND."""
    import flashinfer as library

    work, device = tensors.work, tensors.q.device
    workspace = torch.empty(WORKSPACE, dtype=torch.uint8, device=device)
    each = tensors.tables.shape[1]
    starts = torch.arange(work.sequences + 1, dtype=torch.int32, device=device) * each
    last = torch.full((work.sequences,), (work.context - 1) % PAGE + 1, dtype=torch.int32, device=device)
    pages = (starts, tensors.tables.flatten(), last)
    heads = (work.heads, work.kv_heads, work.dim, PAGE)
    if work.queries == 1:
        wrapper = library.BatchDecodeWithPagedKVCacheWrapper(workspace, "HND", use_tensor_cores=True)
        wrapper.plan(*pages, *heads, q_data_type=DTYPE, kv_data_type=DTYPE)
    else:
        wrapper = library.BatchPrefillWithPagedKVCacheWrapper(workspace, "HND")
        wrapper.plan(tensors.cu_q, *pages, *heads, causal=True, q_data_type=DTYPE, kv_data_type=DTYPE)
    return lambda: wrapper.run(tensors.q, (tensors.keys, tensors.values))


def flash_attn(tensors: AttentionTensors, module: str) -> Call:
    """Without pages."""
    library = __import__(module)
    work = tensors.work
    keys, values = (part.transpose(1, 2).contiguous() for part in tensors.dense)
    q = tensors.q.view(work.sequences, work.queries, work.heads, work.dim)
    return lambda: library.flash_attn_with_kvcache(q, keys, values, cache_seqlens=tensors.kv_len, causal=True).view_as(
        tensors.q
    )
