"""Every sampling option against the oracle, alone and among neighbours: logits, cuts, tokens, log probabilities."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import sampling_oracle as oracle
from fairstep.door import Sampling
from fairstep.model import draws
from fairstep.model.draws import Draws
from fairstep.model.logprobs import token_logprobs
from fairstep.model.row import Row
from fairstep.model.row_math import highest
from fairstep.model.sampler import sample, shape
from fairstep.stepping.plan import NOT_FINITE

VOCAB = 1500  # above the second candidate size
KNOWN = (3, 0, 3, 1400, 9, 2, 0, 2, 2, 5)
PROMPT = 4
WARM = {"temperature": 1.2}

OPTIONS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "temperature": WARM,
    "top_k": {**WARM, "top_k": 7},
    "top_p": {**WARM, "top_p": 0.8},
    "min_p": {**WARM, "min_p": 0.05},
    "all cuts": {**WARM, "top_k": 50, "top_p": 0.9, "min_p": 0.01},
    "min_tokens": {**WARM, "min_tokens": 100, "stop_ids": (0, 1, 2, VOCAB + 5)},
    "bias": {**WARM, "bias": ((0, -100.0), (1, -3.5), (700, 6.0), (VOCAB, 100.0), (-1, 100.0))},
    "allowed": {**WARM, "allowed": (4, 90, 1499, VOCAB, -4)},
    "bad words": {**WARM, "bad_words": ((1,), (2, 5, 0), (5, 2), (9, 7), (), (2, 5, 3), (-1,), (VOCAB,))},
    "repetition": {**WARM, "repetition": 1.7},
    "repetition below 1": {**WARM, "repetition": 0.6},
    "presence": {**WARM, "presence": 1.5},
    "frequency": {**WARM, "frequency": 0.7},
    "negative penalties": {**WARM, "frequency": -0.5, "presence": -1.0},
    "greedy penalties": {"repetition": 1.3, "frequency": 0.5, "presence": 0.5},
    "greedy bias": {"bias": ((900, 50.0),)},
    "greedy bad words": {"bad_words": ((0,), (1,))},
    "everything": {
        "temperature": 0.9,
        "top_k": 100,
        "top_p": 0.95,
        "min_p": 0.001,
        "min_tokens": 50,
        "stop_ids": (4, 8),
        "bias": tuple((token, token / 100) for token in range(40)),
        "allowed": tuple(range(1200)),
        "bad_words": ((6,), (2, 5, 7)),
        "repetition": 1.2,
        "frequency": 0.3,
        "presence": 0.2,
    },
}


def row(position: int = 6, seed: int = 0, **options: Any) -> Row:
    sampling = Sampling(seed=seed, **options)
    return Row(sampling, position, KNOWN, PROMPT) if sampling.needs_history else Row(sampling, position)


def language_like(rows: int, seed: int = 0) -> Tensor:
    made = torch.Generator().manual_seed(seed)
    tail = 4.0 - 1.6 * torch.log(torch.arange(1, VOCAB + 1, dtype=torch.float32))
    return tail + torch.randn(rows, VOCAB, generator=made)


def kept(logits: Tensor, asked: Row) -> list[int]:
    """The ids that pass the sampler's cuts, likeliest first, in one shaped row."""
    values, ids = highest(logits[None], len(logits))
    passes = draws.kept(Draws.of(logits[None], [asked]), values.double() / asked.sampling.temperature)
    return ids[passes].tolist()


@pytest.mark.parametrize("name", OPTIONS)
def test_each_option_alone(name: str) -> None:
    logits = language_like(8)
    for place in range(8):
        asked = row(position=place, seed=2**64 - 1 - place, **OPTIONS[name])
        formed = shape(logits[place : place + 1].clone(), [asked])[0]
        assert formed.tolist() == oracle.shaped(logits[place], asked)
        if not asked.greedy:
            assert kept(formed, asked) == oracle.kept(formed.tolist(), asked.sampling)
        assert sample(logits[place : place + 1], [asked]) == [oracle.token(logits[place], asked)]


