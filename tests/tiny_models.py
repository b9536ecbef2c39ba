"""Tiny random models of every family as Hugging Face directories, for tests: config, weights, tokenizer.

Built by transformers, so that what fairstep loads is what others write. Weights are float32 and seeded.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    MistralConfig,
    PreTrainedConfig,
    PreTrainedTokenizerFast,
)

SPECIALS = ("<s>", "</s>", "<|im_start|>", "<|im_end|>")
BYTE_TOKENS = 256
SMALLEST_VOCAB = len(SPECIALS) + BYTE_TOKENS
CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}"
    "<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TRAINING_TEXT = ("the cat sat on the mat and the dog sat on the log", "hello there, how are you today?")


# For each family the class of its config and values that turn on all that sets it apart: windows that a short
# context outgrows, caps and scales that show in the logits.
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaConfig", {}),
    "mistral": ("MistralConfig", {"sliding_window": 9, "head_dim": 24}),
    "qwen2": ("Qwen2Config", {"use_sliding_window": True, "sliding_window": 16, "max_window_layers": 1}),
    "qwen3": ("Qwen3Config", {"head_dim": 24, "attention_bias": True}),
    "gemma": ("GemmaConfig", {"head_dim": 24}),
    "gemma2": (
        "Gemma2Config",
        {
            "head_dim": 24,
            "sliding_window": 8,
            "query_pre_attn_scalar": 6,
            "attn_logit_softcapping": 0.5,
            "final_logit_softcapping": 1.0,
        },
    ),
    "gemma3": (
        "Gemma3TextConfig",
        {
            "head_dim": 16,
            "sliding_window": 10,
            "query_pre_attn_scalar": 6,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1_000_000.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
            },
        },
    ),
    "phi3": ("Phi3Config", {"sliding_window": 12}),
    "smollm3": ("SmolLM3Config", {"no_rope_layers": [1, 0, 1], "use_sliding_window": True, "sliding_window": 11}),
    "olmo2": ("Olmo2Config", {}),
    "granite": (
        "GraniteConfig",
        {
            "embedding_multiplier": 12.0,
            "attention_multiplier": 0.7,
            "residual_multiplier": 0.4,
            "logits_scaling": 0.5,
        },
    ),
}


def tiny_family(path: Path | str, family: str, *, seed: int = 0, shards: int | None = None, **changes: Any) -> Path:
    """A model of FAMILIES in `path`; `changes` are keys of its config."""
    kind, features = FAMILIES[family]
    values = {**_common(False, None, 4, 2, None, 64, 320, 3, 512), **features, **changes}
    if "head_dim" not in features and "head_dim" not in changes:
        del values["head_dim"]
    config: PreTrainedConfig = getattr(transformers, kind)(**values)
    return _save(config, Path(path), seed, shards)


def tiny_llama(
    path: Path | str,
    *,
    seed: int = 0,
    tied: bool = False,
    attention_bias: bool = False,
    mlp_bias: bool = False,
    rope: Mapping[str, Any] | None = None,
    heads: int = 4,
    kv_heads: int = 2,
    head_dim: int | None = None,
    hidden: int = 64,
    vocab: int = 320,
    layers: int = 2,
    context: int = 512,
    shards: int | None = None,
) -> Path:
    """A LlamaForCausalLM in `path`. `rope` is transformers' rope_parameters; `shards` asks for several weight files.

    Biases get random values too (transformers starts them at zero), and so do the norms.
    """
    config = LlamaConfig(
        **_common(tied, rope, heads, kv_heads, head_dim, hidden, vocab, layers, context),
        attention_bias=attention_bias,
        mlp_bias=mlp_bias,
    )
    return _save(config, Path(path), seed, shards)


def tiny_mistral(
    path: Path | str,
    *,
    seed: int = 0,
    tied: bool = False,
    rope: Mapping[str, Any] | None = None,
    heads: int = 4,
    kv_heads: int = 2,
    head_dim: int | None = None,
    hidden: int = 64,
    vocab: int = 320,
    layers: int = 2,
    context: int = 512,
    sliding_window: int | None = None,
    shards: int | None = None,
) -> Path:
    """A MistralForCausalLM in `path`; see tiny_llama."""
    config = MistralConfig(
        **_common(tied, rope, heads, kv_heads, head_dim, hidden, vocab, layers, context),
        sliding_window=sliding_window,
    )
    return _save(config, Path(path), seed, shards)


def save_tokenizer(path: Path | str, vocab: int = 320) -> Path:
    """A byte-level BPE of at most `vocab` tokens in `path`: ids 0..3 are SPECIALS; it knows every byte."""
    if vocab < SMALLEST_VOCAB:
        raise ValueError(f"a byte-level vocabulary has at least {SMALLEST_VOCAB} tokens, not {vocab}")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab,
        special_tokens=list(SPECIALS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TRAINING_TEXT, trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<s>",
        eos_token="</s>",
        additional_special_tokens=["<|im_start|>", "<|im_end|>"],
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
    )
    fast.save_pretrained(path)
    return Path(path)


def _common(
    tied: bool,
    rope: Mapping[str, Any] | None,
    heads: int,
    kv_heads: int,
    head_dim: int | None,
    hidden: int,
    vocab: int,
    layers: int,
    context: int,
) -> dict[str, Any]:
    """What all configs share; bos is 0 and eos is 1, as in the tokenizer."""
    return {
        "vocab_size": vocab,
        "hidden_size": hidden,
        "intermediate_size": 2 * hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": head_dim if head_dim is not None else hidden // heads,
        "max_position_embeddings": context,
        "rope_parameters": dict(rope) if rope is not None else {"rope_type": "default", "rope_theta": 10_000.0},
        "tie_word_embeddings": tied,
        "initializer_range": 0.1,  # logits far enough apart that an error shows
        "bos_token_id": 0,
        "eos_token_id": 1,
        "pad_token_id": None,
    }


def _save(config: PreTrainedConfig, path: Path, seed: int, shards: int | None) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.dim() == 1:
                    parameter.add_(torch.randn_like(parameter), alpha=0.1)
    size = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
    limit = {} if shards is None else {"max_shard_size": size // shards + 1}
    model.save_pretrained(path, **limit)
    save_tokenizer(path, max(config.vocab_size, SMALLEST_VOCAB))
    return path
