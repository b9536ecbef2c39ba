"""What the device keeps of seats that shape their logits: marked ids, bias, bad words, newest tokens.

Rows of these tables are lent to sequences that need them; the tables grow, and are never made smaller.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from ..door import Sampling
from ..kernels.triton.penalties import ALLOWED, BANNED, IN_PROMPT, ONCE, STOP
from .upload import upload

NONE = -1
SMALLEST_TAIL = 8

History = tuple[Sampling, tuple[int, ...], int]  # how it draws, all tokens known, and how many are the prompt
Worded = tuple[int, list[tuple[int, ...]], tuple[int, ...]]  # a row of marks, its words of several ids, tokens known
Lent = tuple[int, int, int]  # a row of marks and one of bias, NONE where none, and how many words of several ids


class SeatMarks:
    """Owner of the tables and of who has which row.

    marks [P, V] int32, bias [B, V] float32, words [P, W, L] int32 and tails [P, N] int32, as penalties.py has them.
    """

    def __init__(self, vocab: int, device: torch.device) -> None:
        self._vocab = vocab
        self._device = device
        self.marks = torch.zeros(1, vocab, dtype=torch.int32, device=device)
        self.bias = torch.zeros(1, vocab, dtype=torch.float32, device=device)
        self.words = torch.full((1, 1, 2), NONE, dtype=torch.int32, device=device)
        self.tails = torch.zeros(1, SMALLEST_TAIL, dtype=torch.int32, device=device)
        self._free_marks = [0]
        self._free_bias = [0]

    def take(self, histories: Sequence[History]) -> list[Lent]:
        """Rows for each, filled; NONE for those that need none."""
        lent: list[Lent] = []
        marked: list[tuple[int, np.ndarray]] = []
        biased: list[tuple[int, np.ndarray]] = []
        worded: list[Worded] = []
        for sampling, known, prompt_len in histories:
            marks = bias = NONE
            words = [word for word in sampling.bad_words if len(word) > 1]
            if needs_marks(sampling):
                marks = self._row_of_marks()
                marked.append((marks, self._marks_of(sampling, known, prompt_len)))
            if sampling.bias:
                bias = self._row_of_bias()
                biased.append((bias, self._bias_of(sampling)))
            if words:
                worded.append((marks, words, known))
            lent.append((marks, bias, len(words)))
        _fill(self.marks, marked)
        _fill(self.bias, biased)
        if worded:
            self._fill_words(worded)
        return lent

    def give_back(self, marks: int, bias: int) -> None:
        """Rows as take() lent them."""
        if marks != NONE:
            self._free_marks.append(marks)
        if bias != NONE:
            self._free_bias.append(bias)

    def check(self, lent: Mapping[int, tuple[int, int]]) -> None:
        """Assert that each row is lent to one seat at most, and that no row was lost. lent: by seat."""
        for table, free, kind in ((self.marks, self._free_marks, 0), (self.bias, self._free_bias, 1)):
            rows = [*free, *(rows[kind] for rows in lent.values() if rows[kind] != NONE)]
            assert sorted(rows) == list(range(len(table))), "a row is lent twice, or was lost"

    def _row_of_marks(self) -> int:
        if not self._free_marks:
            self._free_marks = list(range(len(self.marks), 2 * len(self.marks)))
            self.marks = _grown(self.marks, 2 * len(self.marks))
        return self._free_marks.pop()

    def _row_of_bias(self) -> int:
        if not self._free_bias:
            self._free_bias = list(range(len(self.bias), 2 * len(self.bias)))
            self.bias = _grown(self.bias, 2 * len(self.bias))
        return self._free_bias.pop()

    def _marks_of(self, sampling: Sampling, known: tuple[int, ...], prompt_len: int) -> np.ndarray:
        """What is marked of each id, [V] int32."""
        marks = np.zeros(self._vocab, np.int32)
        single = [word[0] for word in sampling.bad_words if len(word) == 1]
        prompt = known[:prompt_len]
        kinds = (prompt, IN_PROMPT), (sampling.allowed, ALLOWED), (single, BANNED), (sampling.stop_ids, STOP)
        for ids, mark in kinds:
            marks[self._inside(ids)] |= mark.value
        np.add.at(marks, self._inside(known[prompt_len:]), ONCE.value)
        return marks

    def _bias_of(self, sampling: Sampling) -> np.ndarray:
        """What is added to each id's logit, [V] float32."""
        bias = np.zeros(self._vocab, np.float32)
        for token, added in sampling.bias:
            if 0 <= token < self._vocab:
                bias[token] = added
        return bias

    def _inside(self, ids: Sequence[int]) -> np.ndarray:
        """Those of the vocabulary, int64."""
        flat = np.array(ids, np.int64)
        return flat[(flat >= 0) & (flat < self._vocab)]

    def _fill_words(self, worded: Sequence[Worded]) -> None:
        self._make_room(max(len(words) for _, words, _ in worded), max(len(w) for _, words, _ in worded for w in words))
        _, most, length = self.words.shape
        size = self.tails.shape[1]
        words = np.full((len(worded), most, length), NONE, np.int32)
        tails = np.full((len(worded), size), NONE, np.int32)
        for place, (_, mine, known) in enumerate(worded):
            for number, word in enumerate(mine):
                words[place, number, length - len(word) :] = word
            newest = np.arange(max(0, len(known) - size), len(known))
            tails[place, newest % size] = known[len(known) - len(newest) :]
        rows = upload(np.array([row for row, _, _ in worded], np.int64), self._device)
        self.words.index_copy_(0, rows, upload(words, self._device))
        self.tails.index_copy_(0, rows, upload(tails, self._device))

    def _make_room(self, words: int, length: int) -> None:
        """For so many words of so many ids in every row of marks."""
        count, (rows, most, longest) = len(self.marks), self.words.shape
        if count > rows or words > most or length > longest:
            grown = self.words.new_full((count, _power_of_2(max(words, most)), _power_of_2(max(length, longest))), NONE)
            grown[:rows, :most, -longest:] = self.words
            self.words = grown
        size = max(self.tails.shape[1], self.words.shape[2])
        tails = self.tails.repeat(1, size // self.tails.shape[1])  # the token at p stays at p % size
        self.tails = _grown(tails, count)


def needs_marks(sampling: Sampling) -> bool:
    stops = sampling.min_tokens > 0 and bool(sampling.stop_ids)
    return sampling.needs_history or bool(sampling.allowed) or stops


def _grown(table: Tensor, rows: int) -> Tensor:
    """With so many rows, the new ones zero."""
    if rows == len(table):
        return table
    grown = table.new_zeros(rows, *table.shape[1:])
    grown[: len(table)] = table
    return grown


def _fill(table: Tensor, filled: Sequence[tuple[int, np.ndarray]]) -> None:
    """Put rows into a table. Only what is not zero is sent."""
    if not filled:
        return
    rows = np.array([row for row, _ in filled], np.int64)
    values = np.concatenate([values[values != 0] for _, values in filled])
    places = np.concatenate([row * table.shape[1] + np.flatnonzero(values) for row, values in filled])
    table.index_fill_(0, upload(rows, table.device), 0)
    table.view(-1).index_copy_(0, upload(places, table.device), upload(values, table.device))


def _power_of_2(least: int) -> int:
    return 1 << (least - 1).bit_length()
