"""Rotary frequencies, tables and rotation equal transformers', whatever stands in the same batch."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import LlamaConfig
from transformers.models.phi3.modeling_phi3 import Phi3RotaryEmbedding, apply_rotary_pos_emb

from fairstep.kernels.rope import rotary_table, rotate
from fairstep.model.rope import Rotary, frequencies, magnitude
from fairstep.model.spec import RopeSpec

CONTEXT = 64
LLAMA3 = RopeSpec(
    theta=500_000.0, kind="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_context=8192
)
YARN = RopeSpec(kind="yarn", factor=4.0, original_context=CONTEXT)
LENGTH_FREE = [
    RopeSpec(),
    RopeSpec(theta=100_000.0),
    RopeSpec(kind="linear", factor=4.0),
    LLAMA3,
    RopeSpec(kind="llama3", factor=32.0, low_freq_factor=0.5, high_freq_factor=2.0, original_context=64),
    YARN,
    RopeSpec(theta=150_000.0, kind="yarn", factor=32.0, original_context=4096, truncate=False),
    RopeSpec(kind="yarn", factor=40.0, original_context=4096, mscale=1.0, mscale_all=0.707),
    RopeSpec(kind="yarn", factor=40.0, original_context=4096, mscale=1.0, mscale_all=1.0),
    RopeSpec(kind="yarn", factor=40.0, original_context=4096, mscale=0.5),
    RopeSpec(kind="yarn", factor=8.0, original_context=2048, magnitude=1.25),
    RopeSpec(kind="yarn", factor=0.5, original_context=2048),
    RopeSpec(kind="yarn", factor=8.0, original_context=2048, beta_fast=1.0, beta_slow=1.0),
    RopeSpec(kind="yarn", factor=8.0, original_context=512, beta_fast=64.0, beta_slow=0.01),
    RopeSpec(kind="yarn", factor=8.0, original_context=6),  # no pair turns once in it: a ramp without width
]
DYNAMIC = [
    RopeSpec(kind="dynamic", factor=2.0, original_context=CONTEXT),
    RopeSpec(theta=500_000.0, kind="dynamic", factor=7.3, original_context=CONTEXT),
]


def longrope(turned: int, **options: Any) -> RopeSpec:
    short = tuple(1.0 + 0.01 * i for i in range(turned // 2))
    long = tuple(1.5 + 0.7 * i for i in range(turned // 2))
    return RopeSpec(kind="longrope", short_factors=short, long_factors=long, original_context=CONTEXT, **options)


def named(rope: RopeSpec) -> str:
    return f"{rope.kind}-{rope.theta:g}-{rope.factor:g}-{rope.mscale_all:g}"


def parameters(rope: RopeSpec) -> dict[str, Any]:
    """A RopeSpec as config.json holds it."""
    values: dict[str, Any] = {
        "rope_type": rope.kind,
        "rope_theta": rope.theta,
        "partial_rotary_factor": rope.rotated,
        "original_max_position_embeddings": rope.original_context,
    }
    if rope.kind != "default":
        values |= {"factor": rope.factor}
    if rope.magnitude is not None:
        values |= {"attention_factor": rope.magnitude}
    if rope.kind == "llama3":
        values |= {"low_freq_factor": rope.low_freq_factor, "high_freq_factor": rope.high_freq_factor}
    if rope.kind == "longrope":
        values |= {"short_factor": list(rope.short_factors), "long_factor": list(rope.long_factors)}
    if rope.kind == "yarn":
        values |= {"beta_fast": rope.beta_fast, "beta_slow": rope.beta_slow, "truncate": rope.truncate}
        values |= {"mscale": rope.mscale or None, "mscale_all_dim": rope.mscale_all or None}
    return values


def theirs(rope: RopeSpec, head_dim: int) -> Phi3RotaryEmbedding:
    """transformers' rotary module; Phi-3's is the one that turns a part of a head too."""
    config = LlamaConfig(
        hidden_size=head_dim * 2,
        num_attention_heads=2,
        head_dim=head_dim,
        max_position_embeddings=rope.original_context if rope.kind == "dynamic" else 131_072,
        rope_parameters=parameters(rope),
    )
    return Phi3RotaryEmbedding(config)


def their_table(rope: RopeSpec, head_dim: int, position: int, length: int) -> tuple[Tensor, Tensor]:
    """cos and sin [R] of one position of a sequence of `length`."""
    ids = torch.tensor([[position, length - 1]])
    cos, sin = theirs(rope, head_dim)(torch.zeros(1), ids)
    return cos[0, 0], sin[0, 0]


def assert_table_equals_theirs(rope: RopeSpec, head_dim: int, tokens: list[tuple[int, int]]) -> None:
    """tokens: (position, length) of each of a batch's."""
    positions, lengths = torch.tensor(tokens).T
    cos, sin = Rotary(rope, head_dim, "cpu").table(positions, lengths)
    half = cos.shape[-1] // 2
    assert cos.shape == sin.shape == (len(tokens), 1, int(head_dim * rope.rotated))
    assert cos.dtype is sin.dtype is torch.float32
    for row, token in enumerate(tokens):
        want_cos, want_sin = their_table(rope, head_dim, *token)
        torch.testing.assert_close(cos[row, 0], want_cos, atol=2e-6, rtol=0)
        torch.testing.assert_close(sin[row, 0, half:], want_sin[half:], atol=2e-6, rtol=0)
        torch.testing.assert_close(-sin[row, 0, :half], want_sin[:half], atol=2e-6, rtol=0)


