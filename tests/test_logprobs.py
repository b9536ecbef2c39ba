"""Log probabilities by hand: order, rank, ties, and values that are always finite."""

import math

import pytest
import torch

from fairstep.door import TokenLogprobs
from fairstep.model.logprobs import FLOOR, prompt_logprobs, token_logprobs
from fairstep.stepping.plan import NOT_FINITE

HALVES = [math.log(p) for p in (0.125, 0.5, 0.25, 0.125)]


def told(logits: list[float], token: int, count: int) -> TokenLogprobs:
    found = token_logprobs(torch.tensor([logits]), [token], [count])[0]
    assert found is not None
    return found


def test_the_token_comes_first_then_the_likeliest() -> None:
    found = told(HALVES, 0, 3)
    assert found.ids == (0, 1, 2, 0)
    assert found.values == pytest.approx([math.log(p) for p in (0.125, 0.5, 0.25, 0.125)], abs=1e-7)
    assert told(HALVES, 2, 0).ids == (2,)


def test_rank_counts_all_that_are_as_likely() -> None:
    assert [told(HALVES, token, 0).rank for token in range(4)] == [4, 1, 2, 4]


def test_of_equals_the_lowest_id_comes_first() -> None:
    assert told([1.0, 2.0, 2.0, 1.0, 2.0], 3, 2).ids == (3, 1, 2)
    assert told([0.0] * 300, 299, 3).ids == (299, 0, 1, 2)


def test_more_than_the_vocabulary_gives_all_of_it() -> None:
    assert told(HALVES, 1, 20).ids == (1, 1, 2, 0, 3)


def test_a_constant_changes_nothing() -> None:
    assert told([value + 500.0 for value in HALVES], 1, 2).values == pytest.approx(told(HALVES, 1, 2).values, abs=1e-4)


def test_minus_infinity_is_told_as_the_floor() -> None:
    found = told([0.0, -math.inf, -math.inf], 1, 3)
    assert found.ids == (1, 0, 1, 2)
    assert found.values == (FLOOR, 0.0, FLOOR, FLOOR)
    assert told([0.0, -20_000.0], 1, 1).values == (FLOOR, 0.0)


def test_each_row_gets_what_it_asked_for() -> None:
    logits = torch.tensor([HALVES] * 4)
    logits[2] = math.nan
    found = token_logprobs(logits, [1, 1, NOT_FINITE, 0], [2, -1, 2, 0])
    assert [each and each.ids for each in found] == [(1, 1, 2), None, None, (0,)]
    assert token_logprobs(logits, [1, 1, NOT_FINITE, 0], [-1] * 4) == [None] * 4


def test_a_prompt_token_whose_logits_are_not_finite_is_told_alone_at_the_floor() -> None:
    logits = torch.tensor([HALVES] * 4)
    logits[1, 3], logits[2, 0] = math.nan, math.inf
    found = prompt_logprobs(logits, [2, 2, 0, 1], [1, 1, 1, 0])
    assert [each.ids for each in found] == [(2, 1), (2,), (0,), (1,)]
    assert [each.rank for each in found] == [2, 4, 4, 1]
    assert found[1].values == found[2].values == (FLOOR,)


@pytest.mark.parametrize("width", [7, 300, 49_153])
def test_a_row_is_bitwise_the_same_alone_and_in_a_block(width: int) -> None:
    logits = torch.randn(64, width, generator=torch.Generator().manual_seed(width)) * 5
    tokens = [(7 * n) % width for n in range(64)]
    together = token_logprobs(logits, tokens, [n % 6 for n in range(64)])
    for place in range(64):
        assert (
            token_logprobs(logits[place : place + 1], tokens[place : place + 1], [place % 6])
            == together[place : place + 1]
        )
