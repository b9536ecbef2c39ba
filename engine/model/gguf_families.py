"""What sets each family of a GGUF file apart: one small reader a family, from its keys to ModelSpec's fields.

Knows no torch and no weights. Keys: github.com/ggml-org/ggml, docs/gguf.md. What llama.cpp keeps in its code and in no
file (which layers have a window, Gemma's scales) stands here.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from .fields import Fields
from .spec import ModelSpec, RopeSpec

GEMMA2_EVERY, GEMMA3_EVERY, OLMO3_EVERY = 2, 6, 4  # the last of so many layers sees all positions
GEMMA2_WINDOW = 4096  # this and the caps: where a file, as the first ones, doesn't say
GEMMA2_CAPS = (50.0, 30.0)  # of attention and of the logits
GEMMA_27B = {46: "gemma2", 62: "gemma3"}  # the layers of the models that scale by the hidden size
SMOLLM3_EVERY = 4  # the last of so many layers doesn't turn
LOCAL_THETA = 10_000.0


@dataclass(frozen=True, slots=True)
class GgufFamily:
    """One architecture. features: a plain decoder's spec -> this one's. interleaved: the file keeps query and key rows
    in pairs of rotary dimensions side by side."""

    features: Callable[[ModelSpec, Fields], ModelSpec]
    interleaved: bool = False


def _llama(spec: ModelSpec, config: Fields) -> ModelSpec:
    return _with_windows(spec, config, 1)


def _qwen2(spec: ModelSpec, config: Fields) -> ModelSpec:
    return spec


def _qwen3(spec: ModelSpec, config: Fields) -> ModelSpec:
    return replace(spec, qk_norm="head")


def _gemma(spec: ModelSpec, config: Fields) -> ModelSpec:
    """The file's norms are 1 + weight already."""
    return replace(spec, activation="gelu_tanh", embedding_scale=spec.hidden_size**0.5)


def _gemma2(spec: ModelSpec, config: Fields) -> ModelSpec:
    return _with_windows(_late_gemma(spec, config, GEMMA2_CAPS), config, GEMMA2_EVERY, GEMMA2_WINDOW)


def _gemma3(spec: ModelSpec, config: Fields) -> ModelSpec:
    local = RopeSpec(theta=config.number("rope.freq_base_swa", LOCAL_THETA))
    spec = replace(_late_gemma(spec, config), qk_norm="head", local_rope=local)
    return _with_windows(spec, config, GEMMA3_EVERY)


def _late_gemma(spec: ModelSpec, config: Fields, caps: tuple[float, float] = (0.0, 0.0)) -> ModelSpec:
    """caps: where the file has none, 0 for none at all."""
    width = spec.hidden_size // spec.heads if spec.layers in GEMMA_27B else spec.head_dim
    return replace(
        _gemma(spec, config),
        norm_place="both",
        attention_scale=width**-0.5,
        attention_softcap=config.number("attn_logit_softcapping", caps[0], zero=True),
        logit_softcap=config.number("final_logit_softcapping", caps[1], zero=True),
    )


def _phi3(spec: ModelSpec, config: Fields) -> ModelSpec:
    return _with_windows(replace(spec, fused_qkv=True, fused_gate_up=True), config, 1)


def _smollm3(spec: ModelSpec, config: Fields) -> ModelSpec:
    return replace(spec, rotary_layers=tuple(bool((index + 1) % SMOLLM3_EVERY) for index in range(spec.layers)))


def _olmo2(spec: ModelSpec, config: Fields) -> ModelSpec:
    """OLMo 2, or OLMo 3, whose files have a window: layers with one don't scale their rope."""
    spec = replace(spec, norm_place="after", qk_norm="all")
    if config.integer("attention.sliding_window", 0, low=0):
        local = RopeSpec(theta=spec.rope.theta, rotated=spec.rope.rotated)
        spec = replace(spec, local_rope=local if local != spec.rope else None)
    return _with_windows(spec, config, OLMO3_EVERY)


def _granite(spec: ModelSpec, config: Fields) -> ModelSpec:
    return replace(
        spec,
        embedding_scale=config.number("embedding_scale", 1.0),
        attention_scale=config.number("attention.scale") if config.has("attention.scale") else None,
        residual_scale=config.number("residual_scale", 1.0),
        logit_scale=1 / config.number("logit_scale", 1.0),
    )


def _with_windows(spec: ModelSpec, config: Fields, every: int, absent: int = 0) -> ModelSpec:
    """A window on each layer, or on all but the last of `every`, if the file has one that closes.

    absent: the window of a file that doesn't say.
    """
    window = config.integer("attention.sliding_window", absent, low=0)
    if not window or (window >= spec.context and spec.local_rope is None):
        return spec
    closes = _pattern(spec, config, every)
    return replace(spec, windows=tuple(window if closed else 0 for closed in closes))


def _pattern(spec: ModelSpec, config: Fields, every: int) -> list[bool]:
    """For each layer whether its window closes: as newer files list it, else all but the last of `every`."""
    key = "attention.sliding_window_pattern"
    listed = config.get(key)
    if isinstance(listed, list):
        if len(listed) != spec.layers or not all(isinstance(closes, bool) for closes in listed):
            raise config.error(key, f"must hold true or false for each of {spec.layers} layers")
        return listed
    every = config.integer(key, every)
    return [every == 1 or bool((index + 1) % every) for index in range(spec.layers)]


GGUF_FAMILIES: Mapping[str, GgufFamily] = {
    "llama": GgufFamily(_llama, interleaved=True),
    "qwen2": GgufFamily(_qwen2),
    "qwen3": GgufFamily(_qwen3),
    "gemma": GgufFamily(_gemma),
    "gemma2": GgufFamily(_gemma2),
    "gemma3": GgufFamily(_gemma3),
    "phi3": GgufFamily(_phi3),
    "smollm3": GgufFamily(_smollm3, interleaved=True),
    "olmo2": GgufFamily(_olmo2),
    "granite": GgufFamily(_granite, interleaved=True),
}
