"""Logits as they are drawn from: to the last bit what the CPU makes, whatever is ruled out."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from fairstep.kernels.triton import sampling
from fairstep.kernels.triton.penalties import mark_word_ends, shape
from fairstep.kernels.triton.sampling import Tables
from fairstep.model import sampler as cpu
from fairstep.model.device_sampler import DeviceSampler
from fairstep.model.row import Row
from seated_rows import CPU, language_like, row, seated

VOCAB = 300
BLOCK = 128

OPTIONS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "bias": {"bias": tuple((token, token / 8 - 2) for token in range(-3, VOCAB + 3, 7))},
    "bias to the edge": {"bias": ((1, 3.0e38), (2, -3.0e38))},
    "allowed": {"allowed": (4, 90, 299, VOCAB, -4)},
    "nothing allowed": {"allowed": (VOCAB, -4)},
    "one word": {"bad_words": ((250,), (2, 5, 0), (9, 9))},
    "all words": {"bad_words": tuple((token,) for token in range(VOCAB))},
    "all allowed are bad": {"allowed": (1, 7), "bad_words": ((1,), (2, 5, 7))},
    "one allowed is bad": {"allowed": (1, 7, 8), "bad_words": ((1,), (2, 5, 7))},
    "stops": {"min_tokens": 7, "stop_ids": (0, 299, 400)},
    "stops no more": {"min_tokens": 6, "stop_ids": (0, 299)},
    "stops leave nothing": {"min_tokens": 7, "stop_ids": (7, 8), "allowed": (7, 8)},
    "repetition": {"repetition": 1.3},
    "repetition below 1": {"repetition": 0.7},
    "frequency": {"frequency": 0.7},
    "presence": {"presence": -1.3},
    "all penalties": {"repetition": 1.2, "frequency": 0.37, "presence": 0.11, "bias": ((2, 0.5), (3, -4.0))},
}


def shaped(logits: Tensor, rows: list[Row]) -> tuple[Tensor, Tensor, DeviceSampler]:
    """What is drawn from, and the tiles' highest."""
    sampler = DeviceSampler(seats=len(rows), vocab=logits.shape[1], device=CPU)
    step = sampler.prepare(seated(rows))
    marks, records = sampler._marks, sampler._records
    tables = Tables(records, marks.marks, marks.bias, marks.words, marks.tails)
    tiles = -(-logits.shape[1] // BLOCK)
    tops, classes = torch.empty(len(rows), tiles), torch.empty(len(rows), tiles, dtype=torch.int32)
    mark_word_ends(step.seats, step.positions, records, marks.words, marks.tails, marks.marks)
    sampling._survey(logits, step.seats, tables, tops, classes, BLOCK)
    got = shape(logits, step.seats, step.positions, records, marks.marks, marks.bias, tops, classes, BLOCK)
    return *got, sampler


@pytest.mark.parametrize("kind", ["language", "large", "holes"])
def test_shaped_logits_are_the_cpu_s(kind: str) -> None:
    rows = [row(**options) for options in OPTIONS.values()]
    logits = language_like(len(rows), seed=3)
    if kind == "large":
        logits *= 1e37
    elif kind == "holes":
        logits[:, 8:] = -math.inf
        logits[:, 1] = -math.inf
    got, tops, sampler = shaped(logits, rows)
    wanted = cpu.shape(logits.clone(), rows)
    for place, name in enumerate(OPTIONS):
        assert torch.equal(got[place], wanted[place]), name
    assert torch.equal(tops.amax(dim=1), wanted.amax(dim=1))
    assert not (sampler._marks.marks & 16).any(), "ends of words are marked for one step"


def test_what_is_masked_does_not_hide_that_a_row_is_not_finite() -> None:
    logits = language_like(3)
    logits[0, 9], logits[1, 9] = math.nan, math.inf
    _, tops, _ = shaped(logits, [row(allowed=(1, 2))] * 3)
    assert tops.amax(dim=1).tolist()[:2] == [math.inf, math.inf]
    assert tops[2].amax() == logits[2, [1, 2]].max()
