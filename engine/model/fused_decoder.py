"""The decoder by our Triton kernels: products by torch, all that lies between two products in one launch.

Decoder is the reference, and owner of the weights. Nothing here waits for the device or depends on a number it holds,
so that a step over the same tensors can be recorded as a CUDA graph.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from ..kernels.step_inputs import StepTensors
from ..kernels.triton.activation import act_mul
from ..kernels.triton.norm import add_norm
from .batch import StepBatch
from .decoder import Decoder, Layer, Table
from .rope import Rotary
from .spec import ModelSpec
from .triton_backend import TritonAttention, TritonBackend, step_tensors


class FusedDecoder(Decoder):
    """A CausalModel whose `hidden` is normed already. `tensors` is emptied while it is built."""

    def __init__(self, spec: ModelSpec, tensors: dict[str, Tensor], backend: TritonBackend) -> None:
        super().__init__(spec, tensors, backend)
        self._attention = backend
        self.rotary = Rotary(spec.rope, spec.head_dim, self.device, static=True)
        if spec.local_rope:
            self.local_rotary = Rotary(spec.local_rope, spec.head_dim, self.device, static=True)
        ins = [norm for layer in self.layers for norm in (layer.attention_in, layer.mlp_in)]
        self._reads = [*ins[1:], self.norm]  # what norms the stream after each block: the next block's, in the end ours

    def hidden(self, batch: StepBatch) -> Tensor:
        """Compute a step and keep its keys and values. Returns what `logits` takes: [T, hidden], our dtype."""
        return self.step(step_tensors(batch), only_decodes=all(item.q_len == 1 for item in batch.bounds))

    @torch.inference_mode()
    def step(self, step: StepTensors, *, only_decodes: bool) -> Tensor:
        """The same. only_decodes: no sequence has two rows or more, whatever the tensors will hold."""
        attention = self._attention.on(step, only_decodes=only_decodes)
        stream = F.embedding(step.ids, self.embedding).to(torch.float32)
        if self.embedding_scale != 1.0:
            stream *= self.embedding_scale
        heads = torch.zeros(len(stream), self.spec.heads, self.spec.head_dim, dtype=self.dtype, device=self.device)
        x = self._read(stream, None, None, self.layers[0].attention_in)
        for layer, table in zip(self.layers, self._tables(step.positions, step.lengths), strict=True):
            place = 2 * layer.attention.index
            added = self._attend(layer, x, table, attention, heads)
            x = self._read(stream, added, layer.attention_out, self._reads[place])
            added = layer.mlp.down(act_mul(layer.mlp.gate_up(x), self.spec.activation))
            x = self._read(stream, added, layer.mlp_out, self._reads[place + 1])
        return x

    @torch.inference_mode()
    def logits(self, rows: Tensor) -> Tensor:
        """Logits [R, vocab] float32 of some rows [R, hidden] of `hidden`."""
        return self.logits_of_normed(rows)

    def _read(self, stream: Tensor, added: Tensor | None, added_norm: Tensor | None, norm: Tensor | None) -> Tensor:
        """Add a block's output to the stream [T, hidden] float32, in place; what the next one reads, in our dtype."""
        return add_norm(
            stream,
            added,
            norm,
            eps=self.spec.norm_eps,
            dtype=self.dtype,
            added_weight=added_norm,
            scale=self.spec.residual_scale,
        )

    def _attend(self, layer: Layer, x: Tensor, table: Table | None, attention: TritonAttention, out: Tensor) -> Tensor:
        """x [T, hidden] -> [T, hidden]. out [T, heads, D]: where attention puts what it finds; other rows stay zero."""
        block = layer.attention
        q = attention.keep(block.index, block.qkv(x), table, block.norms, self.spec.norm_eps)
        return block.o(attention.attend(block.index, q, out, block.kind).flatten(1))
