"""The device's sampler draws the CPU's tokens: options, mixtures, ties, poisoned rows, strides, seats over steps."""

import math
from random import Random
from typing import Any

import pytest
import torch
from msgspec.structs import replace

from fairstep.door import Sampling
from fairstep.model.device_sampler import DeviceSampler
from fairstep.model.logprobs import token_logprobs
from fairstep.model.row import Row
from fairstep.model.sampler import sample
from fairstep.stepping.plan import NOT_FINITE, Slice
from seated_rows import CPU, KNOWN, drawn, language_like, row, seated

VOCAB = 300
WARM = {"temperature": 1.2}
OPTIONS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "temperature": WARM,
    "cold": {"temperature": 1.1e-5},
    "top_k": {**WARM, "top_k": 7},
    "top_k of all": {**WARM, "top_k": VOCAB},
    "top_p": {**WARM, "top_p": 0.8},
    "min_p": {**WARM, "min_p": 0.05},
    "top_k and top_p": {"temperature": 1.8, "top_k": 40, "top_p": 0.7},
    "all cuts": {**WARM, "top_k": 50, "top_p": 0.9, "min_p": 0.01},
    "min_tokens": {**WARM, "min_tokens": 100, "stop_ids": (0, 1, 2, VOCAB + 5)},
    "bias": {**WARM, "bias": ((0, -100.0), (1, -3.5), (270, 6.0), (VOCAB, 100.0), (-1, 100.0))},
    "allowed": {**WARM, "allowed": (4, 90, 299, VOCAB, -4)},
    "bad words": {**WARM, "bad_words": ((1,), (2, 5, 0), (5, 2), (9, 7), (), (2, 5, 3), (-1,), (VOCAB,))},
    "repetition": {**WARM, "repetition": 1.7},
    "frequency": {**WARM, "frequency": 0.7, "presence": -1.0},
    "everything": {
        "temperature": 0.9,
        "top_k": 100,
        "top_p": 0.95,
        "min_p": 0.001,
        "min_tokens": 50,
        "stop_ids": (4, 8),
        "bias": tuple((token, token / 4) for token in range(40)),
        "allowed": tuple(range(200)),
        "bad_words": ((6,), (2, 5, 7)),
        "repetition": 1.2,
        "frequency": 0.3,
        "presence": 0.2,
    },
}


def random_sampling(random: Random) -> Sampling:
    """Each option on or off."""

    def maybe(chance: float, value: Any, off: Any) -> Any:
        return value if random.random() < chance else off

    def ids(count: int) -> tuple[int, ...]:
        return tuple(random.randrange(-2, VOCAB + 3) for _ in range(count))

    return Sampling(
        temperature=maybe(0.8, random.choice([0.01, 0.3, 1.0, 2.0, 20.0]), 0.0),
        top_k=maybe(0.5, random.randrange(1, 400), 0),
        top_p=maybe(0.5, random.choice([1e-9, 0.1, 0.5, 0.9, 0.999]), 1.0),
        min_p=maybe(0.3, random.choice([1e-6, 0.01, 0.3, 1.0]), 0.0),
        seed=random.randrange(2**64),
        min_tokens=maybe(0.2, 10**6, 0),
        stop_ids=ids(3),
        repetition=maybe(0.3, random.choice([0.5, 1.1, 3.0]), 1.0),
        presence=maybe(0.2, random.uniform(-2, 2), 0.0),
        frequency=maybe(0.2, random.uniform(-2, 2), 0.0),
        bias=maybe(0.2, tuple((token, random.choice([-100.0, 0.5, 3.25])) for token in ids(20)), ()),
        allowed=maybe(0.2, ids(150), ()),
        bad_words=maybe(0.3, (ids(1), ids(1), (2, 5, 1), (5, 0)), ()),
    )


def test_each_option_draws_the_cpu_s_tokens() -> None:
    rows = [row(position=n, seed=2**64 - 1 - n, **options) for n, options in enumerate(OPTIONS.values())]
    logits = language_like(len(rows))
    before = logits.clone()
    assert drawn(logits, rows) == sample(logits, rows)
    assert torch.equal(logits, before)


