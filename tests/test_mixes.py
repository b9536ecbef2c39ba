"""mixes.py: what is drawn has the published lengths, and is the same for a seed."""

from itertools import pairwise
from random import Random
from statistics import fmean, pstdev

import pytest

from fairstep.benchmarking.mixes import MIXES, POINTS, Exponential, Quantiles, fitted
from fairstep.simulation.trace import Arrival, Trace

# mean tokens of prompts and answers in the sources
MEANS = {
    "chat": (161.3, 338.0),
    "conversation": (1155, 211),
    "code": (2048, 28),
    "reasoning": (652, 826),
    "summaries": (2596, 287),
}


@pytest.mark.parametrize("name", MIXES)
def test_drawn_lengths_have_the_means_of_their_source(name: str) -> None:
    trace = MIXES[name].trace(name, 6000, seed=1)
    prompt, answer = MEANS[name]
    assert fmean(each.prompt_tokens for each in trace.arrivals) == pytest.approx(prompt, rel=0.15)
    assert fmean(each.outputs for each in trace.arrivals) == pytest.approx(answer, rel=0.15)


@pytest.mark.parametrize("name", MIXES)
def test_gaps_are_about_a_second_and_spread_as_said(name: str) -> None:
    trace = MIXES[name].trace(name, 8000, seed=2)
    instants = [each.at for each in trace.arrivals]
    gaps = [later - earlier for earlier, later in pairwise(instants)]
    assert fmean(gaps) == pytest.approx(1.0, rel=0.1)
    assert pstdev(gaps) / fmean(gaps) == pytest.approx(MIXES[name].spread, rel=0.1)


def test_a_seed_gives_the_same_requests_and_another_one_others() -> None:
    chat = MIXES["chat"]
    assert chat.trace("chat", 20, 3) == chat.trace("chat", 20, 3) != chat.trace("chat", 20, 4)


def test_quantiles_are_met_at_their_points_and_rise_between_them() -> None:
    lengths = Quantiles((1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048))
    assert [lengths.at(point) for point in POINTS] == pytest.approx(lengths.tokens)
    assert lengths.at(37.5) == pytest.approx((16 * 32) ** 0.5)


def test_there_is_always_a_token() -> None:
    assert Exponential(0.01).draw(Random(0)) == 1


def test_what_exceeds_the_context_is_cut_the_answer_to_half_of_it() -> None:
    asked = Trace.of("t", [Arrival(at=1.0, prompt_tokens=100, outputs=90), Arrival(at=2.0, prompt_tokens=3, outputs=4)])
    got = fitted(asked, 100).arrivals
    assert [(each.at, each.prompt_tokens, each.outputs) for each in got] == [(1.0, 50, 50), (2.0, 3, 4)]
