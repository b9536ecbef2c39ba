"""A checkpoint's weights as the C++ step reads them: packed once, described by the structs of kernels/cpu/model.h.

Knows the names of a checkpoint's tensors and no step.
"""

import torch
from torch import Tensor

from ..kernels.cpu.library import ACTIVATIONS, CLayer, CLinear, CModel
from ..kernels.cpu.memory import StreamMemory
from ..kernels.cpu.pack import PackedLinear, interleaved, pack_blocks, pack_linear
from .blocks import Blocks
from .decoder import Tensors
from .kv import KVMemory
from .product_weights import ProductWeights, Weight
from .spec import ModelSpec
from .tensor_shapes import EMBEDDING, NORM_NAMES


class CpuWeights:
    """A checkpoint's tensors as the C++ step reads them. `c` points into what is kept here.

    kinds: what its products multiply, for people. product_bytes: of their weights, as packed.
    """

    def __init__(
        self,
        spec: ModelSpec,
        tensors: dict[str, Tensor],
        kv: KVMemory,
        blocks: dict[str, Blocks] | None = None,
        quantize: str = "auto",
    ) -> None:
        self._spec = spec
        self._source = Tensors(spec, tensors)
        self._memory = StreamMemory()
        self._weights = ProductWeights(spec, tensors, blocks or {}, quantize)
        self._kept: list[Tensor | PackedLinear] = [part for layer in kv.layers for part in layer]
        head = self._packed(self._weights.output())
        embedding = self._keep(self._source.take(EMBEDDING))
        self._layers = (CLayer * spec.layers)(*(self._layer(index, kv) for index in range(spec.layers)))
        self.c = CModel(
            layers=self._layers,
            embedding=embedding.data_ptr(),
            norm=self._norm("model.norm"),
            head=head,
            layer_count=spec.layers,
            hidden=spec.hidden_size,
            intermediate=spec.intermediate_size,
            heads=spec.heads,
            kv_heads=spec.kv_heads,
            head_dim=spec.head_dim,
            page_size=kv.page_size,
            activation=ACTIVATIONS[spec.activation],
            whole_norm=spec.qk_norm == "all",
            eps=spec.norm_eps,
            attention_scale=spec.head_dim**-0.5 if spec.attention_scale is None else spec.attention_scale,
            attention_softcap=spec.attention_softcap,
            # rounded as the weights are: models were trained with the product of two such numbers
            embedding_scale=torch.tensor(spec.embedding_scale).to(embedding.dtype).item(),
            residual_scale=spec.residual_scale,
            logit_scale=spec.logit_scale,
            logit_softcap=spec.logit_softcap,
        )

        self.kinds = self._weights.described()
        self.product_bytes = sum(part.panels.nbytes for part in self._kept if isinstance(part, PackedLinear))

    def _layer(self, index: int, kv: KVMemory) -> CLayer:
        spec, at = self._spec, f"model.layers.{index}"
        names = NORM_NAMES[spec.norm_place]
        normed = spec.qk_norm != "none"
        keys, values = kv.layers[index]
        window = spec.windows[index] if spec.windows else 0
        turns = spec.rotary_layers[index] if spec.rotary_layers else True
        return CLayer(
            qkv=self._qkv(f"{at}.self_attn"),
            o=self._linear(f"{at}.self_attn.o_proj", bias=spec.o_bias),
            gate_up=self._gate_up(f"{at}.mlp"),
            down=self._linear(f"{at}.mlp.down_proj", bias=spec.mlp_bias),
            attention_in=self._norm(names.attention_in and f"{at}.{names.attention_in}"),
            attention_out=self._norm(names.attention_out and f"{at}.{names.attention_out}"),
            mlp_in=self._norm(names.mlp_in and f"{at}.{names.mlp_in}"),
            mlp_out=self._norm(names.mlp_out and f"{at}.{names.mlp_out}"),
            q_norm=self._norm(f"{at}.self_attn.q_norm" if normed else None),
            k_norm=self._norm(f"{at}.self_attn.k_norm" if normed else None),
            keys=keys.data_ptr(),
            values=values.data_ptr(),
            window=window,
            table=(1 if window and spec.local_rope else 0) if turns else -1,
        )

    def _qkv(self, at: str) -> CLinear:
        names = ["qkv_proj"] if self._spec.fused_qkv else ["q_proj", "k_proj", "v_proj"]
        return self._linear(*(f"{at}.{name}" for name in names), bias=self._spec.qkv_bias)

    def _gate_up(self, at: str) -> CLinear:
        names = ["gate_up_proj"] if self._spec.fused_gate_up else ["gate_proj", "up_proj"]
        bias = self._biases([f"{at}.{name}.bias" for name in names]) if self._spec.mlp_bias else None
        weight = self._weights.joined([f"{at}.{name}.weight" for name in names])
        if isinstance(weight, Blocks):
            weight = Blocks(weight.kind, interleaved(*weight.rows.chunk(2)))
        else:
            weight = interleaved(*weight.chunk(2))
        return self._packed(weight, None if bias is None else interleaved(*bias.chunk(2)))

    def _linear(self, *names: str, bias: bool) -> CLinear:
        weight = self._weights.joined([f"{name}.weight" for name in names])
        return self._packed(weight, self._biases([f"{name}.bias" for name in names]) if bias else None)

    def _biases(self, names: list[str]) -> Tensor:
        return torch.cat([self._source.take(name) for name in names])

    def _packed(self, weight: Weight, bias: Tensor | None = None) -> CLinear:
        if isinstance(weight, Blocks):
            packed = pack_blocks(self._memory, weight.kind, weight.rows, bias)
        else:
            packed = pack_linear(self._memory, weight, bias)
        self._kept.append(packed)
        return packed.c

    def _norm(self, name: str | None) -> int | None:
        return self._keep(self._source.norm(name)).data_ptr() if name else None

    def _keep(self, tensor: Tensor) -> Tensor:
        self._kept.append(tensor)
        return tensor