@pytest.mark.parametrize("kind", ["language", "rounded", "flat", "holes"])
def test_many_rows_of_mixed_options_draw_the_cpu_s_tokens(kind: str) -> None:
    random = Random(kind)
    rows = []
    for place in range(20):
        sampling = random_sampling(random)
        rows.append(Row(sampling, place, KNOWN, 4) if sampling.needs_history else Row(sampling, place))
    logits = language_like(len(rows), seed=9)
    if kind == "rounded":  # ties everywhere
        logits = logits.round()
    elif kind == "flat":
        logits = logits.sign()
    elif kind == "holes":
        logits[torch.rand(logits.shape, generator=torch.Generator().manual_seed(1)) < 0.9] = -math.inf
        logits[:, 77] = 1.0
    assert drawn(logits, rows, block=128 if kind == "rounded" else 512) == sample(logits, rows)


def test_a_row_never_depends_on_how_many_stand_beside_it() -> None:
    """Nor on its place: ties at a cut are kept alike in batches of 1 and of 9."""
    logits = language_like(9, seed=2).round()
    rows = [row(position=3, seed=8, **OPTIONS["top_k and top_p"])] * 9
    assert drawn(logits, rows, 512) == [drawn(logits[n : n + 1], rows[:1], 512)[0] for n in range(9)]


@pytest.mark.parametrize(("options", "kept"), [({"top_k": 100}, 100), ({"top_p": 0.25}, 75), ({"top_k": 1}, 1)])
def test_ties_at_a_cut_keep_the_lowest_ids(options: dict[str, float], kept: int) -> None:
    rows = [row(position=n, temperature=1.0, **options) for n in range(12)]
    tokens = drawn(torch.zeros(12, VOCAB), rows)
    assert tokens == sample(torch.zeros(12, VOCAB), rows)
    assert max(tokens) < kept


def test_what_top_k_leaves_out_of_ties_has_no_mass_under_top_p() -> None:
    rows = [row(position=n, temperature=1.0, top_k=40, top_p=0.2) for n in range(16)]
    tokens = drawn(torch.zeros(16, VOCAB), rows, 512)
    assert tokens == sample(torch.zeros(16, VOCAB), rows)
    assert max(tokens) < 8


def test_a_dominant_token_does_not_hide_the_rest() -> None:
    logits = language_like(8, seed=3)
    logits[:, 123] = torch.linspace(6.0, 16.0, 8)  # from two fifths of the mass to nearly all of it
    for options in ({"top_p": 0.95}, {"top_p": 0.999999}, {"top_k": 2}, {"top_k": 20, "top_p": 0.99}):
        rows = [row(position=n, temperature=1.5, **options) for n in range(8)]
        assert drawn(logits, rows, block=512) == sample(logits, rows)


def test_greedy_takes_the_lowest_of_equals_in_any_tile() -> None:
    logits = torch.zeros(3, VOCAB)
    logits[0, [17, 290]] = 1.0
    logits[1, [140, 290]] = 1.0
    logits[2, 5] = -0.0
    assert drawn(logits, [row()] * 3) == [17, 140, 0]


def test_negative_zero_ties_with_zero() -> None:
    logits = torch.full((16, VOCAB), -1.0)
    logits[:, 10:200] = 0.0
    logits[:, 5] = -0.0
    assert set(drawn(logits, [row(position=n, temperature=1.0, top_k=2) for n in range(16)], 512)) == {5, 10}


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_row_that_is_not_finite_says_so_and_spares_its_neighbours(bad: float) -> None:
    options = [OPTIONS[name] for name in ("greedy", "temperature", "all cuts", "everything", "min_tokens")]
    rows = [row(position=n, seed=n, **each) for n, each in enumerate(options * 2)]
    logits = language_like(10, seed=4)
    wanted = sample(logits, rows)
    logits[5:, 7] = bad  # also where the id is masked
    assert drawn(logits, rows) == wanted[:5] + [NOT_FINITE] * 5
    assert drawn(logits[5:6], rows[:1]) == [NOT_FINITE]  # greedy alone


def test_a_row_of_nothing_but_minus_infinity_is_not_finite() -> None:
    logits = torch.full((3, VOCAB), -math.inf)
    logits[1, 7] = 0.0
    for options in ({}, {"allowed": (2, 3)}, {"temperature": 1.0, "top_p": 0.5}, {"min_tokens": 99, "stop_ids": (7,)}):
        assert drawn(logits, [row(**options)] * 3) == [NOT_FINITE, 7, NOT_FINITE]


