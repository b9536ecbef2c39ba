"""The sampler: cuts of every width over a long vocabulary against the oracle, ties, edges, and rows alone or not."""

import math

import pytest
import torch

import sampling_oracle as oracle
from fairstep.door import Sampling
from fairstep.model import sampler
from fairstep.model.row import Row
from fairstep.model.sampler import sample
from fairstep.stepping.plan import NOT_FINITE

VOCAB = 6000  # above the second candidate size, so that wide cuts need the third and the whole row

OPTIONS = {
    "greedy": {"temperature": 0.0},
    "plain": {"temperature": 1.0},
    "hot": {"temperature": 3.0},
    "cold": {"temperature": 0.05},
    "top_k": {"temperature": 1.0, "top_k": 5},
    "wide_top_k": {"temperature": 4.0, "top_k": 700},
    "whole_top_k": {"temperature": 4.0, "top_k": VOCAB},
    "huge_top_k": {"temperature": 2.0, "top_k": 10**6},
    "top_p": {"temperature": 0.8, "top_p": 0.9},
    "wide_top_p": {"temperature": 3.0, "top_p": 0.97},
    "min_p": {"temperature": 1.0, "min_p": 0.05},
    "low_min_p": {"temperature": 3.0, "min_p": 1e-4},
    "all_cuts": {"temperature": 1.3, "top_k": 40, "top_p": 0.9, "min_p": 0.02},
    "top_k_and_p": {"temperature": 1.3, "top_k": 100, "top_p": 0.5},
    "top_p_and_min_p": {"temperature": 1.5, "top_p": 0.8, "min_p": 0.01},
    "stops_masked": {"temperature": 1.0, "min_tokens": 100, "stop_ids": (0, 1, 2, 3, 10**9)},
    "greedy_stops_masked": {"temperature": 0.0, "min_tokens": 100, "stop_ids": (0, 1, 2)},
}


def row(position: int = 0, seed: int = 0, **options: object) -> Row:
    return Row(Sampling(seed=seed, **options), position)


def language_like(rows: int, vocab: int = VOCAB, seed: int = 0) -> torch.Tensor:
    """A few likely tokens above a long tail, likeliest first in id order but for noise."""
    made = torch.Generator().manual_seed(seed)
    tail = -1.6 * torch.log(torch.arange(1, vocab + 1, dtype=torch.float32))
    return tail + torch.randn(rows, vocab, generator=made)


@pytest.mark.parametrize("name", OPTIONS)
def test_each_option_equals_the_oracle_alone(name: str) -> None:
    logits = language_like(12)
    for place in range(12):
        asked = row(position=place, seed=2**64 - 1 - place, **OPTIONS[name])
        assert sample(logits[place : place + 1], [asked]) == [oracle.token(logits[place], asked)]


def test_mixed_batches_equal_the_oracle() -> None:
    rows = [row(position=n, seed=n * 977, **options) for n in range(4) for options in OPTIONS.values()]
    logits = language_like(len(rows), seed=1)
    assert sample(logits, rows) == [oracle.token(logits[place], asked) for place, asked in enumerate(rows)]


@pytest.mark.parametrize("name", OPTIONS)
def test_a_row_never_depends_on_its_place_or_its_neighbours(name: str) -> None:
    logits = language_like(8, seed=2)
    mine, asked = logits[0], row(position=5, seed=41, **OPTIONS[name])
    alone = sample(mine[None], [asked])[0]
    others = [row(position=n, seed=n, **options) for n, options in enumerate(OPTIONS.values())]
    for place in range(8):
        table = logits.roll(place, dims=0)  # `mine` is at `place`
        for turn in range(0, len(others), 4):
            rows = (others[turn:] + others)[:8]
            rows[place] = asked
            assert sample(table, rows)[place] == alone


def test_a_flat_row_draws_from_its_whole_vocabulary() -> None:
    flat = torch.zeros(300, VOCAB)
    rows = [row(position=n, temperature=1.0) for n in range(300)]
    tokens = sample(flat, rows)
    assert tokens[:40] == [oracle.token(flat[0], asked) for asked in rows[:40]]
    assert len(set(tokens)) > 280 and max(tokens) > VOCAB * 0.9


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 1e-12},
        {"temperature": 1e-300, "top_p": 0.5},
        {"temperature": 1.0, "top_k": 1},
        {"temperature": 5.0, "top_p": 1e-9},
        {"temperature": 5.0, "min_p": 1.0},
    ],
)
def test_the_narrowest_options_equal_greedy(options: dict[str, float]) -> None:
    logits = language_like(20, seed=5)
    logits[3] = logits[3].round()
    rows = [row(position=n, seed=n, **options) for n in range(20)]
    greedy = sample(logits, [row(temperature=0.0)] * 20)
    tied = int((logits[3] == logits[3].max()).sum()) > 1 and "min_p" in options  # min_p 1 keeps all the likeliest
    got = sample(logits, rows)
    assert [t for n, t in enumerate(got) if not (tied and n == 3)] == [
        t for n, t in enumerate(greedy) if not (tied and n == 3)
    ]


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
@pytest.mark.parametrize("temperature", [1.1e-5, 1.0, 100.0])
def test_extreme_logits_and_temperatures_do_not_overflow(scale: float, temperature: float) -> None:
    logits = language_like(3, vocab=500) * scale
    rows = [
        row(position=1, seed=8, temperature=temperature, **cut)
        for cut in ({}, {"top_p": 0.9}, {"top_k": 9, "min_p": 0.1})
    ]
    assert sample(logits, rows) == [oracle.token(logits[n], asked) for n, asked in enumerate(rows)]


