"""The decoder of the Llama family (Touvron et al. 2023): token ids in, logits out. Knows no sequence and no page.

Weights that read the same input are joined; the residual stream, norms, rotary tables and logits are float32.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from ..kernels.linear import Linear
from ..kernels.norm import rms_norm
from ..kernels.rope import rotary_table, rotate
from .backend import Attention, Backend
from .batch import StepBatch
from .rope import frequencies
from .spec import ModelSpec


class Tensors:
    """A checkpoint's tensors by their Hugging Face names; each is let go when taken, so that none is held twice."""

    def __init__(self, tensors: dict[str, Tensor]) -> None:
        self._tensors = tensors

    def take(self, name: str) -> Tensor:
        return self._tensors.pop(name)

    def linear(self, *names: str, bias: bool) -> Linear:
        """The projections `names`, joined along their outputs."""
        weight = _joined([self.take(f"{name}.weight") for name in names])
        return Linear(weight, _joined([self.take(f"{name}.bias") for name in names]) if bias else None)

    def norm(self, name: str) -> Tensor:
        return self.take(f"{name}.weight").to(torch.float32)


class Layer:
    """One block: attention, then the gated MLP, each behind its norm."""

    def __init__(self, spec: ModelSpec, index: int, tensors: Tensors) -> None:
        at = f"model.layers.{index}"
        attention = [f"{at}.self_attn.{name}_proj" for name in "qkv"]
        self.index = index
        self.spec = spec
        self.input_norm = tensors.norm(f"{at}.input_layernorm")
        self.qkv = tensors.linear(*attention, bias=spec.qkv_bias)
        self.o = tensors.linear(f"{at}.self_attn.o_proj", bias=spec.o_bias)
        self.mlp_norm = tensors.norm(f"{at}.post_attention_layernorm")
        self.gate_up = tensors.linear(f"{at}.mlp.gate_proj", f"{at}.mlp.up_proj", bias=spec.mlp_bias)
        self.down = tensors.linear(f"{at}.mlp.down_proj", bias=spec.mlp_bias)

    def forward(self, hidden: Tensor, rotary: tuple[Tensor, Tensor], attention: Attention, dtype: torch.dtype) -> None:
        """Add this block to hidden [T, hidden] float32, in place."""
        hidden += self._attend(rms_norm(hidden, self.input_norm, self.spec.norm_eps, dtype), rotary, attention)
        hidden += self._mlp(rms_norm(hidden, self.mlp_norm, self.spec.norm_eps, dtype))

    def _attend(self, x: Tensor, rotary: tuple[Tensor, Tensor], attention: Attention) -> Tensor:
        heads, kv_heads = self.spec.heads, self.spec.kv_heads
        qkv = self.qkv(x).view(len(x), heads + 2 * kv_heads, self.spec.head_dim)
        rotated = rotate(qkv[:, : heads + kv_heads], *rotary)
        out = attention(self.index, rotated[:, :heads], rotated[:, heads:], qkv[:, heads + kv_heads :])
        return self.o(out.reshape(len(x), heads * self.spec.head_dim))

    def _mlp(self, x: Tensor) -> Tensor:
        gate, up = self.gate_up(x).chunk(2, dim=-1)  # [T, intermediate] each
        return self.down(F.silu(gate).mul_(up))


class Decoder:
    """The whole model on one device. `tensors` is emptied while it is built."""

    def __init__(self, spec: ModelSpec, tensors: dict[str, Tensor], backend: Backend) -> None:
        source = Tensors(tensors)
        self.spec = spec
        self.backend = backend
        self.embedding = source.take("model.embed_tokens.weight")  # [vocab, hidden]
        self.dtype = self.embedding.dtype
        self.device = self.embedding.device
        self.layers = [Layer(spec, index, source) for index in range(spec.layers)]
        self.norm = source.norm("model.norm")
        # a tied head is packed beside the embedding: its rows are looked up there, its products are made here
        self.head = Linear(self.embedding if spec.tied else source.take("lm_head.weight"))
        self.frequencies = frequencies(spec.rope, spec.head_dim).to(self.device)

    @torch.inference_mode()
    def forward(self, batch: StepBatch) -> Tensor:
        """Compute a step and keep its keys and values. Returns logits [R, vocab] float32 of batch.logit_rows."""
        attention = self.backend.begin(batch)
        rotary = rotary_table(batch.positions, self.frequencies)
        hidden = F.embedding(batch.ids, self.embedding).to(torch.float32)  # [T, hidden]
        for layer in self.layers:
            layer.forward(hidden, rotary, attention, self.dtype)
        if not len(batch.logit_rows):
            return hidden.new_empty(0, self.spec.vocab_size)
        last = hidden.index_select(0, batch.logit_rows)
        return self.head(rms_norm(last, self.norm, self.spec.norm_eps, self.dtype)).to(torch.float32)


def _joined(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts)
