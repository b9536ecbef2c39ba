"""The decoder as one C++ call a step (kernels/cpu) over weights packed once: bfloat16, or integers in blocks. Knows no
sequence.

Takes every ModelSpec whose sizes fit its vectors: `cannot_compute` says what stands in the way. The reference for it is
Decoder. A row's result doesn't depend on the rows computed beside it.
"""

from array import array
from operator import is_

import torch
from torch import Tensor

from ..kernels.cpu.library import CModel, CStep, Library
from .batch import StepBatch
from .blocks import Blocks
from .computed import Computed
from .cpu_rotary import CpuTable, KeptRotary
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
        ropes = [spec.rope, *([spec.local_rope] if spec.local_rope else [])]
        self._rotaries = [KeptRotary(Rotary(rope, spec.head_dim, self.device)) for rope in ropes]
        self._tables: list[CpuTable] = []
        self._step = CStep()  # filled anew for each step, but for what stays
        self._space = Space(library, self._weights.c)
        self._logits = torch.empty(0, spec.vocab_size)
        self._drawn = self._logits  # its first rows

    def compute(self, batch: StepBatch) -> Computed:
        """A step with its logits in one call. The logits hold until the next one."""
        rows = len(batch.drawn)
        if rows != len(self._drawn):
            if rows > len(self._logits):
                self._logits = torch.empty(rows, self.spec.vocab_size)
                self._step.logits = self._logits.data_ptr()
            self._drawn = self._logits[:rows]
        likeliest = array("q", bytes(8 * rows))
        return Computed(self._call(batch, batch.drawn, likeliest), self._drawn, likeliest)

    def hidden(self, batch: StepBatch) -> Tensor:
        """Compute a step and keep its keys and values. Returns what `logits` takes: [T, hidden] float32."""
        return self._call(batch, array("i"), array("q"))

    def logits(self, rows: Tensor) -> Tensor:
        """Logits [R, vocab] float32 of some rows [R, hidden] of `hidden`."""
        rows = rows.contiguous()
        logits = torch.empty(len(rows), self.spec.vocab_size)
        self._library.logits(self._weights.c, rows.data_ptr(), len(rows), logits.data_ptr(), self._threads)
        return logits

    def _call(self, batch: StepBatch, drawn: "array[int]", likeliest: "array[int]") -> Tensor:
        """Hidden rows [T, hidden]; fills the logits, and `likeliest`, of the rows `drawn`."""
        step, hidden = self._step, torch.empty(batch.tokens, self.spec.hidden_size)
        step.ids, _ = batch.token_ids.buffer_info()
        step.page_tables, _ = batch.tables.buffer_info()
        step.bounds, _ = batch.extents.buffer_info()
        step.drawn, step.drawn_count = drawn.buffer_info()
        step.likeliest, _ = likeliest.buffer_info()
        step.tokens, step.slices, step.table_width = batch.tokens, batch.slices, batch.widest
        step.hidden = hidden.data_ptr()
        step.workspace = self._space.take(batch.tokens, len(drawn))
        self._turn([rotary.table(batch) for rotary in self._rotaries])
        self._library.step(self._weights.c, step, self._threads)
        return hidden

    def _turn(self, tables: list[CpuTable]) -> None:
        """Let the step turn by these; mostly they are those of the step before."""
        if len(tables) == len(self._tables) and all(map(is_, tables, self._tables)):
            return
        self._tables = tables
        for place, table in enumerate(tables):
            self._step.cos[place], self._step.sin[place] = table.cos.data_ptr(), table.sin.data_ptr()
            self._step.turned[place], self._step.by_token[place] = table.cos.shape[-1], table.by_token


class Space:
    """What a step keeps between its kinds of work: memory that grows with the largest so far."""

    def __init__(self, library: Library, model: CModel) -> None:
        self._library = library
        self._model = model
        self._most = 0, 0
        self._memory = torch.empty(0, dtype=torch.uint8)
        self._address = 0

    def take(self, tokens: int, drawn: int) -> int:
        """The address of memory that holds until the next call. drawn: as Step's drawn_count."""
        if tokens > self._most[0] or drawn > self._most[1]:
            self._most = max(tokens, self._most[0]), max(drawn, self._most[1])
            self._memory = torch.empty(self._library.workspace(self._model, *self._most) + 64, dtype=torch.uint8)
            self._address = -(-self._memory.data_ptr() // 64) * 64
        return self._address