@pytest.mark.parametrize("last", ["bias", "top_k and top_p"])  # a bias has all rows copied first
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_rows_may_have_any_stride_and_nothing_past_them_is_read(dtype: torch.dtype, last: str) -> None:
    rows = [row(position=n, seed=n, logprobs=3, **OPTIONS[name]) for n, name in enumerate(("greedy", "all cuts", last))]
    padded = torch.full((6, VOCAB + 50), math.nan, dtype=dtype)
    padded[::2, :VOCAB] = language_like(3, seed=5).to(dtype)
    logits = padded[::2, :VOCAB]
    sampler = DeviceSampler(seats=3, vocab=VOCAB, device=CPU, block=128)
    step = sampler.prepare(seated(rows))
    tokens = sampler.sample(logits, step)
    assert tokens.tolist() == sample(logits.float(), rows)
    found = sampler.logprobs(logits, tokens, step)
    assert found is not None and found.values.isfinite().all()


def test_log_probabilities_are_the_cpu_s() -> None:
    counts = [3, -1, 0, VOCAB + 5, 5]
    rows = [row(position=n, seed=n, temperature=1.0, logprobs=count) for n, count in enumerate(counts)]
    logits = language_like(5, seed=6).round()
    logits[4, 3] = math.nan
    sampler = DeviceSampler(seats=5, vocab=VOCAB, device=CPU, block=128)
    step = sampler.prepare(seated(rows))
    tokens = sampler.sample(logits, step)
    found = sampler.logprobs(logits, tokens, step)
    assert found is not None
    told = step.told(tokens.tolist(), found)
    wanted = token_logprobs(logits, tokens.tolist(), counts)
    assert told[1] is told[4] is wanted[4] is None
    for mine, theirs in zip(told, wanted, strict=True):
        if mine and theirs:
            assert (mine.ids, mine.rank) == (theirs.ids, theirs.rank)
            assert mine.values == pytest.approx(theirs.values, abs=1e-6)


def test_no_rows_and_nobody_who_asks() -> None:
    sampler = DeviceSampler(seats=1, vocab=VOCAB, device=CPU)
    step = sampler.prepare([])
    tokens = sampler.sample(torch.empty(0, VOCAB), step)
    assert tokens.tolist() == [] and sampler.logprobs(torch.empty(0, VOCAB), tokens, step) is None


def test_slices_without_a_seat_draw_greedily_and_change_nobody() -> None:
    logits = language_like(3, seed=7)
    pieces = seated([row(temperature=2.0)] * 3)
    pieces[0] = replace(pieces[0], seat=-1)
    pieces[2] = replace(pieces[2], seat=-1)
    sampler = DeviceSampler(seats=3, vocab=VOCAB, device=CPU)
    tokens = sampler.sample(logits, sampler.prepare(pieces)).tolist()
    assert [tokens[0], tokens[2]] == logits.argmax(-1)[[0, 2]].tolist()
    sampler.check()


def test_each_seat_s_token_is_put_where_the_next_step_looks() -> None:
    logits = language_like(3, seed=8)
    logits[1, 0] = math.nan
    sampler = DeviceSampler(seats=5, vocab=VOCAB, device=CPU)
    newest = torch.full((6,), -9)
    pieces = [replace(piece, seat=seat) for piece, seat in zip(seated([row()] * 3), (4, 0, 2), strict=True)]
    tokens = sampler.sample(logits, sampler.prepare(pieces), newest).tolist()
    assert newest.tolist() == [NOT_FINITE, -9, tokens[2], -9, tokens[0], -9]


class Played:
    """A sequence whose tokens the host learns a step late, or at once."""

    def __init__(self, number: int, random: Random) -> None:
        self.number = number
        self.sampling = random_sampling(random)
        self.sampling = replace(self.sampling, bad_words=(*self.sampling.bad_words, *_likely_words(random)))
        self.known = tuple(random.randrange(6) for _ in range(random.randrange(1, 30)))
        self.prompt_len = random.randrange(1, len(self.known) + 1)

    def row(self) -> Row:
        return Row(self.sampling, len(self.known) - self.prompt_len, self.known, self.prompt_len)

    def slice(self, seat: int, *, late: bool) -> Slice:
        known = self.known[:-1] if late else self.known
        position = len(self.known) - self.prompt_len
        here = Slice(
            self.number, 1, 0, (0,), (), True, position, self.sampling, True, known, self.prompt_len, seat=seat
        )
        return replace(here, awaits=late)


def _likely_words(random: Random) -> list[tuple[int, ...]]:
    lengths = [random.choice([1, 2, 2, 3, 9]) for _ in range(random.choice([0, 4]))]
    return [tuple(random.randrange(6) for _ in range(length)) for length in lengths]


