"""Reports that others had about sampling, replayed on fixed logits; each names the thread it was told in."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from fairstep.door import Sampling
from fairstep.model.logprobs import token_logprobs
from fairstep.model.row import Row
from fairstep.model.sampler import sample, shape

VOCAB = 320
GREEDY = Sampling()


def logits(rows: int = 1, seed: int = 0) -> Tensor:
    return torch.randn(rows, VOCAB, generator=torch.Generator().manual_seed(seed)) * 3


def row(known: tuple[int, ...] = (), prompt_len: int = 0, position: int = 0, **options: Any) -> Row:
    return Row(Sampling(**options), position, known, prompt_len)


@pytest.mark.parametrize("token", [-1, VOCAB, VOCAB + 1, 191_222, 2**31 - 1])
def test_ids_beyond_the_vocabulary_change_nobody(token: int) -> None:
    """vllm#16529, vllm#6866, sglang#7670."""
    table = logits(2)
    beside = row(temperature=1.0, seed=4)
    for options in (
        {"bias": ((token, -100.0),)},
        {"allowed": (token,)},
        {"bad_words": ((token,), (token, 1))},
        {"stop_ids": (token,), "min_tokens": 5},
    ):
        assert sample(table, [row(**options), beside]) == sample(table, [row(), beside])


def test_ids_at_the_border_count() -> None:
    """vllm#16529."""
    last = VOCAB - 1
    assert sample(logits(), [row(bias=((last, 100.0),))]) == [last]
    assert sample(logits(), [row(allowed=(last, VOCAB))]) == [last]
    assert shape(logits(), [row(bad_words=((last,), (0,)))])[0, [0, last]].tolist() == [-math.inf] * 2


@pytest.mark.parametrize("temperature", [1e-300, 1e-12, 1e-5, 1.1e-5, 1e-4, 1e-3])
@pytest.mark.parametrize("options", [{}, {"top_p": 0.9}, {"top_k": 40}, {"min_p": 0.1}, {"repetition": 1.3}])
def test_tiny_temperatures_are_greedy(temperature: float, options: dict[str, Any]) -> None:
    """vllm#1623, vllm#2937, TensorRT-LLM#15715: overflow to infinity or NaN."""
    table = logits(20)
    table[:, 7] = table.amax(dim=-1) + 0.05  # further apart than any of these temperatures
    warm = [row((7, 8), 2, temperature=temperature, seed=n, **options) for n in range(20)]
    cold = [row((7, 8), 2, seed=n, **options) for n in range(20)]
    assert sample(table, warm) == sample(table, cold)


@pytest.mark.parametrize("temperature", [2.0, 100.0])
def test_high_temperatures_stay_in_the_vocabulary(temperature: float) -> None:
    """vllm#1623."""
    tokens = sample(logits(200), [row(temperature=temperature, seed=n) for n in range(200)])
    assert all(0 <= token < VOCAB for token in tokens)
    assert len(set(tokens)) > 50


@pytest.mark.parametrize("options", [{"top_p": 1e-9}, {"top_k": 1}, {"top_p": 5e-324}])
@pytest.mark.parametrize("temperature", [0.01, 1.0, 100.0])
def test_the_narrowest_cuts_are_greedy(options: dict[str, Any], temperature: float) -> None:
    """lmms-eval#1265 and vllm#5404, ties included."""
    table = logits(30).round()
    rows = [row(temperature=temperature, seed=n, **options) for n in range(30)]
    assert sample(table, rows) == sample(table, [row()] * 30)


@pytest.mark.parametrize("top_k", [VOCAB, VOCAB + 1, 10**9])
def test_a_top_k_of_the_vocabulary_or_more_is_off(top_k: int) -> None:
    """lmms-eval#1265."""
    table = logits(30)
    rows = [row(temperature=2.0, seed=n, top_k=top_k) for n in range(30)]
    assert sample(table, rows) == sample(table, [row(temperature=2.0, seed=n) for n in range(30)])


@pytest.mark.parametrize("penalty", [{"repetition": 1.8}, {"presence": 2.0}, {"frequency": 2.0}, {"bias": ((1, 9.0),)}])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_penalized_request_beside_a_plain_one_in_both_orders(penalty: dict[str, Any], temperature: float) -> None:
    """vllm#5607: the result hung on the order."""
    table = logits(2, seed=3)
    known = tuple(table.topk(30, dim=-1).indices[0].tolist())
    asked = row(known, 3, temperature=temperature, seed=1, **penalty)
    plain = row(temperature=temperature, seed=2)
    alone = [sample(table[:1], [asked])[0], sample(table[1:], [plain])[0]]
    assert sample(table, [asked, plain]) == alone
    assert sample(table.flip(0), [plain, asked]) == alone[::-1]
    assert not torch.equal(shape(table[:1].clone(), [asked]), table[:1]), "the penalty changed nothing"


def test_only_repetition_counts_the_prompt_and_from_the_first_token_on() -> None:
    """vllm-metal#69: `Paris Paris Paris`, by hand."""
    paris, lyon = 5, 6
    table = torch.zeros(1, VOCAB)
    table[0, [paris, lyon]] = torch.tensor([2.0, 1.5])
    prompt = (paris, paris, paris)
    assert sample(table, [row(prompt, 3, presence=2.0, frequency=2.0)]) == [paris]
    assert sample(table, [row(prompt, 3, repetition=1.5)]) == [lyon]  # 2 / 1.5 is below 1.5
    assert sample(table, [row((*prompt, paris), 3, position=1, presence=0.6)]) == [lyon]
    assert sample(table, [row((*prompt, paris), 3, position=1, frequency=0.4)]) == [paris]
    assert sample(table, [row((*prompt, paris, paris), 3, position=2, frequency=0.4)]) == [lyon]


@pytest.mark.parametrize(
    "options",
    [
        {"allowed": (3, 4)},
        {"bias": tuple((token, -100.0) for token in range(VOCAB))},
        {"temperature": 1.0, "top_k": 1},
        {"bad_words": tuple((token,) for token in range(1, VOCAB))},
    ],
)
@pytest.mark.parametrize("padded", [False, True])
def test_log_probabilities_are_always_finite(options: dict[str, Any], padded: bool) -> None:
    """sglang#4097, sglang#5984, vllm#10234: minus infinity in an answer, which is no JSON."""
    table = logits()
    if padded:
        table[:, 5:] = -math.inf
    tokens = sample(table, [row(**options)])
    told = token_logprobs(table, tokens, [20])[0]
    assert told is not None and len(told.values) == 21
    assert all(math.isfinite(value) for value in told.values)
    assert told.values[0] <= 0.0
