"""Tiny random models of architectures that our decoder does not know, as Hugging Face directories."""

from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoModelForCausalLM, PreTrainedConfig

from tiny_models import SMALLEST_VOCAB, save_tokenizer

COMMON: dict[str, Any] = {
    "vocab_size": 320,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "tie_word_embeddings": False,
    "initializer_range": 0.1,  # logits far enough apart that an error shows
    "pad_token_id": None,
    "bos_token_id": 0,
    "eos_token_id": 1,
}
EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 48}
YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 8.0, "original_max_position_embeddings": 32}

# class of the config, and what sets the architecture apart: windows that a short context outgrows, shapes that differ
OTHERS: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt_neox": ("GPTNeoXConfig", {"rotary_pct": 0.25}),  # parallel residual, layer norms
    "opt": ("OPTConfig", {"ffn_dim": 96, "word_embed_proj_dim": 64}),  # learned positions
    "stablelm": ("StableLmConfig", {"use_qkv_bias": True, "qk_layernorm": True}),
    "cohere2": ("Cohere2Config", {"sliding_window": 9, "logit_scale": 0.5, "sliding_window_pattern": 2}),
    "deepseek_v3": (  # latent attention: keys and values of different size, and no grouping
        "DeepseekV3Config",
        {
            **EXPERTS,
            "num_key_value_heads": 4,
            "n_routed_experts": 4,
            "n_group": 2,
            "topk_group": 1,
            "first_k_dense_replace": 1,
            "q_lora_rank": 24,
            "kv_lora_rank": 16,
            "qk_rope_head_dim": 8,
            "qk_nope_head_dim": 16,
            "v_head_dim": 12,
        },
    ),
    "gpt_oss": (  # attention sinks
        "GptOssConfig",
        {"head_dim": 24, "num_local_experts": 4, "sliding_window": 10, "rope_parameters": YARN, **EXPERTS},
    ),
    "exaone": ("ExaoneConfig", {}),  # a Llama by another name
    "olmo3": (  # windows with a rope of their own
        "Olmo3Config",
        {"num_hidden_layers": 5, "sliding_window": 9, "rope_parameters": YARN},
    ),
    "qwen3_moe": ("Qwen3MoeConfig", {"head_dim": 24, "num_experts": 4, **EXPERTS}),
    "lfm2": (  # convolutions beside attention
        "Lfm2Config",
        {"layer_types": ["conv", "full_attention"]},
    ),
    "inkling": ("InklingTextConfig", {}),  # a bias by position
    "llama4": (  # attention in chunks
        "Llama4TextConfig",
        {"head_dim": 16, "num_local_experts": 2, "intermediate_size_mlp": 96},
    ),
}


def other_config(name: str, **changes: Any) -> PreTrainedConfig:
    """The config of one of OTHERS; `changes` are keys of it."""
    kind, features = OTHERS[name]
    return getattr(transformers, kind)(**{**COMMON, **features, **changes})


def tiny_other(path: Path | str, name: str, *, seed: int = 0, **changes: Any) -> Path:
    """One of OTHERS in `path`, with a tokenizer."""
    config = other_config(name, **changes)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.dim() == 1:  # biases and norms, which start at zero and one
                    parameter.add_(torch.randn_like(parameter), alpha=0.1)
    model.save_pretrained(path)
    return save_tokenizer(path, max(config.vocab_size, SMALLEST_VOCAB))
