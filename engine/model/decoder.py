"""The decoder of most open models since Llama (Touvron et al. 2023): token ids in, logits out. What families differ in
is in the ModelSpec. Knows no sequence and no page.

Weights that read the same input are joined; the residual stream, norms, rotary tables and logits are float32.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from ..kernels.activation import act_mul
from ..kernels.linear import Linear
from ..kernels.norm import rms_norm
from ..kernels.paged_attention import AttentionKind
from ..kernels.rope import rotate
from .backend import Attention, Backend
from .batch import StepBatch
from .rope import Rotary
from .spec import ModelSpec
from .tensor_shapes import NORM_NAMES

Table = tuple[Tensor, Tensor]  # cos and signed sin, see kernels.rope


class Tensors:
    """A checkpoint's tensors by their Hugging Face names; each is let go when taken, so that none is held twice."""

    def __init__(self, spec: ModelSpec, tensors: dict[str, Tensor]) -> None:
        self.spec = spec
        self._tensors = tensors

    def take(self, name: str) -> Tensor:
        return self._tensors.pop(name)

    def linear(self, *names: str, bias: bool) -> Linear:
        """The projections `names`, joined along their outputs."""
        weight = _joined([self.take(f"{name}.weight") for name in names])
        return Linear(weight, _joined([self.take(f"{name}.bias") for name in names]) if bias else None)

    def norm(self, name: str) -> Tensor:
        """What an RMSNorm multiplies by: [size] float32."""
        weight = self.take(f"{name}.weight").to(torch.float32)
        return weight + 1 if self.spec.norm_plus_one else weight


class AttentionBlock:
    """Queries, keys and values out of one input, attention over the sequence, and the way back."""

    def __init__(self, spec: ModelSpec, index: int, tensors: Tensors) -> None:
        at = f"model.layers.{index}.self_attn"
        inputs = ["qkv_proj"] if spec.fused_qkv else ["q_proj", "k_proj", "v_proj"]
        self.spec = spec
        self.index = index
        self.kind = AttentionKind(
            window=spec.windows[index] if spec.windows else 0,
            scale=spec.attention_scale,
            softcap=spec.attention_softcap,
        )
        self.widths = [heads * spec.head_dim for heads in (spec.heads, spec.kv_heads, spec.kv_heads)]
        self.qkv = tensors.linear(*(f"{at}.{name}" for name in inputs), bias=spec.qkv_bias)
        self.norms = [tensors.norm(f"{at}.{name}_norm") for name in ("qk" if spec.qk_norm != "none" else "")]
        self.o = tensors.linear(f"{at}.o_proj", bias=spec.o_bias)

    def forward(self, x: Tensor, table: Table | None, attention: Attention) -> Tensor:
        """x [T, hidden] -> [T, hidden], both in the model's dtype."""
        heads, kv_heads, head_dim = self.spec.heads, self.spec.kv_heads, self.spec.head_dim
        qkv = self.qkv(x)  # [T, (heads + 2 * kv_heads) * head_dim]
        v = qkv[:, -self.widths[2] :].view(len(x), kv_heads, head_dim)
        qk = self._normed(qkv[:, : -self.widths[2]]).view(len(x), heads + kv_heads, head_dim)
        if table is not None:
            qk = rotate(qk, *table)
        out = attention(self.index, qk[:, :heads], qk[:, heads:], v, self.kind)
        return self.o(out.reshape(len(x), heads * head_dim))

    def _normed(self, qk: Tensor) -> Tensor:
        """Queries and keys, joined: each is normed in groups as long as its weight, a head or all of them."""
        if not self.norms:
            return qk
        parts = zip(qk.split(self.widths[:2], dim=-1), self.norms, strict=True)
        return torch.cat([self._norm(part, weight) for part, weight in parts], dim=-1)

    def _norm(self, x: Tensor, weight: Tensor) -> Tensor:
        return rms_norm(x.reshape(-1, len(weight)), weight, self.spec.norm_eps, x.dtype).view(x.shape)


