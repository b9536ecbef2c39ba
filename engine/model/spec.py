"""What a decoder is made of, as one frozen record read from config.json or GGUF metadata: one record, no family names.

Knows no torch and no weights. Field names follow transformers' configs where they have one.
"""

from dataclasses import dataclass, field
from typing import Literal

RopeKind = Literal["default", "linear", "dynamic", "yarn", "longrope", "llama3"]
NormPlace = Literal["before", "after", "both"]
QueryKeyNorm = Literal["none", "head", "all"]
Activation = Literal["silu", "gelu_tanh", "gelu"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeSpec:
    """Rotary position: base `theta` and how its frequencies are scaled (transformers' modeling_rope_utils).

    frequency_factors: one divisor for each of the head_dim / 2 frequencies, applied after `kind`; () means none. GGUF
    files keep llama3 scaling this way (rope_freqs.weight). rotated: the part of a head that turns, from its first
    dimension on; the rest stays. original_context: what the model was trained on before it was scaled (llama3, yarn,
    longrope, dynamic). magnitude: what cos and sin are multiplied by (yarn, longrope); None: as the kind computes it.
    beta_fast, beta_slow, truncate, mscale, mscale_all: yarn's. short_factors, long_factors: longrope's, one divisor a
    frequency.
    """

    theta: float = 10_000.0
    kind: RopeKind = "default"
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_context: int = 8192
    frequency_factors: tuple[float, ...] = ()
    rotated: float = 1.0
    magnitude: float | None = None
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True
    mscale: float = 0.0
    mscale_all: float = 0.0
    short_factors: tuple[float, ...] = ()
    long_factors: tuple[float, ...] = ()

    @property
    def edge(self) -> int:
        """The length past which frequencies depend on the length; 0: they never do."""
        return self.original_context if self.kind in ("dynamic", "longrope") else 0


@dataclass(frozen=True, slots=True)
class LayerShape:
    """Keys and values of one attention layer, in elements a token."""

    kv_heads: int
    key_dim: int
    value_dim: int

    @property
    def elements(self) -> int:
        """Keys and values of one token."""
        return self.kv_heads * (self.key_dim + self.value_dim)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """Shapes and switches of a decoder; sizes in elements.

    windows: for each layer how many positions a query sees, itself included; 0 all; () no layer has a window.
    rotary_layers: for each layer whether it turns queries and keys; () all do. local_rope: of layers with a window,
    where it differs from `rope`. norm_place: RMSNorm before each block, after it (on what it adds), or both.
    qk_norm: RMSNorm of queries and keys for each head, or over all heads at once. norm_plus_one: norms multiply by
    1 + weight. attention_scale: None is head_dim ** -0.5. softcaps: c * tanh(x / c) where not 0.
    embedding_scale, residual_scale, logit_scale: what embeddings, each block's addition and logits are multiplied by.
    fused_qkv, fused_gate_up: the file keeps these weights joined (Phi-3).
    """

    architecture: str  # as the file names it, e.g. LlamaForCausalLM or llama
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    context: int  # max_position_embeddings
    norm_eps: float
    rope: RopeSpec = field(default_factory=RopeSpec)
    tied: bool = False  # lm_head shares the embedding
    qkv_bias: bool = False
    o_bias: bool = False
    mlp_bias: bool = False
    activation: Activation = "silu"
    windows: tuple[int, ...] = ()
    rotary_layers: tuple[bool, ...] = ()
    local_rope: RopeSpec | None = None
    norm_place: NormPlace = "before"
    norm_plus_one: bool = False
    qk_norm: QueryKeyNorm = "none"
    attention_scale: float | None = None
    attention_softcap: float = 0.0
    logit_softcap: float = 0.0
    embedding_scale: float = 1.0
    residual_scale: float = 1.0
    logit_scale: float = 1.0
    fused_qkv: bool = False
    fused_gate_up: bool = False
    native_dtype: str = "bfloat16"
    eos_ids: tuple[int, ...] = ()
    bos_id: int | None = None
    defaults: dict[str, float] = field(default_factory=dict)  # sampling defaults of generation_config.json

    @property
    def kv_layers(self) -> tuple[LayerShape, ...]:
        """What each layer keeps of a token."""
        return (LayerShape(self.kv_heads, self.head_dim, self.head_dim),) * self.layers
