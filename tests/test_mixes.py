"""mixes.py: lengths as published, the same for a seed, cut to the context."""

from random import Random

import pytest

from fairstep.benchmarking.mixes import MIXES, POINTS, Exponential, Quantiles, fitted


def test_quantiles_are_met_at_their_points_and_rise_between() -> None:
    tokens = (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048)
    lengths = Quantiles(tokens)
    assert [round(lengths.at(point)) for point in POINTS] == list(tokens)
    assert 32 < lengths.at(30) < lengths.at(40) < 64


def test_an_exponentials_mean_is_met() -> None:
    random = Random(1)
    drawn = [Exponential(100.0).draw(random) for _ in range(20_000)]
    assert sum(drawn) / len(drawn) == pytest.approx(100, rel=0.03) and min(drawn) >= 1


@pytest.mark.parametrize("name", list(MIXES))
def test_a_mix_is_the_same_for_a_seed_and_comes_about_once_a_second(name: str) -> None:
    trace = MIXES[name].trace(name, 400, 3)
    assert trace == MIXES[name].trace(name, 400, 3) != MIXES[name].trace(name, 400, 4)
    assert 400 / trace.arrivals[-1].at == pytest.approx(1.0, rel=0.4)


def test_what_is_longer_than_the_context_is_cut() -> None:
    for each in fitted(MIXES["reasoning"].trace("reasoning", 400, 0), 256).arrivals:
        assert each.prompt_tokens + each.outputs <= 256 and each.outputs <= 128
