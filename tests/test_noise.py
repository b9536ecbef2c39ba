"""The seeded noise: the bits of plain 64-bit arithmetic, and no pattern that a test of some thousand draws sees."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fairstep.kernels import noise

WORD = 2**64
IDS = torch.arange(20_000)


def mixed(state: int) -> int:
    """SplitMix64's finaliser in plain integers."""
    state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 % WORD
    state = (state ^ (state >> 27)) * 0x94D049BB133111EB % WORD
    return state ^ (state >> 31)


def oracle_bits(seed: int, position: int, token: int) -> int:
    gamma = 0x9E3779B97F4A7C15
    key = mixed((mixed((seed + gamma) % WORD) + (position + 1) * gamma) % WORD)
    return mixed((key + (token + 1) * gamma) % WORD) >> 12


def bits(seed: int, position: int, ids: torch.Tensor) -> torch.Tensor:
    key = noise.keys(torch.tensor([noise.as_int64(seed)]), torch.tensor([position]))
    return noise.bits(key, ids)


def uniforms(seed: int, position: int) -> torch.Tensor:
    return noise.uniform(bits(seed, position, IDS))


def correlation(a: torch.Tensor, b: torch.Tensor) -> float:
    return float(torch.corrcoef(torch.stack((a, b)))[0, 1])


@given(st.integers(0, WORD - 1), st.integers(0, 2**31), st.integers(0, 2**31))
def test_bits_equal_plain_64_bit_arithmetic(seed: int, position: int, token: int) -> None:
    assert bits(seed, position, torch.tensor([token])).item() == oracle_bits(seed, position, token)


def test_the_mixer_is_splitmix64() -> None:
    # first outputs of the published generator from state 1234567, which steps by the same constant
    states = torch.tensor([noise.as_int64(1234567 + n * 0x9E3779B97F4A7C15) for n in (1, 2, 3)])
    known = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    assert [value % WORD for value in noise._mix_(states).tolist()] == known


@given(st.integers(0, WORD - 1))
def test_as_int64_keeps_the_bits(seed: int) -> None:
    assert noise.as_int64(seed) % WORD == seed
    assert torch.tensor([noise.as_int64(seed)]).dtype == torch.int64


def test_the_ends_are_never_zero_or_one() -> None:
    ends = torch.tensor([0, 1, 2**noise.BITS - 2, 2**noise.BITS - 1])
    drawn = noise.uniform(ends)
    assert 0.0 < drawn[0] < drawn[1] and drawn[2] < drawn[3] < 1.0
    assert noise.gumbel(ends).isfinite().all()
    assert noise.gumbel(ends)[0] > -3.7 and noise.gumbel(ends)[3] < 36.8


@pytest.mark.parametrize("seed", [0, 1, 2**32, 2**63 - 1, 2**63, 2**64 - 1])
@pytest.mark.parametrize("position", [0, 1, 4096])
def test_noise_is_uniform(seed: int, position: int) -> None:
    counts = torch.histc(uniforms(seed, position), bins=100, min=0.0, max=1.0)
    chi_square = float(((counts - 200) ** 2 / 200).sum())
    assert 50 < chi_square < 165  # 99 degrees of freedom: both ends beyond 1 in 20,000


@pytest.mark.parametrize("bit", [0, 1, 25, 50, 51])
def test_each_bit_is_fair(bit: int) -> None:
    ones = int((bits(7, 3, IDS) >> bit & 1).sum())
    assert abs(ones - 10_000) < 4.5 * math.sqrt(5_000)


@pytest.mark.parametrize("lag", [1, 2, 3, 64, 256, 1024])
def test_neighbouring_ids_are_not_correlated(lag: int) -> None:
    drawn = uniforms(5, 0)
    assert abs(correlation(drawn[lag:], drawn[:-lag])) < 4.5 / math.sqrt(20_000 - lag)


@pytest.mark.parametrize("lag", [1, 2, 8, 1024])
def test_neighbouring_positions_and_seeds_are_not_correlated(lag: int) -> None:
    for seed in (0, 2**63 - 1, 2**64 - 1):
        assert abs(correlation(uniforms(seed, 9), uniforms(seed, 9 + lag))) < 4.5 / math.sqrt(20_000)
        assert abs(correlation(uniforms(seed, 9), uniforms((seed + lag) % WORD, 9))) < 4.5 / math.sqrt(20_000)


def test_one_id_over_seeds_and_over_positions_is_uniform() -> None:
    zeros = torch.zeros_like(IDS)
    for keys in (noise.keys(IDS, zeros), noise.keys(zeros, IDS)):
        counts = torch.histc(noise.uniform(noise.bits(keys, torch.tensor([11]))), bins=100, min=0.0, max=1.0)
        assert 50 < float(((counts - 200) ** 2 / 200).sum()) < 165


def test_seed_and_position_cannot_be_swapped() -> None:
    assert not torch.equal(bits(3, 4, IDS), bits(4, 3, IDS))


def test_gumbel_has_the_mean_and_variance_of_its_law() -> None:
    drawn = noise.gumbel(bits(1, 0, torch.arange(200_000)))
    assert float(drawn.mean()) == pytest.approx(0.5772, abs=0.012)
    assert float(drawn.var()) == pytest.approx(math.pi**2 / 6, abs=0.04)


@given(st.floats(-10, 60), st.integers(0, 2**noise.BITS - 1))
def test_least_bits_never_rules_out_noise_that_reaches_the_floor(floor: float, drawn: int) -> None:
    least = noise.least_bits(torch.tensor([floor], dtype=torch.float64)).item()
    if noise.gumbel(torch.tensor([drawn])).item() >= floor:
        assert drawn >= least


@given(st.integers(0, 2**noise.BITS - 1))
def test_least_bits_of_a_value_is_close_below_it(drawn: int) -> None:
    least = noise.least_bits(noise.gumbel(torch.tensor([drawn]))).item()
    assert least <= drawn
    assert drawn - least <= 16 + drawn * 1e-9


def test_a_floor_above_all_noise_leaves_next_to_nothing() -> None:
    assert noise.least_bits(torch.tensor([math.inf], dtype=torch.float64)).item() >= 2**noise.BITS - 4
