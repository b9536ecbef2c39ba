"""What sets each family apart from a plain decoder: one small reader a family, from config.json's keys to ModelSpec.

Knows no torch and no weights. Keys, their meaning and what absent ones stand for follow transformers' config classes.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from .fields import Fields
from .rope_config import read_rope
from .spec import ModelSpec, RopeSpec

SLIDING, FULL = "sliding_attention", "full_attention"


@dataclass(frozen=True, slots=True)
class Family:
    """One architecture. features: a plain decoder's spec -> this one's. absent: what the keys that a config leaves out
    stand for (a key that is null says something else). activation: the key that names it."""

    features: Callable[[ModelSpec, Fields], ModelSpec]
    absent: Mapping[str, Any] = field(default_factory=dict)
    activation: str = "hidden_act"
    rope: Callable[[Fields, int], RopeSpec] = read_rope


def _llama(spec: ModelSpec, config: Fields) -> ModelSpec:
    return replace(_without_windows(_with_attention_bias(spec, config), config), mlp_bias=config.flag("mlp_bias"))


def _mistral(spec: ModelSpec, config: Fields) -> ModelSpec:
    return _with_windows(spec, config, [config.has("sliding_window")] * spec.layers)


def _qwen2(spec: ModelSpec, config: Fields) -> ModelSpec:
    return _with_late_windows(replace(spec, qkv_bias=True), config)


def _qwen3(spec: ModelSpec, config: Fields) -> ModelSpec:
    return _with_late_windows(replace(_with_attention_bias(spec, config), qk_norm="head"), config)


def _gemma(spec: ModelSpec, config: Fields) -> ModelSpec:
    """Gemma 1; its "gelu" always was the tanh form."""
    activation = "gelu_tanh" if spec.activation == "gelu" else spec.activation
    return replace(_without_windows(_any_gemma(spec, config), config), activation=activation)


def _gemma2(spec: ModelSpec, config: Fields) -> ModelSpec:
    spec = replace(
        _any_gemma(spec, config),
        norm_place="both",
        attention_scale=config.number("query_pre_attn_scalar") ** -0.5,
        attention_softcap=_number_or_zero(config, "attn_logit_softcapping"),
        logit_softcap=_number_or_zero(config, "final_logit_softcapping"),
    )
    every = config.integer("sliding_window_pattern", 2)  # the last of so many layers sees all positions
    return _with_windows(spec, config, _sliding(spec, config, [bool((i + 1) % every) for i in range(spec.layers)]))


def _gemma3(spec: ModelSpec, config: Fields) -> ModelSpec:
    return replace(_gemma2(spec, config), qk_norm="head")


def _phi3(spec: ModelSpec, config: Fields) -> ModelSpec:
    return replace(_mistral(spec, config), fused_qkv=True, fused_gate_up=True)


def _smollm3(spec: ModelSpec, config: Fields) -> ModelSpec:
    every = config.integer("no_rope_layer_interval", 4)
    rotary = [bool((index + 1) % every) for index in range(spec.layers)]
    if config.has("no_rope_layers"):  # 1 for a layer with rope, whatever the name says
        rotary = [bool(flag) for flag in config.integers("no_rope_layers", spec.layers)]
    windowed = config.flag("use_sliding_window") and config.has("sliding_window")
    sliding = _sliding(spec, config, [windowed and not turns for turns in rotary])
    spec = replace(_with_attention_bias(spec, config), mlp_bias=config.flag("mlp_bias"), rotary_layers=tuple(rotary))
    return _with_windows(spec, config, sliding)


def _olmo2(spec: ModelSpec, config: Fields) -> ModelSpec:
    return replace(
        _without_windows(_with_attention_bias(spec, config), config),
        norm_place="after",
        qk_norm="all",
    )


def _granite(spec: ModelSpec, config: Fields) -> ModelSpec:
    return replace(
        _llama(spec, config),
        embedding_scale=config.number("embedding_multiplier", 1.0),
        attention_scale=config.number("attention_multiplier", 1.0),
        residual_scale=config.number("residual_multiplier", 1.0),
        logit_scale=1 / config.number("logits_scaling", 1.0),
    )


def _any_gemma(spec: ModelSpec, config: Fields) -> ModelSpec:
    if config.flag("use_bidirectional_attention"):
        raise config.error("use_bidirectional_attention", "is set: the model reads texts, it doesn't continue them")
    return replace(
        _with_attention_bias(spec, config),
        norm_plus_one=True,
        embedding_scale=spec.hidden_size**0.5,
    )


def _with_attention_bias(spec: ModelSpec, config: Fields) -> ModelSpec:
    bias = config.flag("attention_bias")
    return replace(spec, qkv_bias=bias, o_bias=bias)


def _with_late_windows(spec: ModelSpec, config: Fields) -> ModelSpec:
    """Qwen's: the first max_window_layers see all positions."""
    if not config.flag("use_sliding_window"):
        return spec
    full = config.integer("max_window_layers", low=0)
    late = [config.has("sliding_window") and index >= full for index in range(spec.layers)]
    return _with_windows(spec, config, _sliding(spec, config, late))


