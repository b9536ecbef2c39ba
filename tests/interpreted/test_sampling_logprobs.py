"""Log probabilities on the device: values, ranks and the likeliest, over tiles, strides and poisoned rows."""

import math

import pytest
import torch

from fairstep.kernels.triton.sampling_logprobs import FLOOR, token_logprobs
from fairstep.model.device_sampler import told_of
from fairstep.model.logprobs import prompt_logprobs
from seated_rows import language_like

VOCAB = 300


@pytest.mark.parametrize("block", [64, 512])
def test_they_are_the_cpu_s(block: int) -> None:
    logits = language_like(6, seed=1)
    logits[1] = logits[1].round()
    logits[2, :290] = -math.inf
    logits[3] = -1e30
    logits[4] *= 30
    tokens = [7, 250, 5, 299, 1, 0]
    found = token_logprobs(logits, torch.tensor(tokens), 4, block)
    wanted = prompt_logprobs(logits, tokens, [4] * 6)
    for place, told in enumerate(wanted):
        assert found.ids[place].tolist() == list(told.ids)
        assert found.ranks[place] == told.rank
        assert found.values[place].tolist() == pytest.approx(told.values, abs=1e-6)
    assert found.values[2, 0] == FLOOR


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_row_that_is_not_finite_is_told_alone_and_never_as_nan(bad: float) -> None:
    logits = language_like(3, seed=4)
    if bad == -math.inf:
        logits[1] = bad
    else:
        logits[1, 130] = bad
    found = token_logprobs(logits, torch.tensor([5, 130, 7]), 4, 128)
    rows = zip(*(part.tolist() for part in found), strict=True)
    told, wanted = [told_of(*row, 4) for row in rows], prompt_logprobs(logits, [5, 130, 7], [4] * 3)
    assert told[1] == wanted[1]
    assert [each.ids for each in told] == [each.ids for each in wanted]


def test_none_of_the_likeliest_more_than_there_are_and_no_token() -> None:
    logits = language_like(2, vocab=5)
    assert token_logprobs(logits, torch.tensor([1, -1]), 0).ids.tolist() == [[1], [0]]
    assert token_logprobs(logits, torch.tensor([1, 2]), 9).values.shape == (2, 6)
    assert token_logprobs(logits[:0], torch.tensor([], dtype=torch.int64), 2).ids.shape == (0, 3)


def test_a_poisoned_row_stays_alone_and_rows_may_lie_apart() -> None:
    padded = torch.full((4, VOCAB + 20), math.nan)
    padded[::2, :VOCAB] = language_like(2, seed=2)
    logits, tokens = padded[::2, :VOCAB], torch.tensor([3, 4])
    alone = token_logprobs(logits.contiguous(), tokens, 2, 128)
    for got, wanted in zip(token_logprobs(logits, tokens, 2, 128), alone, strict=True):
        assert torch.equal(got, wanted)
    padded[0, 9] = math.inf
    assert torch.equal(token_logprobs(logits, tokens, 2, 128).values[1], alone.values[1])
