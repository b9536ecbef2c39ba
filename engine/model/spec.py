"""What a decoder of the Llama family is made of, as one frozen record read from config.json or GGUF metadata.

Knows no torch and no weights. Field names follow transformers' configs where they have one.
"""

from dataclasses import dataclass, field
from typing import Literal

RopeKind = Literal["default", "linear", "llama3"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeSpec:
    """Rotary position: base `theta` and how its frequencies are scaled (transformers' modeling_rope_utils).

    frequency_factors: one divisor for each of the head_dim / 2 frequencies, applied after `kind`; () means none. GGUF
    files keep llama3 scaling this way (rope_freqs.weight).
    """

    theta: float = 10_000.0
    kind: RopeKind = "default"
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_context: int = 8192
    frequency_factors: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """Shapes and switches of a decoder; sizes in elements."""

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
    attention_bias: bool = False  # q, k, v and o have biases
    mlp_bias: bool = False
    native_dtype: str = "bfloat16"
    eos_ids: tuple[int, ...] = ()
    bos_id: int | None = None
    defaults: dict[str, float] = field(default_factory=dict)  # sampling defaults of generation_config.json

    def kv_bytes_per_token(self, element_bytes: int) -> int:
        """Bytes of keys and values of one token over all layers."""
        return 2 * self.layers * self.kv_heads * self.head_dim * element_bytes