def _sliding(spec: ModelSpec, config: Fields, default: Sequence[bool]) -> Sequence[bool]:
    """For each layer whether layer_types gives it a window; `default` if the key is absent."""
    if not config.has("layer_types"):
        return default
    types = config.get("layer_types")
    if not isinstance(types, list) or len(types) != spec.layers:
        raise config.error("layer_types", f"must be a list of {spec.layers} kinds of attention, one a layer")
    for kind in types:
        if kind not in (SLIDING, FULL):
            raise config.not_ours("layer_types", f"has {kind!r}; known are {FULL}, {SLIDING}")
    return [kind == SLIDING for kind in types]


def _with_windows(spec: ModelSpec, config: Fields, sliding: Sequence[bool]) -> ModelSpec:
    """Give some layers the window of the config; none if it never closes and these layers are like the others."""
    if not any(sliding):
        return spec
    window = config.integer("sliding_window")
    if window >= spec.context and spec.local_rope is None:
        return spec
    return replace(spec, windows=tuple(window if closes else 0 for closes in sliding))


def _without_windows(spec: ModelSpec, config: Fields) -> ModelSpec:
    if config.has("sliding_window") and config.integer("sliding_window") < spec.context:
        window = config.get("sliding_window")
        raise config.not_ours("sliding_window", f"is {window}, less than the context: this family has no windows")
    return spec


def _number_or_zero(config: Fields, key: str) -> float:
    return config.number(key) if config.has(key) else 0.0


_GEMMA = {"head_dim": 256, "tie_word_embeddings": True}
_GEMMA_LOCAL = {
    **_GEMMA,
    "hidden_activation": "gelu_pytorch_tanh",
    "query_pre_attn_scalar": 256,
    "sliding_window": 4096,
}
_QWEN = {"sliding_window": 4096, "max_window_layers": 28}

FAMILIES: Mapping[str, Family] = {
    "LlamaForCausalLM": Family(_llama),
    "MistralForCausalLM": Family(_mistral, {"sliding_window": 4096}),
    "Qwen2ForCausalLM": Family(_qwen2, _QWEN),
    "Qwen3ForCausalLM": Family(_qwen3, {"head_dim": 128, **_QWEN}),
    "GemmaForCausalLM": Family(_gemma, {"hidden_act": "gelu_pytorch_tanh", **_GEMMA}),
    "Gemma2ForCausalLM": Family(
        _gemma2,
        {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0, **_GEMMA_LOCAL},
        activation="hidden_activation",
    ),
    "Gemma3ForCausalLM": Family(
        _gemma3,
        {"rope_theta": 1e6, "rope_local_base_freq": 1e4, "sliding_window_pattern": 6, **_GEMMA_LOCAL},
        activation="hidden_activation",
    ),
    "Phi3ForCausalLM": Family(
        _phi3,
        {"original_max_position_embeddings": 4096},
        rope=partial(read_rope, renamed={"su": "longrope", "yarn": "longrope"}, partly=True),
    ),
    "SmolLM3ForCausalLM": Family(_smollm3, {"rope_theta": 2e6, "tie_word_embeddings": True}),
    "Olmo2ForCausalLM": Family(_olmo2),
    "GraniteForCausalLM": Family(_granite),
}