class MLPBlock:
    """The gated feed-forward network (Shazeer 2020)."""

    def __init__(self, spec: ModelSpec, index: int, tensors: Tensors) -> None:
        at = f"model.layers.{index}.mlp"
        inputs = ["gate_up_proj"] if spec.fused_gate_up else ["gate_proj", "up_proj"]
        self.activation = spec.activation
        self.gate_up = tensors.linear(*(f"{at}.{name}" for name in inputs), bias=spec.mlp_bias)
        self.down = tensors.linear(f"{at}.down_proj", bias=spec.mlp_bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(act_mul(self.gate_up(x), self.activation))


class Layer:
    """Attention, then the MLP; each with a norm of what it reads, of what it adds, or both."""

    def __init__(self, spec: ModelSpec, index: int, tensors: Tensors, dtype: torch.dtype) -> None:
        def norm(name: str | None) -> Tensor | None:
            return tensors.norm(f"model.layers.{index}.{name}") if name else None

        names = NORM_NAMES[spec.norm_place]
        self.spec = spec
        self.dtype = dtype
        self.attention_in, self.attention_out = norm(names.attention_in), norm(names.attention_out)
        self.attention = AttentionBlock(spec, index, tensors)
        self.mlp_in, self.mlp_out = norm(names.mlp_in), norm(names.mlp_out)
        self.mlp = MLPBlock(spec, index, tensors)

    def forward(self, hidden: Tensor, table: Table | None, attention: Attention) -> None:
        """Add both blocks to hidden [T, hidden] float32, in place. table: None leaves positions unturned."""
        added = self.attention.forward(self._read(hidden, self.attention_in), table, attention)
        self._add(hidden, added, self.attention_out)
        added = self.mlp.forward(self._read(hidden, self.mlp_in))
        self._add(hidden, added, self.mlp_out)

    def _read(self, hidden: Tensor, norm: Tensor | None) -> Tensor:
        """What a block reads: [T, hidden] in the model's dtype."""
        return hidden.to(self.dtype) if norm is None else rms_norm(hidden, norm, self.spec.norm_eps, self.dtype)

    def _add(self, hidden: Tensor, added: Tensor, norm: Tensor | None) -> None:
        if norm is not None:
            added = rms_norm(added, norm, self.spec.norm_eps, torch.float32)
        hidden.add_(added, alpha=self.spec.residual_scale)


class Decoder:
    """The whole model on one device. `tensors` is emptied while it is built."""

    def __init__(self, spec: ModelSpec, tensors: dict[str, Tensor], backend: Backend) -> None:
        source = Tensors(spec, tensors)
        self.spec = spec
        self.backend = backend
        self.embedding = source.take("model.embed_tokens.weight")  # [vocab, hidden]
        self.dtype = self.embedding.dtype
        self.device = self.embedding.device
        # rounded as the weights are: models were trained with the product of two such numbers
        self.embedding_scale = torch.tensor(spec.embedding_scale).to(self.dtype).item()
        self.layers = [Layer(spec, index, source, self.dtype) for index in range(spec.layers)]
        self.norm = source.norm("model.norm")
        # a tied head is packed beside the embedding: its rows are looked up there, its products are made here
        self.head = Linear(self.embedding if spec.tied else source.take("lm_head.weight"))
        self.rotary = Rotary(spec.rope, spec.head_dim, self.device)
        self.local_rotary = Rotary(spec.local_rope, spec.head_dim, self.device) if spec.local_rope else None

    def forward(self, batch: StepBatch) -> Tensor:
        """Compute a step and keep its keys and values. Returns logits [R, vocab] float32 of batch.logit_rows."""
        return self.logits(self.hidden(batch).index_select(0, batch.logit_rows))

    @torch.inference_mode()
    def hidden(self, batch: StepBatch) -> Tensor:
        """Compute a step and keep its keys and values. Returns what `logits` takes: [T, hidden] float32."""
        attention = self.backend.begin(batch)
        tables = self._tables(batch.positions, batch.lengths)
        hidden = F.embedding(batch.ids, self.embedding).to(torch.float32)
        if self.embedding_scale != 1.0:
            hidden = hidden * self.embedding_scale
        for layer, table in zip(self.layers, tables, strict=True):
            layer.forward(hidden, table, attention)
        return hidden

    @torch.inference_mode()
    def logits(self, rows: Tensor) -> Tensor:
        """Logits [R, vocab] float32 of some rows [R, hidden] of `hidden`."""
        return self.logits_of_normed(rms_norm(rows, self.norm, self.spec.norm_eps, self.dtype))

    def logits_of_normed(self, rows: Tensor) -> Tensor:
        """rows [R, hidden] in the model's dtype, by the last norm -> [R, vocab] float32."""
        if not len(rows):
            return rows.new_empty(0, self.spec.vocab_size, dtype=torch.float32)
        logits = self.head(rows).to(torch.float32)
        if self.spec.logit_scale != 1.0:
            logits = logits * self.spec.logit_scale
        cap = self.spec.logit_softcap
        return (logits / cap).tanh_().mul_(cap) if cap else logits

    def _tables(self, positions: Tensor, lengths: Tensor) -> list[Table | None]:
        """For each layer what turns its queries and keys; None where nothing does. positions, lengths: StepBatch's."""
        spec = self.spec
        everywhere = self.rotary.table(positions, lengths)
        local = self.local_rotary.table(positions, lengths) if self.local_rotary else everywhere
        windows = spec.windows or (0,) * spec.layers
        turning = spec.rotary_layers or (True,) * spec.layers
        return [
            (local if window else everywhere) if turns else None for window, turns in zip(windows, turning, strict=True)
        ]


def _joined(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts)
