"""A Hugging Face directory's config.json and generation_config.json as a ModelSpec. Knows no torch and no weights.

What families have in common is read here, what they differ in by `families`, rotary positions by `rope_config`.
"""

from collections.abc import Mapping
from pathlib import Path

from .families import FAMILIES, Family
from .fields import MOST_LAYERS, Fields, NotOurs, read_json
from .rope_config import longest_context, read_local_rope
from .spec import Activation, ModelSpec

__all__ = ["NotOurs", "read_hf_spec"]

ACTIVATIONS: Mapping[str, Activation] = {
    "silu": "silu",
    "swish": "silu",
    "gelu": "gelu",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_new": "gelu_tanh",
}
DTYPES = ("float32", "bfloat16", "float16")
SAMPLING = {name: name for name in ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")}
GENERATION_FILE = "generation_config.json"


def read_hf_spec(directory: Path) -> ModelSpec:
    """The model a directory describes.

    Raises ModelError naming file and key; NotOurs, one of them, where the config is sound but our decoder lacks it.
    """
    path = directory / "config.json"
    values = read_json(path)
    given = Fields(values, path)
    if given.has("quantization_config"):
        raise given.error("quantization_config", "is set: quantised weights are read from GGUF files only")
    architecture, family = _family(given)
    config = Fields({**family.absent, **values}, path)
    return family.features(_plain(config, architecture, family, read_generation(directory)), config)


def _plain(config: Fields, architecture: str, family: Family, generation: Fields) -> ModelSpec:
    """What all families have."""
    heads, hidden = config.integer("num_attention_heads"), config.integer("hidden_size")
    kv_heads = config.integer("num_key_value_heads", heads)
    if heads % kv_heads:
        raise config.error("num_key_value_heads", f"({kv_heads}) must divide num_attention_heads ({heads})")
    vocab_size, head_dim = config.integer("vocab_size"), _head_dim(config, hidden, heads)
    rope, local_rope = family.rope(config, head_dim), read_local_rope(config, head_dim)
    return ModelSpec(
        architecture=architecture,
        vocab_size=vocab_size,
        hidden_size=hidden,
        intermediate_size=config.integer("intermediate_size"),
        layers=config.integer("num_hidden_layers", high=MOST_LAYERS),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        context=longest_context(rope, config.integer("max_position_embeddings")),
        norm_eps=config.number("rms_norm_eps"),
        rope=rope,
        local_rope=local_rope if local_rope != rope else None,
        tied=config.flag("tie_word_embeddings"),
        activation=_activation(config, family.activation),
        native_dtype=_dtype(config),
        eos_ids=generation.token_ids("eos_token_id", vocab_size) or config.token_ids("eos_token_id", vocab_size),
        bos_id=next(iter(config.token_ids("bos_token_id", vocab_size)), None),
        defaults=sampling_defaults(generation),
    )


def _family(config: Fields) -> tuple[str, Family]:
    names = config.get("architectures")
    if not isinstance(names, list) or len(names) != 1 or not isinstance(names[0], str):
        raise config.error("architectures", f"must be a list of one name, not {names!r}")
    if names[0] not in FAMILIES:
        raise config.not_ours("architectures", f"is {names[0]}; known are {', '.join(FAMILIES)}")
    kind, own = config.text("model_type", ""), names[0].removesuffix("ForCausalLM").lower()
    if kind and kind.removesuffix("_text") != own:  # transformers computes EXAONE as a Llama, under other names
        raise config.not_ours("model_type", f"is {kind}, not {own}: its keys and tensors may have other names")
    return names[0], FAMILIES[names[0]]


def _activation(config: Fields, key: str) -> Activation:
    name = config.text(key, "silu")
    if name not in ACTIVATIONS:
        raise config.not_ours(key, f"is {name}; known are {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]


def _head_dim(config: Fields, hidden: int, heads: int) -> int:
    if not config.has("head_dim") and hidden % heads:
        raise config.error("hidden_size", f"({hidden}) is not a multiple of num_attention_heads ({heads})")
    head_dim = config.integer("head_dim", hidden // heads)
    if head_dim % 2:
        raise config.error("head_dim", f"must be even for rotary positions, not {head_dim}")
    return head_dim


def _dtype(config: Fields) -> str:
    """`dtype`, or `torch_dtype` as it was called before transformers 5; float32 when absent, as there."""
    key = "dtype" if config.has("dtype") else "torch_dtype"
    name = config.text(key, "float32").removeprefix("torch.")
    if name not in DTYPES:
        raise config.error(key, f"is {name}; known are {', '.join(DTYPES)}")
    return name


def read_generation(directory: Path) -> Fields:
    """The keys of generation_config.json; none when there is no such file."""
    path = directory / GENERATION_FILE
    return Fields(read_json(path) if path.exists() else {}, path)


def sampling_defaults(generation: Fields) -> dict[str, float]:
    """What generation_config.json gives. An explicit `"do_sample": false` switches all of it off, absence does not:
    transformers' own default is greedy, but who writes a temperature there means it."""
    if not generation.flag("do_sample", True):
        return {}
    return generation.sampling(SAMPLING)