@pytest.mark.parametrize("rope", LENGTH_FREE, ids=named)
@pytest.mark.parametrize("head_dim", [32, 64, 80, 128])
def test_frequencies_and_magnitude_equal_transformers(rope: RopeSpec, head_dim: int) -> None:
    want = theirs(rope, head_dim)
    torch.testing.assert_close(frequencies(rope, head_dim), want.inv_freq, rtol=1e-6, atol=0)
    assert magnitude(rope) == pytest.approx(want.attention_scaling)


@pytest.mark.parametrize("rope", LENGTH_FREE, ids=named)
def test_rotation_equals_transformers(rope: RopeSpec) -> None:
    positions = torch.tensor([0, 1, 2, 63, 64, 1000, 8191])
    x = torch.randn(len(positions), 3, 64, generator=torch.Generator().manual_seed(0))
    got = rotate(x, *Rotary(rope, 64, "cpu").table(positions, positions + 1))
    cos, sin = theirs(rope, 64)(x, positions[None])
    want, _ = apply_rotary_pos_emb(x.transpose(0, 1)[None], x.transpose(0, 1)[None], cos, sin)
    torch.testing.assert_close(got, want[0].transpose(0, 1), atol=4e-6, rtol=1e-6)


AROUND_THE_EDGE = [(0, 1), (5, 64), (63, 64), (3, 65), (64, 65), (9, 70), (9, 200), (199, 200), (30, 31)]


@pytest.mark.parametrize("rope", DYNAMIC, ids=named)
@pytest.mark.parametrize("head_dim", [32, 80])
def test_dynamic_grows_its_base_with_each_tokens_own_length(rope: RopeSpec, head_dim: int) -> None:
    assert_table_equals_theirs(rope, head_dim, AROUND_THE_EDGE)


@pytest.mark.parametrize("options", [{"factor": 4.0}, {"factor": 1.0}, {"factor": 4.0, "magnitude": 1.1}])
@pytest.mark.parametrize("rotated", [1.0, 0.75])
def test_longrope_takes_the_long_factors_past_its_edge(options: dict[str, float], rotated: float) -> None:
    assert_table_equals_theirs(longrope(int(32 * rotated), rotated=rotated, **options), 32, AROUND_THE_EDGE)


def test_longrope_magnitude_comes_from_factor_and_original_context() -> None:
    assert magnitude(longrope(32, factor=4.0)) == pytest.approx(math.sqrt(1 + math.log(4) / math.log(CONTEXT)))


@pytest.mark.parametrize("rope", [*DYNAMIC, longrope(24, factor=4.0)], ids=named)
def test_neighbours_never_change_a_table(rope: RopeSpec) -> None:
    rotary = Rotary(rope, 24, "cpu")
    for count in (1, 2, 5, 17, 64):
        tokens = [(i, max(i + 1, length)) for i, length in enumerate(range(40, 40 + 3 * count, 3))]
        positions, lengths = torch.tensor(tokens).T
        cos, sin = rotary.table(positions, lengths)
        for row in range(count):
            alone = rotary.table(positions[row : row + 1], lengths[row : row + 1])
            assert torch.equal(alone[0][0], cos[row])
            assert torch.equal(alone[1][0], sin[row])


