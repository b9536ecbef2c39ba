"""The decoder as one C++ call a step (kernels/cpu) over weights packed once: bfloat16, or integers in blocks. Knows no
sequence.

Takes every ModelSpec whose sizes fit its vectors: `cannot_compute` says what stands in the way. The reference for it is
Decoder. A row's result doesn't depend on the rows computed beside it.
"""

import ctypes

import torch
from torch import Tensor

from ..kernels.cpu.library import CStep, Library
from .batch import StepBatch
from .blocks import Blocks
from .cpu_rotary import KeptRotary
from .cpu_weights import CpuWeights
from .kv import KVMemory
from .rope import Rotary
from .spec import ModelSpec

MOST_HEAD_DIM = 256
SLOTS = 16  # of a block of keys


def cannot_compute(spec: ModelSpec, page_size: int, dtype: torch.dtype) -> str | None:
    """Why the C++ step can't compute this model; None where it can."""
    if dtype is not torch.bfloat16:
        return f"it computes in bfloat16, not {str(dtype).removeprefix('torch.')}"
    if page_size % SLOTS:
        return f"page_size is {page_size}, not a multiple of {SLOTS}"
    if spec.head_dim % 16 or spec.head_dim > MOST_HEAD_DIM:
        return f"heads of {spec.head_dim} are not a multiple of 16 up to {MOST_HEAD_DIM}"
    widths = {"hidden_size": spec.hidden_size, "intermediate_size": spec.intermediate_size}
    widths["heads * head_dim"] = spec.heads * spec.head_dim
    odd = [f"{name} is {width}" for name, width in widths.items() if width % 32]
    return f"{', '.join(odd)}: not a multiple of 32" if odd else None


class CpuDecoder:
    """A CausalModel. Keys and values in `kv` have an order of their own.

    tensors, blocks: emptied while it is built. quantize: under product_weights' rule. weights: what products multiply.
    """

    def __init__(
        self,
        spec: ModelSpec,
        tensors: dict[str, Tensor],
        kv: KVMemory,
        library: Library,
        threads: int,
        blocks: dict[str, Blocks] | None = None,
        quantize: str = "auto",
    ) -> None:
        self.spec = spec
        self.device = torch.device("cpu")
        self._library = library
        self._threads = threads
        self._weights = CpuWeights(spec, tensors, kv, blocks, quantize)
        self.weights, self.weight_bytes = self._weights.kinds, self._weights.product_bytes
        self._workspace = torch.empty(0, dtype=torch.uint8)
        ropes = [spec.rope, *([spec.local_rope] if spec.local_rope else [])]
        self._rotaries = [KeptRotary(Rotary(rope, spec.head_dim, self.device)) for rope in ropes]

    def hidden(self, batch: StepBatch) -> Tensor:
        """Compute a step and keep its keys and values. Returns what `logits` takes: [T, hidden] float32."""
        hidden = torch.empty(len(batch.ids), self.spec.hidden_size)
        bounds = torch.tensor([(b.q_start, b.q_len, b.kv_len) for b in batch.bounds], dtype=torch.int32)
        tables = [rotary.table(batch) for rotary in self._rotaries]
        step = CStep(
            ids=batch.ids.data_ptr(),
            slots=batch.slots.data_ptr(),
            page_tables=batch.page_tables.data_ptr(),
            bounds=bounds.data_ptr(),
            opened=batch.opened.data_ptr(),
            cos=(ctypes.c_void_p * 2)(*(cos.data_ptr() for cos, _ in tables)),
            sin=(ctypes.c_void_p * 2)(*(sin.data_ptr() for _, sin in tables)),
            turned=(ctypes.c_int32 * 2)(*(cos.shape[-1] for cos, _ in tables)),
            tokens=len(batch.ids),
            slices=len(batch.bounds),
            table_width=batch.page_tables.shape[1],
            opened_count=len(batch.opened),
            hidden=hidden.data_ptr(),
            workspace=self._space(self._library.workspace(self._weights.c, len(batch.ids))),
        )
        self._library.step(self._weights.c, step, self._threads)
        return hidden

    def logits(self, rows: Tensor) -> Tensor:
        """Logits [R, vocab] float32 of some rows [R, hidden] of `hidden`."""
        rows = rows.contiguous()
        logits = torch.empty(len(rows), self.spec.vocab_size)
        space = self._space(self._library.logits_workspace(self._weights.c, len(rows)))
        self._library.logits(self._weights.c, rows.data_ptr(), len(rows), logits.data_ptr(), space, self._threads)
        return logits

    def _space(self, size: int) -> int:
        """The address of so many bytes, which hold until the next call."""
        if size + 64 > len(self._workspace):
            self._workspace = torch.empty(size + 64, dtype=torch.uint8)
        return -(-self._workspace.data_ptr() // 64) * 64
