"""A Hugging Face directory's config.json and generation_config.json as a ModelSpec. Knows no torch and no weights.

Keys and their meaning follow transformers (LlamaConfig, MistralConfig, modeling_rope_utils), in both spellings of rope.
"""

from pathlib import Path
from typing import Any, get_args

from .fields import MOST_LAYERS, Fields, read_json
from .spec import ModelSpec, RopeKind, RopeSpec

ARCHITECTURES = ("LlamaForCausalLM", "MistralForCausalLM")
DTYPES = ("float32", "bfloat16", "float16")
SAMPLING = {name: name for name in ("temperature", "top_k", "top_p", "min_p")}
GENERATION_FILE = "generation_config.json"


def read_hf_spec(directory: Path) -> ModelSpec:
    """The model a directory describes. Raises ModelError naming file and key."""
    path = directory / "config.json"
    values = read_json(path)
    config = Fields(values, path)
    architecture = _architecture(config)
    _refuse_unknown_features(config)
    heads, hidden = config.integer("num_attention_heads"), config.integer("hidden_size")
    kv_heads = config.integer("num_key_value_heads", heads)
    if heads % kv_heads:
        raise config.error("num_key_value_heads", f"({kv_heads}) must divide num_attention_heads ({heads})")
    vocab_size = config.integer("vocab_size")
    generation = _generation(directory)
    return ModelSpec(
        architecture=architecture,
        vocab_size=vocab_size,
        hidden_size=hidden,
        intermediate_size=config.integer("intermediate_size"),
        layers=config.integer("num_hidden_layers", high=MOST_LAYERS),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=_head_dim(config, hidden, heads),
        context=config.integer("max_position_embeddings"),
        norm_eps=config.number("rms_norm_eps"),
        rope=_rope(config),
        tied=config.flag("tie_word_embeddings"),
        qkv_bias=config.flag("attention_bias"),
        o_bias=config.flag("attention_bias"),
        mlp_bias=config.flag("mlp_bias"),
        native_dtype=_dtype(config),
        eos_ids=generation.token_ids("eos_token_id", vocab_size) or config.token_ids("eos_token_id", vocab_size),
        bos_id=next(iter(config.token_ids("bos_token_id", vocab_size)), None),
        defaults=_sampling_defaults(generation),
    )


def _architecture(config: Fields) -> str:
    names = config.get("architectures")
    if not isinstance(names, list) or len(names) != 1:
        raise config.error("architectures", f"must be a list of one name, not {names!r}")
    if names[0] not in ARCHITECTURES:
        raise config.error("architectures", f"is {names[0]}; known are {', '.join(ARCHITECTURES)}")
    return str(names[0])


def _refuse_unknown_features(config: Fields) -> None:
    """Refuse in words what would otherwise compute something else than the model means."""
    activation = config.text("hidden_act", "silu")
    if activation != "silu":
        raise config.error("hidden_act", f"is {activation}; only silu is known")
    if config.has("quantization_config"):
        raise config.error("quantization_config", "is set: quantised weights are read from GGUF files only")
    window = config.get("sliding_window")
    if window is not None and config.integer("sliding_window") < config.integer("max_position_embeddings"):
        raise config.error("sliding_window", f"is {window}, less than the context: windowed attention is not built")


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


def _rope(config: Fields) -> RopeSpec:
    """Both spellings: rope_theta with rope_scaling, and rope_parameters, which holds all of it."""
    key = "rope_scaling" if config.get("rope_scaling") else "rope_parameters"
    values: Any = config.get(key) or {}
    if not isinstance(values, dict):
        raise config.error(key, f"must be an object, not {values!r}")
    rope = Fields({f"{key}.{name}": value for name, value in values.items()}, config.file, f"{key}.")
    kind = rope.text("rope_type", rope.text("type", "default"))
    theta = rope.number("rope_theta", config.number("rope_theta", 10_000.0))
    for place in (rope, config):
        if place.number("partial_rotary_factor", 1.0) != 1.0:
            raise place.error("partial_rotary_factor", "is not 1: partly rotated heads are not built")
    return _scaled(rope, kind, theta, config.integer("max_position_embeddings"))


def _scaled(rope: Fields, kind: str, theta: float, context: int) -> RopeSpec:
    if kind == "default":
        return RopeSpec(theta=theta)
    if kind == "linear":
        return RopeSpec(theta=theta, kind="linear", factor=rope.number("factor"))
    if kind != "llama3":
        raise rope.error("rope_type", f"is {kind}; known are {', '.join(get_args(RopeKind))}")
    low, high = rope.number("low_freq_factor"), rope.number("high_freq_factor")
    if high <= low:
        raise rope.error("high_freq_factor", f"({high:g}) must be above low_freq_factor ({low:g})")
    return RopeSpec(
        theta=theta,
        kind="llama3",
        factor=rope.number("factor"),
        low_freq_factor=low,
        high_freq_factor=high,
        original_context=rope.integer("original_max_position_embeddings", context),
    )


def _generation(directory: Path) -> Fields:
    path = directory / GENERATION_FILE
    return Fields(read_json(path) if path.exists() else {}, path)


def _sampling_defaults(generation: Fields) -> dict[str, float]:
    """What generation_config.json gives. An explicit `"do_sample": false` switches all of it off, absence does not:
    transformers' own default is greedy, but who writes a temperature there means it."""
    if not generation.flag("do_sample", True):
        return {}
    return generation.sampling(SAMPLING)
