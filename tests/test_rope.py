"""Rotary frequencies and rotation equal transformers'."""

import pytest
import torch
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

from fairstep.kernels.rope import rotary_table, rotate
from fairstep.model.rope import frequencies
from fairstep.model.spec import RopeSpec
from reference import rope_parameters

LLAMA3 = RopeSpec(
    theta=500_000.0, kind="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_context=8192
)
KINDS = [
    RopeSpec(),
    RopeSpec(theta=100_000.0),
    RopeSpec(kind="linear", factor=4.0),
    LLAMA3,
    RopeSpec(kind="llama3", factor=32.0, low_freq_factor=0.5, high_freq_factor=2.0, original_context=64),
]


def transformers_rope(rope: RopeSpec, head_dim: int) -> LlamaRotaryEmbedding:
    config = LlamaConfig(
        hidden_size=head_dim * 2,
        num_attention_heads=2,
        head_dim=head_dim,
        max_position_embeddings=131_072,
        rope_parameters=rope_parameters(rope),
    )
    return LlamaRotaryEmbedding(config)


@pytest.mark.parametrize("rope", KINDS, ids=lambda rope: f"{rope.kind}-{rope.theta:g}-{rope.factor:g}")
@pytest.mark.parametrize("head_dim", [32, 64, 80, 128])
def test_frequencies_equal_transformers(rope: RopeSpec, head_dim: int) -> None:
    torch.testing.assert_close(
        frequencies(rope, head_dim), transformers_rope(rope, head_dim).inv_freq, rtol=1e-6, atol=0
    )


@pytest.mark.parametrize("rope", KINDS, ids=lambda rope: f"{rope.kind}-{rope.theta:g}-{rope.factor:g}")
def test_rotation_equals_transformers(rope: RopeSpec) -> None:
    positions = torch.tensor([0, 1, 2, 63, 64, 1000, 8191])
    x = torch.randn(len(positions), 3, 64, generator=torch.Generator().manual_seed(0))
    got = rotate(x, *rotary_table(positions, frequencies(rope, 64)))
    cos, sin = transformers_rope(rope, 64)(x, positions[None])
    want, _ = apply_rotary_pos_emb(x.transpose(0, 1)[None], x.transpose(0, 1)[None], cos, sin)
    torch.testing.assert_close(got, want[0].transpose(0, 1), atol=1e-6, rtol=1e-6)


def test_frequency_factors_divide_what_the_scaling_left() -> None:
    factors = tuple(1.0 + i for i in range(32))
    plain, divided = frequencies(RopeSpec(), 64), frequencies(RopeSpec(frequency_factors=factors), 64)
    torch.testing.assert_close(divided * torch.tensor(factors), plain)


def test_llama3_scaling_equals_its_frequency_factors() -> None:
    """GGUF files hold llama3 scaling as divisors of the plain frequencies."""
    plain = frequencies(RopeSpec(theta=LLAMA3.theta), 128)
    factors = (plain / frequencies(LLAMA3, 128)).tolist()
    again = frequencies(RopeSpec(theta=LLAMA3.theta, frequency_factors=tuple(factors)), 128)
    torch.testing.assert_close(again, frequencies(LLAMA3, 128))


def test_rotation_is_done_in_float32() -> None:
    x = torch.randn(4, 2, 64, generator=torch.Generator().manual_seed(0)).to(torch.bfloat16)
    table = rotary_table(torch.arange(4), frequencies(RopeSpec(), 64))
    got = rotate(x, *table)
    assert got.dtype is torch.bfloat16
    assert torch.equal(got, rotate(x.float(), *table).to(torch.bfloat16))
