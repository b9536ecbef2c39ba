"""A GGUF file's metadata as a ModelSpec. Knows no torch and no weights.

Keys: github.com/ggml-org/ggml, docs/gguf.md. llama.cpp writes Llama and Mistral alike as the architecture `llama`.
"""

import struct

from .fields import MOST_LAYERS, Fields
from .gguf_header import GgufHeader
from .spec import ModelSpec, RopeSpec

ARCHITECTURE = "llama"
ROPE_FACTORS = "rope_freqs.weight"
EOS_KEYS = ("eos_token_id", "eot_token_id", "eom_token_id")
SAMPLING = {"temp": "temperature", "top_k": "top_k", "top_p": "top_p", "min_p": "min_p"}
NATIVE_DTYPES = {"F32": "float32", "F16": "float16"}  # everything else is as well served by bfloat16


def read_gguf_spec(header: GgufHeader) -> ModelSpec:
    """The model a GGUF file describes. Raises ModelError naming file and key."""
    architecture = Fields(header.metadata, header.path).text("general.architecture")
    if architecture != ARCHITECTURE:
        raise Fields(header.metadata, header.path).error(
            "general.architecture", f"is {architecture}; known is {ARCHITECTURE}"
        )
    config = Fields(header.metadata, header.path, f"{ARCHITECTURE}.")
    tokens = Fields(header.metadata, header.path, "tokenizer.ggml.")
    _refuse_unknown_features(config)
    heads = config.integer("attention.head_count")
    kv_heads = config.integer("attention.head_count_kv", heads)
    if heads % kv_heads:
        raise config.error("attention.head_count_kv", f"({kv_heads}) must divide attention.head_count ({heads})")
    hidden, vocab_size = config.integer("embedding_length"), _vocab_size(config, tokens)
    head_dim = _head_dim(config, hidden, heads)
    return ModelSpec(
        architecture=ARCHITECTURE,
        vocab_size=vocab_size,
        hidden_size=hidden,
        intermediate_size=config.integer("feed_forward_length"),
        layers=config.integer("block_count", high=MOST_LAYERS),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        context=config.integer("context_length"),
        norm_eps=config.number("attention.layer_norm_rms_epsilon"),
        rope=_rope(config, header, head_dim),
        tied="output.weight" not in header.tensors,
        qkv_bias="blk.0.attn_q.bias" in header.tensors,
        o_bias="blk.0.attn_output.bias" in header.tensors,
        mlp_bias="blk.0.ffn_gate.bias" in header.tensors,
        native_dtype=_native_dtype(header),
        eos_ids=_eos_ids(tokens, vocab_size),
        bos_id=next(iter(tokens.token_ids("bos_token_id", vocab_size)), None),
        defaults=Fields(header.metadata, header.path, "general.sampling.").sampling(SAMPLING),
    )


def _refuse_unknown_features(config: Fields) -> None:
    """Refuse in words what would otherwise compute something else than the model means."""
    if config.integer("expert_count", 0, low=0):
        raise config.error("expert_count", "is set: mixtures of experts are not built")
    window = config.integer("attention.sliding_window", 0, low=0)
    if 0 < window < config.integer("context_length"):
        raise config.error("attention.sliding_window", f"is {window}: windowed attention is not built")


def _vocab_size(config: Fields, tokens: Fields) -> int:
    if config.has("vocab_size"):
        return config.integer("vocab_size")
    listed = tokens.get("tokens")
    return len(listed) if isinstance(listed, list) and listed else config.integer("vocab_size")


def _head_dim(config: Fields, hidden: int, heads: int) -> int:
    default = config.integer("rope.dimension_count", hidden // heads)
    head_dim = config.integer("attention.key_length", default)
    if config.integer("attention.value_length", head_dim) != head_dim:
        raise config.error("attention.value_length", f"differs from the key's length ({head_dim})")
    if default != head_dim or head_dim % 2:
        raise config.error("rope.dimension_count", f"({default}) must be the even head size ({head_dim})")
    return head_dim


def _eos_ids(tokens: Fields, vocab_size: int) -> tuple[int, ...]:
    ids = [token for key in EOS_KEYS for token in tokens.token_ids(key, vocab_size)]
    return tuple(dict.fromkeys(ids))


def _rope(config: Fields, header: GgufHeader, head_dim: int) -> RopeSpec:
    theta = config.number("rope.freq_base", 10_000.0)
    kind = config.text("rope.scaling.type", "linear" if config.has("rope.scale_linear") else "none")
    factors = _frequency_factors(header, head_dim)
    if kind == "none":
        return RopeSpec(theta=theta, frequency_factors=factors)
    if kind != "linear":
        raise config.error("rope.scaling.type", f"is {kind}; known are none and linear")
    factor = config.number("rope.scaling.factor", config.number("rope.scale_linear", 1.0))
    return RopeSpec(theta=theta, kind="linear", factor=factor, frequency_factors=factors)


def _frequency_factors(header: GgufHeader, head_dim: int) -> tuple[float, ...]:
    """llama3 scaling, which llama.cpp stores worked out: one divisor a frequency."""
    stored = header.tensors.get(ROPE_FACTORS)
    if stored is None:
        return ()
    problem = Fields({}, header.path).error
    if stored.kind.name != "F32" or stored.shape != (head_dim // 2,):
        raise problem(ROPE_FACTORS, f"must be F32 [{head_dim // 2}], not {stored.kind.name} {list(stored.shape)}")
    with header.path.open("rb") as file:
        file.seek(stored.offset)
        factors = struct.unpack(f"<{head_dim // 2}f", file.read(stored.size))
    if not all(0 < factor < float("inf") for factor in factors):
        raise problem(ROPE_FACTORS, "must be numbers above 0")
    return factors


def _native_dtype(header: GgufHeader) -> str:
    """By the type of most of the weights."""
    sizes: dict[str, int] = {}
    for tensor in header.tensors.values():
        sizes[tensor.kind.name] = sizes.get(tensor.kind.name, 0) + tensor.elements
    return NATIVE_DTYPES.get(max(sizes, key=lambda kind: sizes[kind], default=""), "bfloat16")
