"""Draws tokens on the device, without waiting for it: what sampler.py draws, by the kernels of kernels/triton.

How each seat draws is kept on the device. A step sends which seats draw and at which positions, and what is new of
them. Knows no model and no KV memory.
"""

import math
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..door import Sampling, TokenLogprobs
from ..kernels import noise
from ..kernels.triton.sampling import BLOCK, Needs, Tables, sample
from ..kernels.triton.sampling_logprobs import Logprobs, token_logprobs
from ..kernels.triton.sampling_records import Record
from ..stepping.plan import NOT_FINITE, Slice
from .draws import TOP_P_ROUNDING
from .row import GREEDY_TEMPERATURE
from .seat_marks import SeatMarks
from .upload import upload


@dataclass(frozen=True, slots=True)
class StepDraws:
    """What a step draws: R rows of logits in the order of its slices that sample, filled up with rows of nobody.

    seats, positions: [R] int32 on the device, views of memory that the next step's use too. asked: the rows whose log
    probabilities are asked for, [L] int64 on the device, None where nobody asks; counts: for each of them how many of
    the likeliest to add. places: seat and position of each row that is real.
    """

    seats: Tensor
    positions: Tensor
    needs: Needs
    tables: Tables
    places: tuple[tuple[int, int], ...]
    asked: Tensor | None
    asked_rows: tuple[int, ...]
    counts: tuple[int, ...]

    @property
    def key(self) -> Hashable:
        """A graph captured of sample() is good for steps of an equal key: the same kernels over the same memory."""
        return len(self.seats), self.needs, tuple((table.data_ptr(), table.shape) for table in self.tables)

    def told(self, tokens: Sequence[int], found: Logprobs) -> tuple[TokenLogprobs | None, ...]:
        """What to report beside each of the step's tokens; `found`, as logprobs() made it, has come to the host."""
        told: list[TokenLogprobs | None] = [None] * len(tokens)
        each = zip(self.asked_rows, self.counts, *(part.tolist() for part in found), strict=True)
        for row, count, ids, values, rank in each:
            if tokens[row] != NOT_FINITE:
                told[row] = told_of(ids, values, rank, count)
        return tuple(told)


def told_of(ids: Sequence[int], values: Sequence[float], rank: int, count: int) -> TokenLogprobs:
    """A row of Logprobs, with `count` of the likeliest, as logprobs.py tells it: a row that is not finite alone."""
    some = 1 if rank < 0 else 1 + count
    return TokenLogprobs(tuple(ids[:some]), tuple(values[:some]), abs(rank))


@dataclass(slots=True)
class _Holder:
    """Whose a seat is, the position it draws next, and what the device has of it."""

    seq: int
    attempt: int
    position: int
    record: Record
    needs: Needs


