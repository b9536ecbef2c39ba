"""pricing.py: units by kind of token, by request, by measured dearness."""

from hypothesis import given
from hypothesis import strategies as st

from fairstep.fairness.pricing import FACTOR_ONE, LEAST_FACTOR, MOST_FACTOR, UNIT, CostModel


def test_tokens_cost_by_kind() -> None:
    prices = CostModel().prices()
    assert prices.cost(uncached=100, cached=50, outputs=10) == (100 + 5 + 20) * UNIT


def test_a_request_costs_one_whatever_it_holds() -> None:
    assert CostModel(kind="requests").prices().cost(uncached=10**6, cached=5, outputs=10**6) == UNIT


def test_weights_can_be_set() -> None:
    prices = CostModel(prompt=UNIT, cached=0, output=UNIT).prices()
    assert prices.cost(uncached=3, cached=9, outputs=4) == 7 * UNIT


def test_only_adaptive_prices_follow_the_factor() -> None:
    assert CostModel().prices(3 * FACTOR_ONE) == CostModel().prices()
    assert CostModel(kind="adaptive").prices(3 * FACTOR_ONE).output == 6 * UNIT
    assert CostModel(kind="adaptive").prices() == CostModel().prices()


@given(st.integers(-(10**9), 10**9))
def test_factors_are_clamped_and_nothing_gets_free(factor: int) -> None:
    prices = CostModel(kind="adaptive").prices(factor)
    assert UNIT * LEAST_FACTOR // FACTOR_ONE <= prices.prompt <= UNIT * MOST_FACTOR // FACTOR_ONE
    assert prices.cached > 0 and prices.output > 0