@pytest.mark.parametrize("rotated", [0.5, 0.25])
@pytest.mark.parametrize("kind", ["default", "linear", "dynamic", "yarn", "llama3"])
def test_a_part_of_a_head_turns_and_the_rest_stays(kind: Any, rotated: float) -> None:
    rope = RopeSpec(kind=kind, factor=1.0 if kind == "default" else 2.0, rotated=rotated, original_context=CONTEXT)
    assert_table_equals_theirs(rope, 64, AROUND_THE_EDGE)
    positions = torch.arange(5)
    x = torch.randn(5, 2, 64, generator=torch.Generator().manual_seed(0))
    got = rotate(x, *Rotary(rope, 64, "cpu").table(positions, positions + 1))
    cos, sin = theirs(rope, 64)(x, positions[None])
    want, _ = apply_rotary_pos_emb(x.transpose(0, 1)[None], x.transpose(0, 1)[None], cos, sin)
    torch.testing.assert_close(got, want[0].transpose(0, 1), atol=2e-6, rtol=1e-6)
    turned = int(64 * rotated)
    assert torch.equal(got[..., turned:], x[..., turned:])


def test_frequency_factors_divide_what_the_scaling_left() -> None:
    factors = tuple(1.0 + i for i in range(32))
    plain, divided = frequencies(RopeSpec(), 64), frequencies(RopeSpec(frequency_factors=factors), 64)
    torch.testing.assert_close(divided * torch.tensor(factors), plain)


@pytest.mark.parametrize("rope", [DYNAMIC[0], longrope(32, factor=2.0)], ids=named)
def test_frequency_factors_also_divide_past_the_edge(rope: RopeSpec) -> None:
    factors = torch.arange(1.0, 17.0)
    divided = replace(rope, frequency_factors=tuple(factors.tolist()))
    first, longer = torch.tensor([1]), torch.tensor([CONTEXT + 9])

    def angles(rope: RopeSpec) -> Tensor:
        cos, sin = Rotary(rope, 32, "cpu").table(first, longer)
        return torch.atan2(sin[0, 0, 16:], cos[0, 0, 16:])

    torch.testing.assert_close(angles(divided) * factors, angles(rope))


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


def test_magnitude_multiplies_cos_and_sin() -> None:
    plain = rotary_table(torch.arange(4), frequencies(RopeSpec(), 64))
    larger = rotary_table(torch.arange(4), frequencies(RopeSpec(), 64), 1.5)
    for a, b in zip(plain, larger, strict=True):
        torch.testing.assert_close(b, a * 1.5)


@pytest.mark.parametrize("rope", [*DYNAMIC, longrope(32, factor=4.0), YARN], ids=named)
def test_a_static_table_is_the_one_that_asks_for_lengths(rope: RopeSpec) -> None:
    for tokens in (AROUND_THE_EDGE, AROUND_THE_EDGE[:2]):
        positions, lengths = torch.tensor(tokens).T
        for got, wanted in zip(
            Rotary(rope, 32, "cpu", static=True).table(positions, lengths),
            Rotary(rope, 32, "cpu").table(positions, lengths),
            strict=True,
        ):
            torch.testing.assert_close(got, wanted, atol=1e-6, rtol=0)


@pytest.mark.parametrize("head_dim", [8, 12])
def test_interleaved_pairs_turn_as_complex_numbers_do(head_dim: int) -> None:
    positions, angles = torch.arange(5), torch.arange(5)[:, None] * torch.tensor([1.0, 0.1, 0.01, 0.001])
    x = torch.randn(5, 3, head_dim, generator=torch.Generator().manual_seed(0))
    table = rotary_table(positions, torch.tensor([1.0, 0.1, 0.01, 0.001]))
    turned = torch.view_as_complex(x[..., :8].unflatten(-1, (4, 2))) * torch.polar(torch.ones(5, 4), angles)[:, None]
    got = rotate(x, *table, interleaved=True)
    torch.testing.assert_close(got[..., :8], torch.view_as_real(turned).flatten(-2))
    assert torch.equal(got[..., 8:], x[..., 8:])