class DeviceSampler:
    """Owner of what the device keeps of how seats draw. Steps are prepared in the order they run in, on one stream."""

    def __init__(self, *, seats: int, vocab: int, device: torch.device, block: int = BLOCK) -> None:
        """seats: also most rows of a step. block: how many logits a program takes, a power of 2."""
        self._block = block
        self._vocab = vocab
        self._device = device
        self._nobody = seats  # the seat of slices that have none: greedy, and never changed
        self._holders: dict[int, _Holder] = {}
        blank = np.array([Record().packed()] * (seats + 1), np.int64)
        self._records = upload(blank, device)
        self._places = torch.zeros(2, seats, dtype=torch.int32, device=device)
        self._marks = SeatMarks(vocab, device)

    def prepare(self, slices: Sequence[Slice], rows: int = 0) -> StepDraws:
        """Of the slices that sample, in their order, and filled up to `rows`. What is new of their seats is sent;
        nothing is waited for. From now on their draws are known as made: see take_back()."""
        self._take_in([piece for piece in slices if self._is_new(piece)])
        places = tuple([(self._nobody if s.seat < 0 else s.seat, s.position) for s in slices])
        for seat, position in places:
            if seat != self._nobody:
                self._holders[seat].position = position + 1
        seats, positions = self._send(places, rows)
        asked = tuple([row for row, piece in enumerate(slices) if piece.sampling.logprobs >= 0])
        marks = self._marks
        return StepDraws(
            seats=seats,
            positions=positions,
            needs=_joined({self._holders[s.seat].needs for s in slices if s.seat >= 0}),
            tables=Tables(self._records, marks.marks, marks.bias, marks.words, marks.tails),
            places=places,
            asked=upload(np.array(asked, np.int64), self._device) if asked else None,
            asked_rows=asked,
            counts=tuple([min(slices[row].sampling.logprobs, self._vocab) for row in asked]),
        )

    def sample(self, logits: Tensor, step: StepDraws, newest: Tensor | None = None) -> Tensor:
        """Tokens [R] int64 on the device, for `logits` [R, V], float32 or a narrower float, of any row stride.

        newest [seats + 1] int64: each row's token is put there as well, at its seat. Changes nothing on the host.
        """
        return sample(logits, step.seats, step.positions, step.tables, step.needs, newest, self._block)

    def take_back(self, step: StepDraws) -> None:
        """The step prepared last was not run: its positions are drawn by another."""
        for seat, position in step.places:
            if seat != self._nobody:
                self._holders[seat].position = position

    def logprobs(self, logits: Tensor, tokens: Tensor, step: StepDraws) -> Logprobs | None:
        """On the device, of the rows that ask: see StepDraws.told. logits and tokens: as sample() had and gave them."""
        if step.asked is None:
            return None
        return token_logprobs(logits.index_select(0, step.asked), tokens.index_select(0, step.asked), max(step.counts))

    def check(self) -> None:
        """Assert that the device has what this side remembers; waits for the device."""
        kept = self._records.tolist()
        for seat, holder in self._holders.items():
            assert kept[seat] == holder.record.packed(), f"seat {seat} draws by another record"
        assert kept[self._nobody] == Record().packed(), "the seat of nobody was changed"
        self._marks.check({seat: (h.record.marks, h.record.bias) for seat, h in self._holders.items()})

    def _send(self, places: Sequence[tuple[int, int]], rows: int) -> tuple[Tensor, Tensor]:
        """Seats and positions on the device, filled up with rows of nobody."""
        size = max(rows, len(places))
        assert size <= self._places.shape[1], f"{size} rows, there is memory for {self._places.shape[1]}"
        filled = [*places, *[(self._nobody, 0)] * (size - len(places))]
        kept = self._places[:, :size]
        kept.copy_(upload(np.array(filled, np.int32).reshape(-1, 2).T, self._device))
        return kept[0], kept[1]

    def _is_new(self, piece: Slice) -> bool:
        """Whether the device lacks something of the slice's sequence."""
        if piece.seat < 0:
            return False
        holder = self._holders.get(piece.seat)
        if holder and (holder.seq, holder.attempt, holder.position) == (piece.seq, piece.attempt, piece.position):
            return False
        assert not (piece.awaits and piece.sampling.needs_history), f"sequence {piece.seq}: a token is not known here"
        return True

    def _take_in(self, pieces: Sequence[Slice]) -> None:
        """Seats of new sequences, or of such that the device has lost count of."""
        if not pieces:
            return
        for piece in pieces:
            if holder := self._holders.pop(piece.seat, None):
                self._marks.give_back(holder.record.marks, holder.record.bias)
        rows = self._marks.take([(piece.sampling, piece.known, piece.prompt_len) for piece in pieces])
        for piece, (marks, bias, words) in zip(pieces, rows, strict=True):
            record = _record(piece, self._vocab, marks, bias, words)
            self._holders[piece.seat] = _Holder(piece.seq, piece.attempt, piece.position, record, _needs(record))
        seats = np.array([piece.seat for piece in pieces], np.int64)
        packed = np.array([self._holders[piece.seat].record.packed() for piece in pieces], np.int64)
        self._records.index_copy_(0, upload(seats, self._device), upload(packed, self._device))


def _record(piece: Slice, vocab: int, marks: int, bias: int, words: int) -> Record:
    sampling = piece.sampling
    drawn = _drawn(sampling, vocab) if sampling.temperature > GREEDY_TEMPERATURE else Record()
    return drawn._replace(
        seed=noise.as_int64(sampling.seed),
        repetition=sampling.repetition,
        frequency=sampling.frequency,
        presence=sampling.presence,
        min_tokens=sampling.min_tokens,
        marks=marks,
        bias=bias,
        words=words,
        prompt_len=len(piece.known) - piece.position,
    )


def _drawn(sampling: Sampling, vocab: int) -> Record:
    """The temperature and the cuts."""
    return Record(
        temperature=sampling.temperature,
        top_k=sampling.top_k if 0 < sampling.top_k < vocab else 0,
        top_p=sampling.top_p * (1.0 - TOP_P_ROUNDING) if sampling.top_p < 1.0 else math.inf,
        min_p=math.log(sampling.min_p) if sampling.min_p > 0.0 else -math.inf,
    )


def _needs(record: Record) -> Needs:
    by_mass = math.isfinite(record.top_p)
    return Needs(
        draws=record.temperature > 0.0,
        cuts=record.top_k > 0 or by_mass or math.isfinite(record.min_p),
        cuts_twice=record.top_k > 0 and by_mass,
        shapes=record.marks >= 0 or record.bias >= 0,
        words=record.words > 0,
    )


def _joined(kinds: Collection[Needs]) -> Needs:
    """What any of them needs."""
    return Needs(*(any(each) for each in zip(*kinds, strict=True))) if kinds else Needs(*[False] * len(Needs._fields))
