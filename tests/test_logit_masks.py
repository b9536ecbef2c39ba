"""Masks by hand: what each leaves, and that none leaves nothing."""

import math
from typing import Any

import pytest
import torch

from fairstep.door import Sampling
from fairstep.model.logit_masks import mask_bad_words, mask_early_stops, mask_to_allowed
from fairstep.model.row import Row
from fairstep.model.sampler import shape

VOCAB = 6


def left(mask: Any, *rows: Row, hidden: tuple[int, ...] = ()) -> list[set[int]]:
    """The ids that a mask leaves in each row; `hidden` ones are minus infinity already."""
    table = torch.arange(VOCAB, dtype=torch.float32).repeat(len(rows), 1)
    table[:, list(hidden)] = -math.inf
    mask(table, list(rows))
    for place, value in table.isfinite().nonzero().tolist():
        assert table[place, value] == value
    return [set(each.isfinite().nonzero().flatten().tolist()) for each in table]


def row(known: tuple[int, ...] = (), position: int = 0, **options: Any) -> Row:
    return Row(Sampling(**options), position, known)


def allowed(*ids: int) -> Row:
    return row(allowed=ids)


def bad(known: tuple[int, ...], *words: tuple[int, ...]) -> Row:
    return row(known, bad_words=words)


ALL = set(range(VOCAB))


def test_only_allowed_ids_are_left() -> None:
    assert left(mask_to_allowed, allowed(1, 4), row(), allowed(5, 5)) == [{1, 4}, ALL, {5}]


def test_allowed_ids_outside_the_vocabulary_do_not_count() -> None:
    assert left(mask_to_allowed, allowed(0, VOCAB, -1), allowed(VOCAB, -1)) == [{0}, ALL]


def test_allowed_ids_that_cannot_come_allow_all() -> None:
    assert left(mask_to_allowed, allowed(2, 3), allowed(3, 4), hidden=(2, 3)) == [{0, 1, 4, 5}, {4}]


@pytest.mark.parametrize(
    ("known", "words", "masked"),
    [
        ((), [(3,)], {3}),
        ((1, 2), [(3,)], {3}),
        ((1, 2), [(2, 3)], {3}),
        ((1, 2), [(1, 2, 3)], {3}),
        ((1, 2), [(1, 3)], set()),
        ((2, 1), [(1, 2, 3)], set()),
        ((2,), [(1, 2, 3)], set()),
        ((), [(2, 3)], set()),
        ((1, 2), [(2, 3), (2, 4), (1, 5), (0,)], {0, 3, 4}),
        ((2, 2), [(2, 2)], {2}),
        ((1,), [(), (VOCAB,), (-1,), (1, VOCAB)], set()),
    ],
)
def test_a_bad_word_cannot_be_ended(known: tuple[int, ...], words: list[tuple[int, ...]], masked: set[int]) -> None:
    assert left(mask_bad_words, bad(known, *words)) == [ALL - masked]


def test_bad_words_that_would_leave_nothing_are_not_applied() -> None:
    everything = [(token,) for token in range(VOCAB)]
    assert left(mask_bad_words, bad((), *everything), bad((), (1,))) == [ALL, ALL - {1}]
    assert left(mask_bad_words, bad((), (0,), (1,)), bad((), (0,)), hidden=(2, 3, 4, 5)) == [{0, 1}, {1}]


def test_stop_ids_wait_for_min_tokens() -> None:
    rows = [row(position=n, min_tokens=2, stop_ids=(1, 9)) for n in range(3)]
    assert left(mask_early_stops, *rows) == [ALL - {1}, ALL - {1}, ALL]
    assert left(mask_early_stops, row(min_tokens=2, stop_ids=tuple(range(9)))) == [ALL]


def test_a_mask_gives_way_to_those_before_it() -> None:
    early = {"min_tokens": 9, "stop_ids": (2, 3)}
    assert left(shape, row(allowed=(2, 3), **early)) == [{2, 3}]
    assert left(shape, row(allowed=(2, 3), bad_words=((2,),), **early)) == [{3}]
    assert left(shape, row(allowed=(2, 3), bad_words=((2,), (3,)))) == [{2, 3}]
    assert left(shape, row(allowed=(9,), bad_words=((2,),), **early)) == [ALL - {2, 3}]
    assert left(shape, row(bad_words=((0,), (1,), (4,), (5,)), **early)) == [{2, 3}]
