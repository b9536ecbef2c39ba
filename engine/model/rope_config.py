"""A config.json's rotary positions as a RopeSpec, in both spellings: rope_theta with rope_scaling, and rope_parameters.

Knows no torch. Keys follow transformers' modeling_rope_utils; rope_parameters may hold one object for each layer type.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, get_args

from .fields import MOST, Fields
from .spec import RopeKind, RopeSpec

FULL, LOCAL = "full_attention", "sliding_attention"
LOCAL_THETA = "rope_local_base_freq"
ORIGINAL = "original_max_position_embeddings"
NOTHING: Mapping[str, str] = {}


def read_rope(config: Fields, head_dim: int, *, renamed: Mapping[str, str] = NOTHING, partly: bool = False) -> RopeSpec:
    """The rope of a config's layers (of those without a window, if they differ).

    renamed: kinds that a family calls by another's name. partly: whether the family can turn a part of each head.
    """
    key = "rope_scaling" if config.get("rope_scaling") else "rope_parameters"
    rope = _section(config, key, FULL)
    theta = rope.number("rope_theta", config.number("rope_theta", 10_000.0))
    return _read(rope, config, head_dim, theta, renamed, partly)


def read_local_rope(config: Fields, head_dim: int) -> RopeSpec | None:
    """The rope of layers with a window, where the config has one for them."""
    rope = _section(config, "rope_parameters", LOCAL)
    if not (_is_nested(config.get("rope_parameters")) or config.has(LOCAL_THETA)):
        return None
    spec = _read(rope, config, head_dim, rope.number("rope_theta", config.number(LOCAL_THETA, 10_000.0)))
    if spec.edge:
        raise rope.not_ours("rope_type", f"is {spec.kind}: local layers can't be scaled by the length")
    return spec


def longest_context(rope: RopeSpec, context: int) -> int:
    """How long sequences may be: dynamic and yarn scaling reach past max_position_embeddings, `context`."""
    if rope.kind not in ("dynamic", "yarn"):
        return context
    return max(context, int(min(rope.original_context * rope.factor, MOST)))


def _section(config: Fields, key: str, layer_type: str) -> Fields:
    """The keys of `key`'s object, or of the object in it for one layer type."""
    values: Any = config.get(key) or {}
    if not isinstance(values, dict):
        raise config.error(key, f"must be an object, not {values!r}")
    if _is_nested(values):
        key, values = f"{key}.{layer_type}", values.get(layer_type) or {}
        if not isinstance(values, dict):
            raise config.error(key, f"must be an object, not {values!r}")
    elif layer_type == LOCAL:
        values = {}
    return Fields({f"{key}.{name}": value for name, value in values.items()}, config.file, f"{key}.")


def _is_nested(values: object) -> bool:
    return isinstance(values, dict) and (FULL in values or LOCAL in values)


def _read(
    rope: Fields,
    config: Fields,
    head_dim: int,
    theta: float,
    renamed: Mapping[str, str] = NOTHING,
    partly: bool = False,
) -> RopeSpec:
    name = rope.text("rope_type", rope.text("type", "default"))
    kind = renamed.get(name, name)
    if kind not in KINDS:
        raise rope.not_ours("rope_type", f"is {name}; known are {', '.join(get_args(RopeKind))}")
    if theta <= 1:
        raise rope.error("rope_theta", f"must be above 1, not {theta:g}")
    spec = RopeSpec(theta=theta, rotated=_rotated(rope, config, head_dim, partly))
    return KINDS[kind](spec, rope, config, int(head_dim * spec.rotated))


def _rotated(rope: Fields, config: Fields, head_dim: int, partly: bool) -> float:
    place = rope if rope.has("partial_rotary_factor") else config
    part = place.number("partial_rotary_factor", 1.0)
    if part == 1.0:
        return 1.0
    if not partly:
        raise place.not_ours("partial_rotary_factor", "is not 1: this family turns whole heads")
    turned = int(head_dim * part)
    if part > 1.0 or turned < 2 or turned % 2:
        raise place.error("partial_rotary_factor", f"is {part:g}: of a head of {head_dim} an even part must turn")
    return part


def _default(spec: RopeSpec, rope: Fields, config: Fields, turned: int) -> RopeSpec:
    return spec


def _linear(spec: RopeSpec, rope: Fields, config: Fields, turned: int) -> RopeSpec:
    return replace(spec, kind="linear", factor=rope.number("factor"))


def _dynamic(spec: RopeSpec, rope: Fields, config: Fields, turned: int) -> RopeSpec:
    factor = rope.number("factor")
    if turned <= 2:
        raise rope.error("rope_type", "is dynamic: more than two dimensions of a head must turn")
    return replace(spec, kind="dynamic", factor=factor, original_context=config.integer("max_position_embeddings"))


def _llama3(spec: RopeSpec, rope: Fields, config: Fields, turned: int) -> RopeSpec:
    low, high = rope.number("low_freq_factor"), rope.number("high_freq_factor")
    if high <= low:
        raise rope.error("high_freq_factor", f"({high:g}) must be above low_freq_factor ({low:g})")
    return replace(
        spec,
        kind="llama3",
        factor=rope.number("factor"),
        low_freq_factor=low,
        high_freq_factor=high,
        original_context=_original(rope, config),
    )


def _yarn(spec: RopeSpec, rope: Fields, config: Fields, turned: int) -> RopeSpec:
    original = _original(rope, config)
    return replace(
        spec,
        kind="yarn",
        factor=rope.number("factor", config.integer("max_position_embeddings") / original),
        original_context=original,
        magnitude=_number_or_none(rope, "attention_factor"),
        beta_fast=rope.number("beta_fast", 32.0),
        beta_slow=rope.number("beta_slow", 1.0),
        truncate=rope.flag("truncate", True),
        mscale=rope.number("mscale", 0.0, zero=True),
        mscale_all=rope.number("mscale_all_dim", 0.0, zero=True),
    )


def _longrope(spec: RopeSpec, rope: Fields, config: Fields, turned: int) -> RopeSpec:
    original = _original(rope, config)
    return replace(
        spec,
        kind="longrope",
        factor=rope.number("factor", config.integer("max_position_embeddings") / original),
        original_context=original,
        magnitude=_number_or_none(rope, "attention_factor"),
        short_factors=rope.numbers("short_factor", turned // 2),
        long_factors=rope.numbers("long_factor", turned // 2),
    )


def _original(rope: Fields, config: Fields) -> int:
    """The context before scaling: beside the rope (Phi-3), in it, or else the context itself."""
    if config.has(ORIGINAL):
        return config.integer(ORIGINAL, low=2)
    return rope.integer(ORIGINAL, config.integer("max_position_embeddings"), low=2)


def _number_or_none(rope: Fields, key: str) -> float | None:
    return rope.number(key) if rope.has(key) else None


KINDS: Mapping[str, Callable[[RopeSpec, Fields, Fields, int], RopeSpec]] = {
    "default": _default,
    "linear": _linear,
    "dynamic": _dynamic,
    "yarn": _yarn,
    "longrope": _longrope,
    "llama3": _llama3,
}
