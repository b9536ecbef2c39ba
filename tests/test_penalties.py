"""Bias and penalties by hand: what counts, in which order, and numbers that stay finite."""

import math
from typing import Any

import pytest
import torch

from fairstep.door import Sampling
from fairstep.model.penalties import LARGEST, add_bias, penalize
from fairstep.model.row import Row


def row(known: tuple[int, ...] = (), prompt_len: int = 0, **options: Any) -> Row:
    return Row(Sampling(**options), len(known) - prompt_len, known, prompt_len)


def biased(logits: list[float], **options: Any) -> list[float]:
    table = torch.tensor([logits])
    add_bias(table, [row(**options)])
    return table[0].tolist()


def penalized(logits: list[float], *, known: tuple[int, ...], prompt_len: int, **options: Any) -> list[float]:
    table = torch.tensor([logits])
    penalize(table, [row(known, prompt_len, **options)])
    return table[0].tolist()


def test_bias_is_added() -> None:
    assert biased([1.0, 2.0, -3.0], bias=((0, -100.0), (2, 4.5))) == [-99.0, 2.0, 1.5]


def test_bias_outside_the_vocabulary_touches_nothing() -> None:
    assert biased([1.0, 2.0], bias=((2, 5.0), (-1, 5.0), (191_222, -100.0))) == [1.0, 2.0]


def test_repetition_divides_what_is_positive_and_multiplies_the_rest() -> None:
    known = (0, 1, 2, 2, 2)
    assert penalized([4.0, -4.0, 0.0, 4.0], known=known, prompt_len=5, repetition=2.0) == [2.0, -8.0, 0.0, 4.0]
    assert penalized([4.0, -4.0, 0.0, 4.0], known=known, prompt_len=0, repetition=0.5) == [8.0, -2.0, 0.0, 4.0]


def test_presence_and_frequency_count_outputs_alone() -> None:
    known = (0, 1, 1, 2, 2, 2)  # 0 and the first 1 are the prompt
    assert penalized([5.0] * 4, known=known, prompt_len=2, frequency=0.5) == [5.0, 4.5, 3.5, 5.0]
    assert penalized([5.0] * 4, known=known, prompt_len=2, presence=0.5) == [5.0, 4.5, 4.5, 5.0]
    assert penalized([5.0] * 4, known=known, prompt_len=2, presence=-1.0, frequency=-1.0) == [5.0, 7.0, 9.0, 5.0]
    assert penalized([5.0] * 4, known=known, prompt_len=6, presence=2.0, frequency=2.0) == [5.0] * 4


def test_repetition_comes_before_the_others() -> None:
    assert penalized([4.0], known=(0, 0), prompt_len=0, repetition=2.0, frequency=0.5, presence=0.25) == [0.75]


def test_prompt_tokens_outside_the_vocabulary_are_passed_over() -> None:
    assert penalized([4.0, 4.0], known=(7, 1), prompt_len=2, repetition=2.0) == [4.0, 2.0]


def test_each_row_has_its_own() -> None:
    table = torch.full((4, 3), 6.0)
    rows = [
        row(),
        row((0,), 0, frequency=1.0),
        row((0, 1), 1, repetition=3.0),
        row((2, 2), 0, presence=1.0, frequency=1.0, repetition=2.0),
    ]
    penalize(table, rows)
    assert table.tolist() == [[6, 6, 6], [5, 6, 6], [2, 2, 6], [6, 6, 0]]


@pytest.mark.parametrize("value", [3.0e38, -3.0e38])
def test_what_is_finite_stays_so_and_minus_infinity_stays_that(value: float) -> None:
    options: dict[str, Any] = {"repetition": 0.01 if value > 0 else 100.0, "frequency": 2.0, "presence": -2.0}
    found = penalized([value, -math.inf], known=(0, 1), prompt_len=0, **options)
    assert found == [math.copysign(LARGEST, value), -math.inf]
    assert biased([-math.inf, 1.0], bias=((0, 100.0),)) == [-math.inf, 1.0]
