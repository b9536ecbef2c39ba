"""Draws in C++, in every build, are those of torch: whatever the logits, the temperature and the row's neighbours."""

import math

import pytest
import torch
from torch import Tensor

from cpu_libraries import LEVELS, library
from fairstep.door import Sampling
from fairstep.model.cpu_draws import CpuDraws
from fairstep.model.draws import Draws, draw_cut, draw_whole
from fairstep.model.row import Row
from fairstep.model.sampler import sample

VOCABS = [1, 5, 255, 256, 8192, 8193, 49_152]


def logits(rows: int, vocab: int, scale: float = 3.0) -> Tensor:
    return torch.randn(rows, vocab, generator=torch.Generator().manual_seed(vocab)) * scale


def rows(count: int, temperature: float = 1.0, **options: float) -> list[Row]:
    return [Row(Sampling(temperature=temperature, seed=2**63 + 7919 * n, **options), n) for n in range(count)]  # type: ignore[arg-type]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("vocab", VOCABS)
@pytest.mark.parametrize("temperature", [0.02, 0.7, 1.0, 30.0])
def test_the_same_tokens_are_drawn(level: str, vocab: int, temperature: float) -> None:
    draws = Draws.of(logits(12, vocab), rows(12, temperature))
    assert CpuDraws(library(level), 2)(draws).tolist() == draw_whole(draws).tolist()


@pytest.mark.parametrize("level", LEVELS)
def test_what_is_minus_infinity_is_never_drawn(level: str) -> None:
    table = logits(300, 600, scale=0.1)
    table[:, 1::2] = -math.inf
    draws = Draws.of(table, rows(300, 5.0))
    drawn = CpuDraws(library(level), 2)(draws)
    assert not (drawn % 2).any() and drawn.unique().numel() > 100
    assert drawn.tolist() == draw_whole(draws).tolist()


@pytest.mark.parametrize("level", LEVELS)
def test_a_rows_draw_does_not_depend_on_the_others_or_on_threads(level: str) -> None:
    draws = Draws.of(logits(9, 20_000), rows(9))
    together = CpuDraws(library(level), 1)(draws)
    assert all(CpuDraws(library(level), threads)(draws).equal(together) for threads in (2, 3, 7))
    single = [CpuDraws(library(level), 2)(draws.take(slice(n, n + 1))).item() for n in range(9)]
    assert single == together.tolist()


def test_cuts_and_shapes_draw_the_same() -> None:
    whole = CpuDraws(library(LEVELS[0]), 2)
    flat = Draws.of(logits(20, 3000, scale=0.3), rows(20, top_p=0.99))  # no order settles these
    assert draw_cut(flat, whole).tolist() == draw_cut(flat).tolist()
    table = logits(20, 3000)
    mixed = [Row(Sampling(temperature=n % 3 / 2, seed=n, bias=((7, 9.0),) if n % 2 else ()), n) for n in range(20)]
    assert sample(table, mixed, whole) == sample(table, mixed)
