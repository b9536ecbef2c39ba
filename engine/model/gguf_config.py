"""A GGUF file's metadata as a ModelSpec. Knows no torch and no weights.

Keys: github.com/ggml-org/ggml, docs/gguf.md. llama.cpp writes Llama and Mistral alike as the architecture `llama`.
"""

from .fields import MOST_LAYERS, Fields
from .gguf_families import GGUF_FAMILIES
from .gguf_header import GgufHeader
from .gguf_rope import read_gguf_rope
from .rope_config import longest_context
from .spec import ModelSpec

EOS_KEYS = ("eos_token_id", "eot_token_id", "eom_token_id")
SAMPLING = {"temp": "temperature", "top_k": "top_k", "top_p": "top_p", "min_p": "min_p"}
NATIVE_DTYPES = {"F32": "float32", "F16": "float16"}  # everything else is as well served by bfloat16


def read_gguf_spec(header: GgufHeader) -> ModelSpec:
    """The model a GGUF file describes. Raises ModelError naming file and key."""
    general = Fields(header.metadata, header.path)
    architecture = general.text("general.architecture")
    if architecture not in GGUF_FAMILIES:
        raise general.error("general.architecture", f"is {architecture}; known are {', '.join(GGUF_FAMILIES)}")
    config = Fields(header.metadata, header.path, f"{architecture}.")
    if config.integer("expert_count", 0, low=0):
        raise config.error("expert_count", "is set: mixtures of experts run from a Hugging Face folder only")
    return GGUF_FAMILIES[architecture].features(_plain(config, header, architecture), config)


def _plain(config: Fields, header: GgufHeader, architecture: str) -> ModelSpec:
    """What all families have."""
    tokens = Fields(header.metadata, header.path, "tokenizer.ggml.")
    heads = config.integer("attention.head_count")
    kv_heads = config.integer("attention.head_count_kv", heads)
    if heads % kv_heads:
        raise config.error("attention.head_count_kv", f"({kv_heads}) must divide attention.head_count ({heads})")
    hidden, vocab_size = config.integer("embedding_length"), _vocab_size(config, tokens)
    head_dim = _head_dim(config, hidden // heads, GGUF_FAMILIES[architecture].interleaved)
    context = config.integer("context_length")
    rope = read_gguf_rope(config, header, head_dim, context)
    return ModelSpec(
        architecture=architecture,
        vocab_size=vocab_size,
        hidden_size=hidden,
        intermediate_size=config.integer("feed_forward_length"),
        layers=config.integer("block_count", high=MOST_LAYERS),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        context=longest_context(rope, context),
        norm_eps=config.number("attention.layer_norm_rms_epsilon"),
        rope=rope,
        tied="output.weight" not in header.tensors,
        qkv_bias="blk.0.attn_q.bias" in header.tensors or "blk.0.attn_qkv.bias" in header.tensors,
        o_bias="blk.0.attn_output.bias" in header.tensors,
        mlp_bias="blk.0.ffn_gate.bias" in header.tensors,
        native_dtype=_native_dtype(header),
        eos_ids=_eos_ids(tokens, vocab_size),
        bos_id=next(iter(tokens.token_ids("bos_token_id", vocab_size)), None),
        defaults=Fields(header.metadata, header.path, "general.sampling.").sampling(SAMPLING),
    )


def _vocab_size(config: Fields, tokens: Fields) -> int:
    if config.has("vocab_size"):
        return config.integer("vocab_size")
    listed = tokens.get("tokens")
    return len(listed) if isinstance(listed, list) and listed else config.integer("vocab_size")


def _head_dim(config: Fields, share: int, interleaved: bool) -> int:
    """A head's size; `share` is its part of the hidden size. Interleaved rows turn whole heads."""
    turned = config.integer("rope.dimension_count", share)
    head_dim = config.integer("attention.key_length", turned if interleaved else share)
    if config.integer("attention.value_length", head_dim) != head_dim:
        raise config.error("attention.value_length", f"differs from the key's length ({head_dim})")
    if turned % 2 or (turned != head_dim if interleaved else turned > head_dim):
        part = "be the even" if interleaved else "be an even part of the"
        raise config.error("rope.dimension_count", f"({turned}) must {part} head size ({head_dim})")
    return head_dim


def _eos_ids(tokens: Fields, vocab_size: int) -> tuple[int, ...]:
    ids = [token for key in EOS_KEYS for token in tokens.token_ids(key, vocab_size)]
    return tuple(dict.fromkeys(ids))


def _native_dtype(header: GgufHeader) -> str:
    """By the type of most of the weights."""
    sizes: dict[str, int] = {}
    for tensor in header.tensors.values():
        sizes[tensor.kind.name] = sizes.get(tensor.kind.name, 0) + tensor.elements
    return NATIVE_DTYPES.get(max(sizes, key=lambda kind: sizes[kind], default=""), "bfloat16")
