"""The tensors a decoder needs: Hugging Face's names and shapes, from a ModelSpec. Knows no file and no torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ..errors import ModelError
from .spec import ModelSpec, NormPlace

Shape = tuple[int, ...]
EMBEDDING = "model.embed_tokens.weight"
OUTPUT = "lm_head.weight"


@dataclass(frozen=True, slots=True)
class NormNames:
    """What checkpoints call a layer's norms: of what a block reads and of what it adds; None where there is none."""

    attention_in: str | None = None
    attention_out: str | None = None
    mlp_in: str | None = None
    mlp_out: str | None = None


NORM_NAMES: Mapping[NormPlace, NormNames] = {
    "before": NormNames(attention_in="input_layernorm", mlp_in="post_attention_layernorm"),
    "after": NormNames(attention_out="post_attention_layernorm", mlp_out="post_feedforward_layernorm"),
    "both": NormNames(
        attention_in="input_layernorm",
        attention_out="post_attention_layernorm",
        mlp_in="pre_feedforward_layernorm",
        mlp_out="post_feedforward_layernorm",
    ),
}


def tensor_shapes(spec: ModelSpec) -> dict[str, Shape]:
    """Every tensor by name, in the order they are used; lm_head.weight only when it is not tied."""
    shapes: dict[str, Shape] = {EMBEDDING: (spec.vocab_size, spec.hidden_size)}
    for layer in range(spec.layers):
        for name, shape in _layer_shapes(spec).items():
            shapes[f"model.layers.{layer}.{name}"] = shape
    shapes["model.norm.weight"] = (spec.hidden_size,)
    if not spec.tied:
        shapes[OUTPUT] = (spec.vocab_size, spec.hidden_size)
    return shapes


def _layer_shapes(spec: ModelSpec) -> dict[str, Shape]:
    names = NORM_NAMES[spec.norm_place]
    return {
        **_norm(names.attention_in, spec.hidden_size),
        **_attention_shapes(spec),
        **_norm(names.attention_out, spec.hidden_size),
        **_norm(names.mlp_in, spec.hidden_size),
        **_mlp_shapes(spec),
        **_norm(names.mlp_out, spec.hidden_size),
    }


def _attention_shapes(spec: ModelSpec) -> dict[str, Shape]:
    hidden, queries, keys = spec.hidden_size, spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim
    separate = {"q_proj": (queries, hidden), "k_proj": (keys, hidden), "v_proj": (keys, hidden)}
    fused = {"qkv_proj": (queries + 2 * keys, hidden)}
    sizes = {"none": (), "head": (spec.head_dim, spec.head_dim), "all": (queries, keys)}[spec.qk_norm]
    return {
        **_linear("self_attn", fused if spec.fused_qkv else separate, spec.qkv_bias),
        **{f"self_attn.{name}_norm.weight": (size,) for name, size in zip("qk", sizes, strict=False)},
        **_linear("self_attn", {"o_proj": (hidden, queries)}, spec.o_bias),
    }


def _mlp_shapes(spec: ModelSpec) -> dict[str, Shape]:
    hidden, mlp = spec.hidden_size, spec.intermediate_size
    separate = {"gate_proj": (mlp, hidden), "up_proj": (mlp, hidden)}
    fused = {"gate_up_proj": (2 * mlp, hidden)}
    inputs = fused if spec.fused_gate_up else separate
    return _linear("mlp", {**inputs, "down_proj": (hidden, mlp)}, spec.mlp_bias)


def _norm(name: str | None, size: int) -> dict[str, Shape]:
    return {f"{name}.weight": (size,)} if name else {}


def _linear(block: str, weights: Mapping[str, Shape], bias: bool) -> dict[str, Shape]:
    """[out, in] of each linear layer, and [out] of its bias."""
    shapes: dict[str, Shape] = {}
    for name, shape in weights.items():
        shapes[f"{block}.{name}.weight"] = shape
        if bias:
            shapes[f"{block}.{name}.bias"] = shape[:1]
    return shapes


def check_shape(name: str, found: Shape, expected: Shape, file: Path) -> None:
    """Raise ModelError when a file's tensor is not what its config says."""
    if found != expected:
        raise ModelError(f"{file}: {name} has shape {list(found)}, the model's config says {list(expected)}")
