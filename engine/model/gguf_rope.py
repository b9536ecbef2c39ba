"""A GGUF file's rotary positions as a RopeSpec: keys for the kind, tensors for factors worked out beforehand.

Knows no torch. Keys: github.com/ggml-org/ggml, docs/gguf.md.
"""

import struct
from dataclasses import replace

from .fields import Fields
from .gguf_header import GgufHeader
from .spec import RopeSpec

FACTORS = "rope_freqs.weight"  # llama3 scaling: one divisor a frequency
SHORT_FACTORS, LONG_FACTORS = "rope_factors_short.weight", "rope_factors_long.weight"


def read_gguf_rope(config: Fields, header: GgufHeader, head_dim: int, context: int) -> RopeSpec:
    """Raises ModelError naming file and key."""
    turned = config.integer("rope.dimension_count", head_dim)
    plain = RopeSpec(
        theta=config.number("rope.freq_base", 10_000.0),
        rotated=turned / head_dim,
        frequency_factors=_factors(header, FACTORS, turned),
        magnitude=config.number("rope.scaling.attn_factor") if config.has("rope.scaling.attn_factor") else None,
    )
    if SHORT_FACTORS in header.tensors or LONG_FACTORS in header.tensors:
        return _longrope(plain, config, header, turned, context)
    kind = config.text("rope.scaling.type", "linear" if config.has("rope.scale_linear") else "none")
    if kind == "none":
        return plain
    factor = config.number("rope.scaling.factor", config.number("rope.scale_linear", 1.0))
    if kind == "linear":
        return replace(plain, kind="linear", factor=factor)
    if kind == "yarn":
        return _yarn(plain, config, factor, context)
    raise config.error("rope.scaling.type", f"is {kind}; known are none, linear, yarn and longrope")


def _yarn(plain: RopeSpec, config: Fields, factor: float, context: int) -> RopeSpec:
    return replace(
        plain,
        kind="yarn",
        factor=factor,
        original_context=config.integer("rope.scaling.original_context_length", context, low=2),
        beta_fast=config.number("rope.scaling.yarn_beta_fast", 32.0),
        beta_slow=config.number("rope.scaling.yarn_beta_slow", 1.0),
    )


def _longrope(plain: RopeSpec, config: Fields, header: GgufHeader, turned: int, context: int) -> RopeSpec:
    original = config.integer("rope.scaling.original_context_length", context, low=2)
    short, long = _factors(header, SHORT_FACTORS, turned), _factors(header, LONG_FACTORS, turned)
    if not short or not long:
        raise config.error("rope.scaling.type", f"needs {SHORT_FACTORS} and {LONG_FACTORS}: one of them is missing")
    return replace(
        plain,
        kind="longrope",
        factor=context / original,
        original_context=original,
        short_factors=short,
        long_factors=long,
    )


def _factors(header: GgufHeader, name: str, turned: int) -> tuple[float, ...]:
    """One divisor for each frequency; () when the file has no such tensor."""
    stored = header.tensors.get(name)
    if stored is None:
        return ()
    problem = Fields({}, header.path).error
    if stored.kind.name != "F32" or stored.shape != (turned // 2,):
        raise problem(name, f"must be F32 [{turned // 2}], not {stored.kind.name} {list(stored.shape)}")
    with header.path.open("rb") as file:
        file.seek(stored.offset)
        factors = struct.unpack(f"<{turned // 2}f", file.read(stored.size))
    if not all(0 < factor < float("inf") for factor in factors):
        raise problem(name, "must be numbers above 0")
    return factors
