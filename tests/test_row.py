"""A row says what it needs, and names of ids become places."""

from typing import Any

import pytest
import torch

from fairstep.door import Sampling
from fairstep.model.row import Row, Spots


@pytest.mark.parametrize(
    ("options", "shaped"),
    [
        ({}, False),
        ({"temperature": 1.0, "top_k": 3, "top_p": 0.5, "min_p": 0.1, "logprobs": 5, "prompt_logprobs": 5}, False),
        ({"stop_ids": (1,)}, False),
        ({"min_tokens": 9}, False),
        ({"min_tokens": 9, "stop_ids": (1,)}, True),
        ({"min_tokens": 4, "stop_ids": (1,)}, False),
        ({"bias": ((1, 1.0),)}, True),
        ({"allowed": (1,)}, True),
        ({"bad_words": ((1,),)}, True),
        ({"repetition": 1.1}, True),
        ({"presence": -0.1}, True),
        ({"frequency": 0.1}, True),
    ],
)
def test_logits_are_changed_only_where_an_option_asks_for_it(options: dict[str, Any], shaped: bool) -> None:
    assert Row(Sampling(**options), position=4).shaped is shaped


def test_greedy_up_to_a_tiny_temperature() -> None:
    assert [Row(Sampling(temperature=t), 0).greedy for t in (0.0, 1e-12, 1e-5, 1.1e-5, 1.0)] == [True] * 3 + [False] * 2


def test_spots_leave_out_ids_outside_the_vocabulary() -> None:
    spots = Spots.of([(3, -1, 9, 10), (), {2: 0.5}, (0, 0)], torch.zeros(4, 10))
    assert spots.rows.tolist() == [0, 0, 2, 3, 3]
    assert spots.ids.tolist() == [3, 9, 2, 0, 0]


def test_no_ids_are_no_spots() -> None:
    spots = Spots.of([(), ()], torch.zeros(2, 10))
    assert [each.dtype for each in spots] == [torch.int64] * 2
    assert len(spots.ids) == 0


def test_spots_that_repeat_are_counted() -> None:
    logits = torch.zeros(3, 10)
    spots, times = Spots.of([(3, 1, 3, 12), (), (3, 3, 3)], logits).counted(logits)
    assert list(zip(spots.rows.tolist(), spots.ids.tolist(), times.tolist(), strict=True)) == [
        (0, 1, 1),
        (0, 3, 2),
        (2, 3, 3),
    ]