@pytest.mark.parametrize("count", [0, 1, 5, 20])
def test_log_probabilities_are_of_the_raw_distribution(count: int) -> None:
    rows = [row(position=n, seed=n, **options) for n, options in enumerate(OPTIONS.values())]
    logits = language_like(len(rows), seed=5)
    tokens = sample(logits, rows)
    for place, told in enumerate(token_logprobs(logits, tokens, [count] * len(rows))):
        expected = oracle.logprobs(logits[place], tokens[place], count)
        assert told is not None
        assert (told.ids, told.rank) == (expected.ids, expected.rank)
        assert told.values == pytest.approx(expected.values, abs=1e-6)


def test_a_batch_of_all_options() -> None:
    rows = [row(position=n, seed=n * 977, **options) for n in range(3) for options in OPTIONS.values()]
    logits = language_like(len(rows), seed=1)
    before = logits.clone()
    assert sample(logits, rows) == [oracle.token(logits[place], asked) for place, asked in enumerate(rows)]
    assert torch.equal(logits, before)


@pytest.mark.parametrize("name", OPTIONS)
def test_a_row_never_depends_on_its_place_or_its_neighbours(name: str) -> None:
    logits = language_like(8, seed=2)
    mine, asked = logits[:1], row(position=5, seed=41, **OPTIONS[name])
    token = sample(mine, [asked])[0]
    formed, told = shape(mine.clone(), [asked])[0], token_logprobs(mine, [token], [5])[0]
    others = [row(position=n, seed=n, **options) for n, options in enumerate(OPTIONS.values())]
    for place in range(8):
        table = logits.roll(place, dims=0)  # `mine` is at `place`
        for turn in range(0, len(others), 3):
            rows = (others[turn:] + others)[:8]
            rows[place] = asked
            assert sample(table, rows)[place] == token
            assert torch.equal(shape(table.clone(), rows)[place], formed)
            assert token_logprobs(table, [token] * 8, [turn % 4] * place + [5] + [-1] * (7 - place))[place] == told


def test_a_neighbour_that_is_not_finite_changes_nothing() -> None:
    rows = [row(position=n, seed=n, **options) for n, options in enumerate(OPTIONS.values())]
    logits = language_like(len(rows), seed=3)
    expected = sample(logits, rows)
    for bad in (float("nan"), float("inf")):
        for spoiled in range(len(rows)):
            table = logits.clone()
            table[spoiled, 77] = bad
            wanted = [NOT_FINITE if place == spoiled else token for place, token in enumerate(expected)]
            assert sample(table, rows) == wanted


