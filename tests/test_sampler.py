"""The sampler: every option against a plain NumPy oracle, the laws it draws from, and rows that know no neighbours."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fairstep.door import Sampling
from fairstep.model import sampler
from fairstep.model.sampler import Row, sample
from fairstep.stepping.plan import NOT_FINITE

VOCAB = 6000  # above the second candidate size, so that wide cuts need the third and the whole row
FIRST, SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
GAMMA = np.uint64(0x9E3779B97F4A7C15)

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


def mixed(state: np.ndarray) -> np.ndarray:
    state = (state ^ (state >> np.uint64(30))) * FIRST
    state = (state ^ (state >> np.uint64(27))) * SECOND
    return state ^ (state >> np.uint64(31))


def oracle_noise(seed: int, position: int, vocab: int) -> np.ndarray:
    key = mixed(mixed(np.array([seed], np.uint64) + GAMMA) + np.array([position + 1], np.uint64) * GAMMA)
    raw = mixed(key + (np.arange(vocab, dtype=np.uint64) + np.uint64(1)) * GAMMA) >> np.uint64(12)
    return -np.log(-np.log((raw.astype(np.float64) + 0.5) * 2.0**-52))


def oracle_kept(scaled: np.ndarray, s: Sampling) -> np.ndarray:
    """The ids that pass the cuts: sorts everything, one row, as the options are described."""
    order = np.lexsort((np.arange(len(scaled)), -scaled))
    if s.top_k > 0:
        order = order[: s.top_k]
    weights = np.exp(scaled[order] - scaled[order[0]])
    before = np.concatenate(([0.0], np.cumsum(weights)[:-1]))
    if s.top_p < 1.0:
        inside = before < s.top_p * (1 - 1e-6) * weights.sum()
        order, weights = order[inside], weights[inside]
    if s.min_p > 0.0:
        order = order[scaled[order] - scaled[order[0]] >= math.log(s.min_p)]
    return order


def oracle(logits: torch.Tensor, row: Row) -> int:
    s = row.sampling
    values = logits.double().numpy().copy()
    stops = [stop for stop in s.stop_ids if stop < len(values)]
    if row.position < s.min_tokens and len(set(stops)) < len(values):
        values[stops] = -np.inf
    if s.temperature <= 1e-5:
        return int(values.argmax())
    scaled = values / s.temperature
    kept = np.sort(oracle_kept(scaled, s))
    scores = scaled + oracle_noise(s.seed, row.position, len(values))
    return int(kept[scores[kept].argmax()])


def row(position: int = 0, seed: int = 0, **options: object) -> Row:
    return Row(Sampling(seed=seed, **options), position)


def language_like(rows: int, vocab: int = VOCAB, seed: int = 0) -> torch.Tensor:
    """A few likely tokens above a long tail, likeliest first in id order but for noise."""
    made = torch.Generator().manual_seed(seed)
    tail = -1.6 * torch.log(torch.arange(1, vocab + 1, dtype=torch.float32))
    return tail + torch.randn(rows, vocab, generator=made)


def frequencies(logits: Sequence[float], draws: int, **options: object) -> Counter[int]:
    table = torch.tensor([list(logits)], dtype=torch.float32).expand(draws, -1)
    return Counter(sample(table, [row(position=n % 50, seed=n // 50, **options) for n in range(draws)]))


def chi_square(seen: Counter[int], law: Sequence[float]) -> float:
    draws = sum(seen.values())
    assert all(seen[token] == 0 for token, p in enumerate(law) if p == 0.0)
    return sum((seen[token] - draws * p) ** 2 / (draws * p) for token, p in enumerate(law) if p > 0.0)


LAW = [0.4, 0.25, 0.15, 0.1, 0.06, 0.04]


@pytest.mark.parametrize(
    ("options", "law"),
    [
        ({"temperature": 1.0}, LAW),
        ({"temperature": 2.0}, [math.sqrt(p) / sum(map(math.sqrt, LAW)) for p in LAW]),
        ({"temperature": 0.5}, [p**2 / sum(q**2 for q in LAW) for p in LAW]),
        ({"temperature": 1.0, "top_k": 3}, [0.5, 0.3125, 0.1875, 0, 0, 0]),
        ({"temperature": 1.0, "top_p": 0.7}, [0.5, 0.3125, 0.1875, 0, 0, 0]),
        ({"temperature": 1.0, "min_p": 0.3}, [0.5, 0.3125, 0.1875, 0, 0, 0]),
        # top_p works on what top_k left: 0.4 of 0.65 is more than 0.6
        ({"temperature": 1.0, "top_k": 2, "top_p": 0.6}, [1, 0, 0, 0, 0, 0]),
    ],
)
def test_draws_follow_the_law(options: dict[str, float], law: list[float]) -> None:
    seen = frequencies([math.log(p) for p in LAW], 20_000, **options)
    assert chi_square(seen, law) < 25.7  # 5 degrees of freedom, 1 in 10,000


@pytest.mark.parametrize("name", OPTIONS)
def test_each_option_equals_the_oracle_alone(name: str) -> None:
    logits = language_like(12)
    for place in range(12):
        asked = row(position=place, seed=2**64 - 1 - place, **OPTIONS[name])
        assert sample(logits[place : place + 1], [asked]) == [oracle(logits[place], asked)]


def test_mixed_batches_equal_the_oracle() -> None:
    rows = [row(position=n, seed=n * 977, **options) for n in range(4) for options in OPTIONS.values()]
    logits = language_like(len(rows), seed=1)
    assert sample(logits, rows) == [oracle(logits[place], asked) for place, asked in enumerate(rows)]


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


def test_what_a_cut_decides_on_is_bitwise_the_same_alone_and_in_a_batch() -> None:
    logits = language_like(8, vocab=49_153, seed=3)
    rows = [row(temperature=0.9, top_p=0.9)] * 8
    together = sampler._draws(logits, rows, list(range(8))).mass
    for place in range(8):
        alone = sampler._draws(logits[place : place + 1], rows[:1], [0]).mass
        assert torch.equal(alone, together[place : place + 1])


def test_whole_rows_in_several_blocks_equal_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    logits = language_like(7, seed=4)
    rows = [row(position=n, seed=3, temperature=1.0) for n in range(7)]
    together = sample(logits, rows)
    monkeypatch.setattr(sampler, "NOISE_BLOCK", 2 * VOCAB)
    assert sample(logits, rows) == together == [oracle(logits[n], asked) for n, asked in enumerate(rows)]


def test_a_flat_row_draws_from_its_whole_vocabulary() -> None:
    flat = torch.zeros(300, VOCAB)
    rows = [row(position=n, temperature=1.0) for n in range(300)]
    tokens = sample(flat, rows)
    assert tokens == [oracle(flat[0], asked) for asked in rows]
    assert len(set(tokens)) > 280 and max(tokens) > VOCAB * 0.9


@dataclass
class Case:
    """Logits with ties and one batch of options, for hypothesis."""

    logits: torch.Tensor
    rows: list[Row] = field(default_factory=list)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    vocab = draw(st.sampled_from([1, 2, 7, 64, 65, 300, 600]))
    count = draw(st.integers(1, 6))
    made = torch.Generator().manual_seed(draw(st.integers(0, 10**6)))
    spread = draw(st.sampled_from([0.0, 0.5, 2.0, 8.0]))
    logits = torch.randn(count, vocab, generator=made) * spread
    if draw(st.booleans()):
        logits = logits.round()  # many ties
    options = st.builds(
        Sampling,
        temperature=st.sampled_from([0.0, 1e-12, 0.1, 0.7, 1.0, 2.5, 100.0]),
        top_k=st.sampled_from([0, 1, 2, 5, 63, 64, 65, 299, 1000]),
        top_p=st.one_of(st.just(1.0), st.floats(1e-9, 0.9999)),
        min_p=st.one_of(st.just(0.0), st.floats(1e-9, 1.0)),
        seed=st.integers(0, 2**64 - 1),
        min_tokens=st.integers(0, 3),
        stop_ids=st.lists(st.integers(0, vocab + 2), max_size=4).map(tuple),
    )
    return Case(logits, [Row(draw(options), draw(st.integers(0, 5))) for _ in range(count)])


@settings(deadline=None, max_examples=300)
@given(cases())
def test_any_batch_equals_the_oracle(case: Case) -> None:
    before = case.logits.clone()
    expected = [oracle(case.logits[place], asked) for place, asked in enumerate(case.rows)]
    assert sample(case.logits, case.rows) == expected
    assert torch.equal(case.logits, before)


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
    assert sample(logits, rows) == [oracle(logits[n], asked) for n, asked in enumerate(rows)]


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


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
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


def test_no_rows_give_no_tokens() -> None:
    assert sample(torch.empty(0, 10), []) == []
