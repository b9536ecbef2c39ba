"""The tensors a decoder needs: Hugging Face's names and shapes, from a ModelSpec. Knows no file and no torch."""

from collections.abc import Mapping
from pathlib import Path

from ..errors import ModelError
from .spec import ModelSpec

Shape = tuple[int, ...]
EMBEDDING = "model.embed_tokens.weight"
OUTPUT = "lm_head.weight"


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
    hidden, mlp = spec.hidden_size, spec.intermediate_size
    queries, keys = spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim
    attention = {"q_proj": (queries, hidden), "k_proj": (keys, hidden), "v_proj": (keys, hidden)}
    feed_forward = {"gate_proj": (mlp, hidden), "up_proj": (mlp, hidden), "down_proj": (hidden, mlp)}
    return {
        "input_layernorm.weight": (hidden,),
        **_linear("self_attn", attention, spec.qkv_bias),
        **_linear("self_attn", {"o_proj": (hidden, queries)}, spec.o_bias),
        "post_attention_layernorm.weight": (hidden,),
        **_linear("mlp", feed_forward, spec.mlp_bias),
    }


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
