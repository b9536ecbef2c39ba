"""Writes a tiny Llama directory as a GGUF file the way llama.cpp's converter does, for tests."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter
from gguf.quants import quantize
from transformers import LlamaForCausalLM

F32 = GGMLQuantizationType.F32
LAYER_PARTS = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
TOP_PARTS = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def write_gguf(
    path: Path,
    directory: Path,
    *,
    kind: GGMLQuantizationType = F32,
    architecture: str = "llama",
    metadata: Mapping[str, Any] | None = None,
    without: tuple[str, ...] = (),
    tensors: Mapping[str, np.ndarray] | None = None,
) -> Path:
    """The model in `directory` as `path`. Matrices are stored as `kind`; vectors stay F32.

    metadata: further keys, or other values; None leaves a key out. without: GGUF tensors to leave out. tensors: F32
    tensors to add.
    """
    model = LlamaForCausalLM.from_pretrained(directory)
    keys = {**standard_metadata(model), **(metadata or {})}
    writer = GGUFWriter(path, architecture)
    for key, value in keys.items():
        if value is not None:
            add_value(writer, key, value)
    for name, tensor in model.state_dict().items():
        stored = stored_name(name)
        if stored in without or (stored == "output.weight" and model.config.tie_word_embeddings):
            continue
        values = in_file_order(name, tensor.numpy(), model)
        as_kind = kind if values.ndim > 1 else F32
        writer.add_tensor(stored, np.ascontiguousarray(quantize(values, as_kind)), raw_dtype=as_kind)
    for name, array in (tensors or {}).items():
        writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def standard_metadata(model: LlamaForCausalLM) -> dict[str, Any]:
    config = model.config
    return {
        "llama.block_count": config.num_hidden_layers,
        "llama.context_length": config.max_position_embeddings,
        "llama.embedding_length": config.hidden_size,
        "llama.feed_forward_length": config.intermediate_size,
        "llama.attention.head_count": config.num_attention_heads,
        "llama.attention.head_count_kv": config.num_key_value_heads,
        "llama.attention.key_length": config.head_dim,
        "llama.attention.value_length": config.head_dim,
        "llama.attention.layer_norm_rms_epsilon": config.rms_norm_eps,
        "llama.rope.freq_base": float(config.rope_parameters["rope_theta"]),
        "llama.rope.dimension_count": config.head_dim,
        "llama.vocab_size": config.vocab_size,
        "tokenizer.ggml.bos_token_id": config.bos_token_id,
        "tokenizer.ggml.eos_token_id": config.eos_token_id,
    }


def add_value(writer: GGUFWriter, key: str, value: Any) -> None:
    if key == "general.alignment":
        return writer.add_custom_alignment(value)
    add = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}
    add.get(type(value), writer.add_array)(key, value)


def stored_name(name: str) -> str:
    """model.layers.1.mlp.up_proj.weight as blk.1.ffn_up.weight."""
    module, kind = name.rsplit(".", 1)
    if module in TOP_PARTS:
        return f"{TOP_PARTS[module]}.{kind}"
    layer, part = module.removeprefix("model.layers.").split(".", 1)
    return f"blk.{layer}.{LAYER_PARTS[part]}.{kind}"


def in_file_order(name: str, values: np.ndarray, model: LlamaForCausalLM) -> np.ndarray:
    if "q_proj" in name:
        return permute(values, model.config.num_attention_heads)
    return permute(values, model.config.num_key_value_heads) if "k_proj" in name else values


def permute(values: np.ndarray, heads: int) -> np.ndarray:
    """The converter's order of query and key rows: the two halves of each head, interleaved."""
    split = values.reshape(heads, 2, values.shape[0] // heads // 2, *values.shape[1:])
    return split.swapaxes(1, 2).reshape(values.shape)
