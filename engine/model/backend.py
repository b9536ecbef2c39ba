"""How attention is computed: the border between a decoder and the owner of KV memory, and its plain torch form."""

from typing import Protocol

from torch import Tensor

from ..kernels.kv_write import kv_write
from ..kernels.paged_attention import AttentionTasks, paged_attention, prepare
from .batch import StepBatch
from .kv import KVMemory


class Attention(Protocol):
    """One step's attention, made ready once and used by every layer."""

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Keep k, v [T, kv_heads, D] and attend with q [T, heads, D] -> [T, heads, D]."""
        ...


class Backend(Protocol):
    """Makes a step's attention."""

    def begin(self, batch: StepBatch) -> Attention: ...


class TorchBackend:
    """Attention by torch's own operations over KVMemory."""

    def __init__(self, kv: KVMemory) -> None:
        self.kv = kv

    def begin(self, batch: StepBatch) -> "TorchAttention":
        self.kv.clear(batch.opened)
        return TorchAttention(self.kv, batch)


class TorchAttention:
    """One step over KVMemory."""

    def __init__(self, kv: KVMemory, batch: StepBatch) -> None:
        self.layers = kv.layers
        self.pages = batch.slots // kv.page_size
        self.offsets = batch.slots % kv.page_size
        kv_heads, dtype = kv.data.shape[3], kv.data.dtype
        self.tasks: AttentionTasks = prepare(batch.bounds, batch.page_tables, kv.page_size, kv_heads, dtype)

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        keys, values = self.layers[layer]
        kv_write(keys, values, k, v, self.pages, self.offsets)
        return paged_attention(q, keys, values, self.tasks)
