"""Attention by our Triton kernels over KVMemory: on a GPU, or anywhere under triton's interpreter.

Slots past a sequence's end are never read, so pages need not be cleared when they are begun, as TorchBackend does.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ..kernels.paged_attention import PLAIN, AttentionKind
from ..kernels.step_inputs import StepTensors
from ..kernels.triton.attention import Scratch, make_scratch, paged_attention
from ..kernels.triton.configs import config_for
from ..kernels.triton.configs.attention import Variant
from ..kernels.triton.device import arch_of
from ..kernels.triton.kv_write import kv_write
from ..kernels.triton.qkv import qkv_rope_write
from .batch import StepBatch
from .kv import KVMemory
from .upload import upload

VARIANTS: tuple[Variant, ...] = ("decode", "prefill")


def cannot_attend(kv: KVMemory) -> str | None:
    """Why these kernels can't compute over such pages on their device; None where they can."""
    arch = arch_of(kv.blocks[0].device)
    try:
        for width in {max(keys.shape[3], values.shape[3]) for keys, values in kv.layers}:
            for variant in VARIANTS:
                config_for(arch, width, 1, variant)
    except ValueError as error:
        return str(error)
    return None


class TritonBackend:
    """A Backend. It owns what decodes need beside KV memory, one block for all layers and steps.

    sequences: most in a step; longest: most positions of one. Scratch grows where a step has more sequences or a layer
    more heads than any before, so a launch may be recorded once one as large has run.
    """

    def __init__(self, kv: KVMemory, *, sequences: int, longest: int) -> None:
        self.kv = kv
        self._sequences = sequences
        self._longest = longest
        self._scratch: Scratch | None = None

    def use(self, kv: KVMemory, *, longest: int) -> None:
        self.kv, self._longest, self._scratch = kv, longest, None

    def begin(self, batch: StepBatch) -> "TritonAttention":
        return self.on(step_tensors(batch), only_decodes=all(item.q_len == 1 for item in batch.bounds))

    def on(self, step: StepTensors, *, only_decodes: bool) -> "TritonAttention":
        """A step's attention. only_decodes: no sequence has two rows or more, whatever the tensors will hold."""
        self._sequences = max(self._sequences, len(step.kv_len))
        return TritonAttention(self, step, only_decodes)

    def scratch(self, heads: int, value_dim: int) -> Scratch:
        """Enough for a layer of these heads, in any step."""
        held = self._scratch
        parts = self._sequences * heads * (held.splits if held else 0)
        if held is None or len(held.largest) < parts or len(held.sums) < parts * value_dim:
            device = self.kv.blocks[0].device
            self._scratch = held = make_scratch(self._sequences, heads, value_dim, self._longest, device)
        return held


class TritonAttention:
    """An Attention: one step over the backend's memory."""

    def __init__(self, backend: TritonBackend, step: StepTensors, only_decodes: bool) -> None:
        self._backend = backend
        self._step = step
        self._only_decodes = only_decodes

    def __call__(
        self,
        layer: int,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        kind: AttentionKind = PLAIN,
        sinks: Tensor | None = None,
    ) -> Tensor:
        keys, values = self._backend.kv.layers[layer]
        kv_write(keys, values, k, v, self._step.slots)
        out = q.new_empty(*q.shape[:2], values.shape[3])
        return self.attend(layer, q if q.stride(2) == 1 else q.contiguous(), out, kind, sinks)

    def keep(
        self, layer: int, qkv: Tensor, table: tuple[Tensor, Tensor] | None, norms: Sequence[Tensor], eps: float
    ) -> Tensor:
        """Keep the keys and values of qkv, return its queries [T, heads, D]: see kernels.triton.qkv."""
        return qkv_rope_write(qkv, self._step.slots, *self._backend.kv.layers[layer], table, norms, eps)

    def attend(
        self,
        layer: int,
        q: Tensor,
        out: Tensor,
        kind: AttentionKind = PLAIN,
        sinks: Tensor | None = None,
    ) -> Tensor:
        """q [T, heads, Dk] over what is written already -> out [T, heads, Dv], returned; rows that fill up are left."""
        step, (keys, values) = self._step, self._backend.kv.layers[layer]
        return paged_attention(
            q,
            keys,
            values,
            step.page_tables,
            step.cu_q,
            step.kv_len,
            out,
            self._backend.scratch(q.shape[1], values.shape[3]),
            only_decodes=self._only_decodes,
            kind=kind,
            sinks=sinks,
        )


def step_tensors(batch: StepBatch) -> StepTensors:
    """A StepBatch as kernels read it, with nothing filled up."""
    device = batch.ids.device
    ends = np.array([item.q_start + item.q_len for item in batch.bounds], np.int32)
    return StepTensors(
        ids=batch.ids,
        positions=batch.positions,
        lengths=batch.lengths,
        slots=batch.slots,
        cu_q=upload(np.insert(ends, 0, 0), device),
        kv_len=upload(np.array([item.kv_len for item in batch.bounds], np.int32), device),
        logit_rows=batch.logit_rows,
        opened=batch.opened,
        page_tables=batch.page_tables.to(torch.int32),
    )
