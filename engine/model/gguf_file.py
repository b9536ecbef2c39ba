"""Weights from a GGUF file: dequantised in pieces straight to their dtype and device, or in its blocks as they are.

Knows no metadata.

The gguf package dequantises; names become Hugging Face's, and the row order that llama.cpp's converter gives query and
key weights (pairs of rotary dimensions side by side) is undone.
"""

import os
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict

import numpy as np
import torch
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize
from torch import Tensor

from ..errors import ModelError
from .blocks import KINDS, Blocks, rounded
from .gguf_families import GGUF_FAMILIES
from .gguf_header import GgufHeader, StoredTensor
from .spec import ModelSpec
from .tensor_shapes import EMBEDDING, NORM_NAMES, OUTPUT, Shape, check_shape

PIECE = 2**16  # elements dequantised at once, a multiple of every block: temporaries stay in cache and in the heap
FLOATS = {GGMLQuantizationType.F32, GGMLQuantizationType.F16, GGMLQuantizationType.BF16, GGMLQuantizationType.F64}
MOST_THREADS = 4  # more of them wait for each other between numpy's calls
TOP_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
}
LAYER_NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.qkv_proj": "attn_qkv",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.gate_up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
# by place, as in tensor_shapes.NormNames: Hugging Face gives one name to different norms
NORMS = {
    "attention_in": "attn_norm",
    "attention_out": "post_attention_norm",
    "mlp_in": "ffn_norm",
    "mlp_out": "post_ffw_norm",
}


class GgufFile:
    """The tensors of a GGUF file under Hugging Face's names. Raises ModelError naming tensor and file."""

    def __init__(self, header: GgufHeader, spec: ModelSpec) -> None:
        self._path = header.path
        self._tensors = header.tensors
        self._spec = spec
        self._interleaved = GGUF_FAMILIES[spec.architecture].interleaved

    def check(self, shapes: Mapping[str, Shape]) -> None:
        """Every tensor is there, with this shape and a type that can be dequantised."""
        for name, shape in shapes.items():
            check_shape(gguf_name(name, self._spec), self._stored(name).shape, shape, self._path)
        for stored in {self._stored(name).kind: self._stored(name) for name in shapes}.values():
            self._check_kind(stored)

    def load(
        self,
        shapes: Mapping[str, Shape],
        dtype: torch.dtype,
        device: torch.device,
        progress: Callable[[float], None],
    ) -> dict[str, Tensor]:
        """The tensors named in `shapes`. Peak memory is the result, one tensor and a few pieces more."""
        tensors: dict[str, Tensor] = {}
        with _threads() as pool:
            loaded = pool.map(lambda name: self._load(name, dtype, device), shapes)
            for name, tensor in zip(shapes, loaded, strict=True):
                tensors[name] = tensor
                progress(len(tensors) / len(shapes))
        return tensors

    def blocks(self, names: Iterable[str]) -> dict[str, Blocks]:
        """Weights of products among `names` that the file has in blocks: kinds in KINDS as they are, others as Q8_0.

        Where the embedding is the output projection too, it is given under that name.
        """
        names = set(names)
        wanted = {name: name for name in names if "_proj." in name and name.endswith(".weight")}
        wanted[OUTPUT] = OUTPUT if OUTPUT in names else EMBEDDING
        stored = {name: source for name, source in wanted.items() if self._stored(source).kind not in FLOATS}
        with _threads() as pool:
            return dict(zip(stored, pool.map(self._blocks, stored.values()), strict=True))

    def _blocks(self, name: str) -> Blocks:
        stored = self._stored(name)
        for kind in KINDS:
            if stored.kind.name == kind:
                raw = np.fromfile(self._path, np.uint8, count=stored.size, offset=stored.offset)
                rows = torch.from_numpy(raw).view(stored.shape[0], -1)
                return Blocks(kind, self._in_order(name, rows))
        return rounded(self._load(name, torch.float32, torch.device("cpu")), "Q8_0")

    def _load(self, name: str, dtype: torch.dtype, device: torch.device) -> Tensor:
        return self._in_order(name, self._dequantised(self._stored(name), dtype, device))

    def _in_order(self, name: str, tensor: Tensor) -> Tensor:
        """Rows in Hugging Face's order."""
        if self._interleaved and ".q_proj." in name:
            return unpermute(tensor, self._spec.heads)
        if self._interleaved and ".k_proj." in name:
            return unpermute(tensor, self._spec.kv_heads)
        return tensor

    def _dequantised(self, stored: StoredTensor, dtype: torch.dtype, device: torch.device) -> Tensor:
        target = torch.empty(stored.elements, dtype=dtype, device=device)
        piece_bytes = stored.size * PIECE // stored.elements
        for at in range(0, stored.elements, PIECE):
            start = at // PIECE * piece_bytes
            count = min(piece_bytes, stored.size - start)
            raw = np.fromfile(self._path, np.uint8, count=count, offset=stored.offset + start)
            # One long row: the package works on 16 rows at a time, and short rows cost more calls than arithmetic.
            values = torch.from_numpy(dequantize(raw.reshape(1, -1), stored.kind))
            target[at : at + PIECE].copy_(values.view(-1))
        return target.view(stored.shape)

    def _stored(self, name: str) -> StoredTensor:
        stored = self._tensors.get(gguf_name(name, self._spec))
        if stored is None:
            raise ModelError(f"{self._path}: no tensor {gguf_name(name, self._spec)}")
        return stored

    def _check_kind(self, stored: StoredTensor) -> None:
        _, block_bytes = GGML_QUANT_SIZES[stored.kind]
        try:
            dequantize(np.zeros((1, block_bytes), np.uint8), stored.kind)
        except NotImplementedError as error:
            raise ModelError(
                f"{self._path}: {stored.name} is {stored.kind.name}, which the gguf package cannot dequantise"
            ) from error


def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(min(MOST_THREADS, os.cpu_count() or 1))


def gguf_name(name: str, spec: ModelSpec) -> str:
    """Hugging Face's tensor name as GGUF has it: model.layers.3.mlp.up_proj.weight is blk.3.ffn_up.weight."""
    module, _, kind = name.rpartition(".")
    if module in TOP_NAMES:
        return f"{TOP_NAMES[module]}.{kind}"
    _, _, layer, part = module.split(".", 3)
    norms = asdict(NORM_NAMES[spec.norm_place])
    places = {norm: NORMS[place] for place, norm in norms.items() if norm is not None}
    return f"blk.{layer}.{places.get(part) or LAYER_NAMES[part]}.{kind}"


def unpermute(tensor: Tensor, heads: int) -> Tensor:
    """A query or key weight's rows from llama.cpp's order to Hugging Face's: [heads, half, 2] -> [heads, 2, half]."""
    return tensor.view(heads, -1, 2, *tensor.shape[1:]).transpose(1, 2).reshape(tensor.shape)