@pytest.mark.parametrize(("options", "kept"), [({"top_k": 100}, 100), ({"top_p": 0.25}, 150), ({"top_k": 1}, 1)])
def test_ties_at_the_edge_of_a_cut_keep_the_lowest_ids(options: dict[str, float], kept: int) -> None:
    tied = torch.zeros(2000, 600)
    tokens = sample(tied, [row(position=n, temperature=1.0, **options) for n in range(2000)])
    assert set(tokens) == set(range(kept)) if kept < 150 else max(tokens) < kept


def test_greedy_takes_the_lowest_of_equals() -> None:
    logits = torch.zeros(3, 50_000)
    logits[:, [17, 40_000]] = 1.0
    assert sample(logits, [row(temperature=0.0)] * 3) == [17, 17, 17]
    assert sample(logits[:1], [row(temperature=0.0)]) == [17]


def test_negative_zero_ties_with_zero() -> None:
    logits = torch.full((1, 300), -1.0)
    logits[0, 10:200] = 0.0
    logits[0, 5] = -0.0
    tokens = {sample(logits, [row(position=n, temperature=1.0, top_k=2)])[0] for n in range(60)}
    assert tokens == {5, 10}


def test_stop_ids_wait_for_min_tokens() -> None:
    logits = torch.tensor([[5.0, 4.0, 3.0]])
    options = {"min_tokens": 2, "stop_ids": (0,)}
    assert [sample(logits, [row(position=n, **options)])[0] for n in range(4)] == [1, 1, 0, 0]
    drawn = {sample(logits, [row(position=1, seed=n, temperature=9.0, **options)])[0] for n in range(40)}
    assert drawn == {1, 2}


def test_a_mask_over_everything_is_ignored() -> None:
    logits = torch.tensor([[1.0, 5.0, 3.0]])
    assert sample(logits, [row(min_tokens=2, stop_ids=(0, 1, 2, 7))]) == [1]


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("name", OPTIONS)
def test_a_row_that_is_not_finite_says_so_and_spares_its_neighbours(bad: float, name: str) -> None:
    logits = language_like(3, seed=6)
    rows = [row(position=n, seed=n, **OPTIONS[name]) for n in range(3)]
    expected = sample(logits, rows)
    spoiled = logits.clone()
    spoiled[1, VOCAB // 2] = bad
    assert sample(spoiled, rows) == [expected[0], NOT_FINITE, expected[2]]


def test_the_same_seed_gives_the_same_tokens_and_another_seed_others() -> None:
    logits = language_like(64, seed=7)

    def run(seed: int) -> list[int]:
        return sample(logits, [row(position=n, seed=seed, temperature=1.0) for n in range(64)])

    assert run(2**63 + 5) == run(2**63 + 5)
    assert len({tuple(run(seed)) for seed in (0, 5, 2**63 + 5, 2**64 - 1)}) == 4


def test_the_position_changes_the_draw() -> None:
    flat = torch.zeros(50, 1000)
    assert len(set(sample(flat, [row(position=n, seed=1, temperature=1.0) for n in range(50)]))) > 40


def test_minus_infinity_is_a_token_that_cannot_come() -> None:
    padded = torch.full((60, 300), -math.inf)
    padded[:, :3] = torch.tensor([1.0, 0.5, 0.0])
    for options in OPTIONS.values():
        rows = [row(position=n, **options) for n in range(60)]
        tokens = sample(padded, rows)
        assert tokens == [oracle.token(padded[0], asked) for asked in rows]
        assert max(tokens) < 3


def test_a_row_of_nothing_but_minus_infinity_is_not_finite() -> None:
    nothing = torch.full((2, 300), -math.inf)
    nothing[1, 7] = 0.0
    assert sample(nothing, [row(), row()]) == [NOT_FINITE, 7]
    assert sample(nothing, [row(allowed=(2, 3)), row(temperature=1.0, top_p=0.5)]) == [NOT_FINITE, 7]


def test_rows_that_need_no_change_are_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampler, "shape", None)  # never called
    logits = language_like(3, seed=8)
    rows = [row(temperature=t, min_tokens=0, stop_ids=(1,)) for t in (0.0, 1.0, 0.5)]
    assert sample(logits, rows) == [oracle.token(logits[n], asked) for n, asked in enumerate(rows)]


def test_no_rows_give_no_tokens() -> None:
    assert sample(torch.empty(0, 10), []) == []