@pytest.mark.parametrize("late", [False, True])
def test_seats_remember_what_they_drew(late: bool) -> None:
    """Over steps in which sequences come and go, most tokens being few enough to repeat."""
    random = Random(17)
    sampler = DeviceSampler(seats=4, vocab=VOCAB, device=CPU, block=512)
    seats: dict[int, Played] = {}
    number = 0
    for step in range(9):
        fresh = [seat for seat in range(4) if seat not in seats or random.random() < 0.15]
        for seat in fresh:
            number += 1
            seats[seat] = Played(number, random)
        chosen = [seat for seat in range(4) if seat in fresh or random.random() < 0.8]
        logits = language_like(len(chosen), seed=step)
        logits[:, 6:] -= 6.0
        pieces = [seats[seat].slice(seat, late=late and seat not in fresh) for seat in chosen]
        tokens = sampler.sample(logits, sampler.prepare(pieces)).tolist()
        assert tokens == sample(logits, [seats[seat].row() for seat in chosen])
        sampler.check()
        for seat, token in zip(chosen, tokens, strict=True):
            seats[seat].known += (token,)


@pytest.mark.parametrize("late", [False, True])
def test_bad_words_are_found_in_what_was_drawn(late: bool) -> None:
    """Each token is the likeliest that completes no word, so that one step's mistake shows in the next tokens."""
    words = ((0, 0), (0, 1, 0), (1, 1), (1, 2), (0, 1, 3, 0), (3, 1), *[(9, 9)] * 3, (0, 1, 3, 2, 0, 1))
    logits = torch.full((1, VOCAB), -5.0)
    logits[0, :6] = torch.tensor([9.0, 8.0, 7.0, 6.0, 5.0, 4.0])
    sampling, known = Sampling(bad_words=words), (9,)
    sampler = DeviceSampler(seats=1, vocab=VOCAB, device=CPU, block=512)
    for position in range(24):
        told = known[:-1] if late and position else known
        piece = Slice(1, 1, 0, (0,), (), True, position, sampling, True, told, 1, seat=0, awaits=late and position > 0)
        token = sampler.sample(logits, sampler.prepare([piece])).item()
        assert [token] == sample(logits, [Row(sampling, position, known, 1)])
        known += (token,)
    assert len(set(known[-12:])) > 3


def test_a_seat_that_lost_count_is_told_all_anew() -> None:
    sampler = DeviceSampler(seats=1, vocab=VOCAB, device=CPU)
    logits = language_like(1)
    piece = seated([row(position=6, repetition=2.0)])[0]
    tokens = [sampler.sample(logits, sampler.prepare([piece])).item() for _ in range(3)]
    assert len(set(tokens)) == 1
    assert sampler._marks.marks[0].sum() == sampler._marks.marks[0][list(set(KNOWN) | set(tokens))].sum()
    with pytest.raises(AssertionError, match="not known here"):
        sampler.prepare([replace(piece, position=9, awaits=True)])


def test_a_step_that_was_not_run_is_drawn_by_another() -> None:
    sampler = DeviceSampler(seats=1, vocab=VOCAB, device=CPU)
    logits = language_like(1)
    piece = seated([row(position=6, repetition=2.0)])[0]
    first = sampler.sample(logits, sampler.prepare([piece])).item()
    late = replace(piece, position=7, awaits=True)
    sampler.take_back(sampler.prepare([late]))
    known = (*KNOWN, first)
    sampling = piece.sampling
    assert sampler.sample(logits, sampler.prepare([late])).tolist() == sample(logits, [Row(sampling, 7, known, 4)])


def test_rows_fill_up_and_a_key_says_when_a_graph_holds() -> None:
    sampler = DeviceSampler(seats=4, vocab=VOCAB, device=CPU)
    logits = language_like(4)
    first = sampler.prepare(seated([row(), row()]), rows=4)
    assert sampler.sample(logits, first)[:2].tolist() == sample(logits[:2], [row()] * 2)
    assert sampler.prepare(seated([row(position=7)]), rows=4).key == first.key
    assert sampler.prepare(seated([row(position=8)])).key != first.key
    assert sampler.prepare(seated([row(position=0, temperature=1.0)]), rows=4).key != first.key
    penalized = [sampler.prepare(seated([row(repetition=2.0)] * count), rows=4).key for count in (1, 2)]
    assert penalized[0] != penalized[1]  # the tables grew
    with pytest.raises(AssertionError, match="5 rows"):
        sampler.prepare([], rows=5)


def test_check_finds_a_record_that_differs() -> None:
    sampler = DeviceSampler(seats=2, vocab=VOCAB, device=CPU)
    sampler.prepare(seated([row(temperature=1.0)]))
    sampler.check()
    sampler._records[0, 1] = 5  # top_k
    with pytest.raises(AssertionError, match="seat 0"):
        sampler.check()