def _maybe(off: Any, on: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(st.just(off), on)


@st.composite
def samplings(draw: st.DrawFn, vocab: int) -> Sampling:
    ids = st.integers(-2, vocab + 2)
    return Sampling(
        temperature=draw(st.sampled_from([0.0, 1e-12, 0.1, 0.7, 1.0, 2.5, 100.0])),
        top_k=draw(st.sampled_from([0, 0, 1, 2, 5, 63, 64, 65, 299, 1000])),
        top_p=draw(_maybe(1.0, st.floats(1e-9, 0.9999))),
        min_p=draw(_maybe(0.0, st.floats(1e-9, 1.0))),
        seed=draw(st.integers(0, 2**64 - 1)),
        min_tokens=draw(st.integers(0, 3)),
        stop_ids=draw(st.lists(ids, max_size=4).map(tuple)),
        repetition=draw(_maybe(1.0, st.floats(0.01, 100.0))),
        presence=draw(_maybe(0.0, st.floats(-2.0, 2.0))),
        frequency=draw(_maybe(0.0, st.floats(-2.0, 2.0))),
        bias=draw(st.dictionaries(ids, st.floats(-100.0, 100.0), max_size=4).map(lambda made: tuple(made.items()))),
        allowed=draw(_maybe((), st.lists(ids, max_size=6).map(tuple))),
        bad_words=draw(_maybe((), st.lists(st.lists(ids, max_size=3).map(tuple), max_size=4).map(tuple))),
        logprobs=draw(st.integers(-1, 8)),
    )


@st.composite
def batches(draw: st.DrawFn) -> tuple[Tensor, list[Row]]:
    """A batch of any settings over logits with ties, minus infinities and, now and then, values that are wrong."""
    vocab = draw(st.sampled_from([1, 2, 3, 7, 64, 65, 300, 600]))
    count = draw(st.integers(1, 6))
    made = torch.Generator().manual_seed(draw(st.integers(0, 10**6)))
    logits = torch.randn(count, vocab, generator=made) * draw(st.sampled_from([0.0, 0.5, 2.0, 8.0]))
    if draw(st.booleans()):
        logits = logits.round()  # many ties
    if draw(st.booleans()):
        logits[torch.rand(count, vocab, generator=made) < 0.4] = -torch.inf
    if draw(st.integers(0, 5)) == 0:
        logits[0, -1] = draw(st.sampled_from([float("nan"), float("inf")]))
    rows = []
    for _ in range(count):
        known = tuple(draw(st.lists(st.integers(0, min(vocab - 1, 9)), max_size=12)))
        prompt_len = draw(st.integers(0, len(known)))
        rows.append(Row(draw(samplings(vocab)), draw(st.integers(0, 4)), known, prompt_len))
    return logits, rows


@settings(deadline=None, max_examples=120)
@given(batches())
def test_any_batch(batch: tuple[Tensor, list[Row]]) -> None:
    logits, rows = batch
    before = logits.clone()
    tokens = sample(logits, rows)
    assert tokens == [oracle.token(logits[place], asked) for place, asked in enumerate(rows)]
    told = token_logprobs(logits, tokens, [asked.sampling.logprobs for asked in rows])
    assert torch.equal(logits.view(torch.int32), before.view(torch.int32))
    for place, (asked, each) in enumerate(zip(rows, told, strict=True)):
        if tokens[place] == NOT_FINITE or asked.sampling.logprobs < 0:
            assert each is None
            continue
        formed = shape(logits[place : place + 1].clone(), [asked])[0]
        assert formed.tolist() == oracle.shaped(logits[place], asked)
        expected = oracle.logprobs(logits[place], tokens[place], asked.sampling.logprobs)
        assert each is not None and (each.ids, each.rank) == (expected.ids, expected.rank)
        assert each.values == pytest.approx(expected.values, abs=1e-5)


@settings(deadline=None, max_examples=60)
@given(batches(), st.randoms(use_true_random=False))
def test_any_order_of_a_batch_draws_the_same(batch: tuple[Tensor, list[Row]], random: Any) -> None:
    logits, rows = batch
    tokens = sample(logits, rows)
    order = list(range(len(rows)))
    random.shuffle(order)
    assert sample(logits[order], [rows[n] for n in order]) == [tokens[n] for n in order]
    for n in order:
        assert sample(logits[n : n + 1], [rows[n]]) == [tokens[n]]


def test_a_seeded_answer_is_the_same_at_every_place_of_a_batch() -> None:
    """Sixteen tokens of one request with all penalties, whose history grows, at places 0 to 7 of a changing batch."""
    asked = Sampling(temperature=1.3, top_p=0.95, seed=99, repetition=1.3, frequency=0.4, presence=0.1, min_tokens=8)
    others = [row(position=n, seed=n, **options) for n, options in enumerate(OPTIONS.values())]

    def answer(place: int, size: int) -> list[int]:
        known = KNOWN
        for position in range(16):
            table = language_like(8, seed=100 + position)[:size].roll(place, dims=0)
            rows = (others[position:] + others)[:size]
            rows[place] = Row(asked, position, known, len(KNOWN))
            known = (*known, sample(table, rows)[place])
        return list(known[len(KNOWN) :])

    alone = answer(0, 1)
    assert [answer(place, 8) for place in range(8)] == [alone] * 8
    assert len(set(alone)) > 4
