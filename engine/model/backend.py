"""How attention is computed: the border between a model and the owner of KV memory, and its plain torch form."""

from typing import Protocol

from torch import Tensor

from ..kernels.attention_tasks import AttentionTasks, LayerView, prepare
from ..kernels.kv_write import kv_write
from ..kernels.paged_attention import PLAIN, AttentionKind, needs_masks, paged_attention
from .batch import StepBatch
from .kv import KVMemory


class Attention(Protocol):
    """One step's attention, made ready once and used by every layer."""

    def __call__(
        self,
        layer: int,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        kind: AttentionKind = PLAIN,
        sinks: Tensor | None = None,
    ) -> Tensor:
        """Keep k [T, kv_heads, Dk] and v [T, kv_heads, Dv], attend with q [T, heads, Dk] -> [T, heads, Dv].

        kv_heads, Dk and Dv are the layer's own. sinks [heads]: one more logit of each head's softmax, without a value.
        """
        ...


class Backend(Protocol):
    """Makes a step's attention over KVMemory."""

    def begin(self, batch: StepBatch) -> Attention: ...

    def use(self, kv: KVMemory, *, longest: int) -> None:
        """Compute over `kv` from the next step on, for sequences of up to `longest` tokens."""
        ...


class TorchBackend:
    """Attention by torch's own operations over KVMemory."""

    def __init__(self, kv: KVMemory) -> None:
        self.kv = kv

    def use(self, kv: KVMemory, *, longest: int) -> None:
        self.kv = kv

    def begin(self, batch: StepBatch) -> "TorchAttention":
        self.kv.clear(batch.opened)
        return TorchAttention(self.kv, batch)


class TorchAttention:
    """One step over KVMemory. Layers of one view share their tasks, which the first of them makes."""

    def __init__(self, kv: KVMemory, batch: StepBatch) -> None:
        self.kv = kv
        self.batch = batch
        self.pages = batch.slots // kv.page_size
        self.offsets = batch.slots % kv.page_size
        self.longest = max(item.kv_len for item in batch.bounds)
        self.tasks: dict[LayerView, AttentionTasks] = {}

    def __call__(
        self,
        layer: int,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        kind: AttentionKind = PLAIN,
        sinks: Tensor | None = None,
    ) -> Tensor:
        keys, values = self.kv.layers[layer]
        kv_write(keys, values, k, v, self.pages, self.offsets)
        window = kind.window if kind.window < self.longest else 0
        view = LayerView(self.kv.page_size, keys.shape[1], keys.dtype, window, needs_masks(kind, sinks))
        return paged_attention(q, keys, values, self._tasks_of(view), kind, sinks)

    def _tasks_of(self, view: LayerView) -> AttentionTasks:
        if view not in self.tasks:
            self.tasks[view] = prepare(self.batch.bounds, self.batch.page_tables, view)
        return self.tasks[view]
