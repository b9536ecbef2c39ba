"""Writes a tiny model's directory as a GGUF file the way llama.cpp's converter does, for tests."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter
from gguf.quants import quantize
from transformers import AutoModelForCausalLM, PreTrainedModel

F32 = GGMLQuantizationType.F32
LAYER_PARTS = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.qkv_proj": "attn_qkv",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.gate_up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
MORE_NORMS = {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
TOP_PARTS = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
# others have the name of their model_type
ARCHITECTURES = {"mistral": "llama", "gemma3_text": "gemma3", "olmo3": "olmo2"}
INTERLEAVED = ("llama", "smollm3", "granite")


def write_gguf(
    path: Path,
    directory: Path,
    *,
    kind: GGMLQuantizationType = F32,
    architecture: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    without: tuple[str, ...] = (),
    tensors: Mapping[str, np.ndarray] | None = None,
) -> Path:
    """The model in `directory` as `path`. Matrices are stored as `kind`; vectors stay F32.

    metadata: further keys, or other values; None leaves a key out. without: GGUF tensors to leave out. tensors: F32
    tensors to add.
    """
    model = AutoModelForCausalLM.from_pretrained(directory)
    family = ARCHITECTURES.get(model.config.model_type, model.config.model_type)
    keys = {**standard_metadata(model, family), **(metadata or {})}
    writer = GGUFWriter(path, architecture or family)
    for key, value in keys.items():
        if value is not None:
            add_value(writer, key, value)
    for name, tensor in model.state_dict().items():
        stored = stored_name(name, family)
        if stored in without or (stored == "output.weight" and model.config.tie_word_embeddings):
            continue
        values = in_file_order(name, tensor.numpy(), model, family)
        as_kind = kind if values.ndim > 1 else F32
        writer.add_tensor(stored, np.ascontiguousarray(quantize(values, as_kind)), raw_dtype=as_kind)
    for name, array in (tensors or {}).items():
        writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def standard_metadata(model: PreTrainedModel, family: str) -> dict[str, Any]:
    config = model.config
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    rope = config.rope_parameters.get("full_attention", config.rope_parameters)
    keys = {
        "block_count": config.num_hidden_layers,
        "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size,
        "feed_forward_length": config.intermediate_size,
        "attention.head_count": config.num_attention_heads,
        "attention.head_count_kv": config.num_key_value_heads,
        "attention.key_length": head_dim,
        "attention.value_length": head_dim,
        "attention.layer_norm_rms_epsilon": config.rms_norm_eps,
        "rope.freq_base": float(rope["rope_theta"]),
        "rope.dimension_count": int(head_dim * rope.get("partial_rotary_factor", 1.0)),
        "vocab_size": config.vocab_size,
        **{key: getattr(config, name, None) for key, name in FAMILY_KEYS.get(family, {}).items()},
    }
    if "factor" in rope:
        keys |= {"rope.scaling.type": rope["rope_type"], "rope.scaling.factor": float(rope["factor"])}
    return {
        **{f"{family}.{key}": value for key, value in keys.items()},
        "tokenizer.ggml.bos_token_id": config.bos_token_id,
        "tokenizer.ggml.eos_token_id": config.eos_token_id,
    }


FAMILY_KEYS = {
    "llama": {"attention.sliding_window": "sliding_window"},
    "gemma2": {
        "attention.sliding_window": "sliding_window",
        "attn_logit_softcapping": "attn_logit_softcapping",
        "final_logit_softcapping": "final_logit_softcapping",
    },
    "gemma3": {"attention.sliding_window": "sliding_window"},
    "olmo2": {"attention.sliding_window": "sliding_window"},
    "phi3": {"attention.sliding_window": "sliding_window"},
    "granite": {
        "embedding_scale": "embedding_multiplier",
        "attention.scale": "attention_multiplier",
        "residual_scale": "residual_multiplier",
        "logit_scale": "logits_scaling",
    },
}


def add_value(writer: GGUFWriter, key: str, value: Any) -> None:
    if key == "general.alignment":
        return writer.add_custom_alignment(value)
    add = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}
    add.get(type(value), writer.add_array)(key, value)


def stored_name(name: str, family: str) -> str:
    """model.layers.1.mlp.up_proj.weight as blk.1.ffn_up.weight."""
    module, kind = name.rsplit(".", 1)
    if module in TOP_PARTS:
        return f"{TOP_PARTS[module]}.{kind}"
    layer, part = module.removeprefix("model.layers.").split(".", 1)
    parts = {**LAYER_PARTS, **MORE_NORMS} if family in ("gemma2", "gemma3", "olmo2") else LAYER_PARTS
    return f"blk.{layer}.{parts[part]}.{kind}"


def in_file_order(name: str, values: np.ndarray, model: PreTrainedModel, family: str) -> np.ndarray:
    if "gemma" in family and "norm" in name:
        return values + 1
    if family in INTERLEAVED and "q_proj" in name:
        return permute(values, model.config.num_attention_heads)
    if family in INTERLEAVED and "k_proj" in name:
        return permute(values, model.config.num_key_value_heads)
    return values


def permute(values: np.ndarray, heads: int) -> np.ndarray:
    """The converter's order of query and key rows: the two halves of each head, interleaved."""
    split = values.reshape(heads, 2, values.shape[0] // heads // 2, *values.shape[1:])
    return split.swapaxes(1, 2).reshape(values.shape)
