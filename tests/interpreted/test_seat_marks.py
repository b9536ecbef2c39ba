"""Rows of marks, bias and words: lent, filled, given back, and more of them when all are out."""

import pytest
import torch

from fairstep.door import Sampling
from fairstep.kernels.triton.penalties import ALLOWED, BANNED, IN_PROMPT, ONCE, STOP
from fairstep.model.seat_marks import NONE, SeatMarks, needs_marks

VOCAB = 40
CPU = torch.device("cpu")


def test_plain_sampling_borrows_nothing() -> None:
    marks = SeatMarks(VOCAB, CPU)
    plain = [Sampling(), Sampling(temperature=1.0, top_p=0.5, stop_ids=(3,)), Sampling(min_tokens=9)]
    assert marks.take([(sampling, (), 0) for sampling in plain]) == [(NONE, NONE, 0)] * 3
    assert not any(map(needs_marks, plain))
    marks.check({})


def test_a_row_says_all_of_its_ids() -> None:
    marks = SeatMarks(VOCAB, CPU)
    sampling = Sampling(
        repetition=2.0, allowed=(5, 6, 99), bad_words=((7,), (6,), (1, 2)), stop_ids=(8, -1), min_tokens=1
    )
    ((row, bias, words),) = marks.take([(sampling, (5, 5, 6, 9, 9, 9), 3)])
    wanted = torch.zeros(VOCAB, dtype=torch.int32)
    wanted[5] = IN_PROMPT.value | ALLOWED.value
    wanted[6] = IN_PROMPT.value | ALLOWED.value | BANNED.value
    wanted[7], wanted[8], wanted[9] = BANNED.value, STOP.value, 3 * ONCE.value
    assert torch.equal(marks.marks[row], wanted)
    assert (bias, words) == (NONE, 1)
    assert marks.words[row].tolist() == [[1, 2]]
    assert marks.tails[row].tolist() == [5, 5, 6, 9, 9, 9, NONE, NONE]


def test_a_row_given_back_is_lent_clean() -> None:
    marks = SeatMarks(VOCAB, CPU)
    first = marks.take([(Sampling(repetition=2.0, bias=((3, 1.5),)), (1, 2), 1)])[0]
    marks.give_back(*first[:2])
    second = marks.take([(Sampling(presence=2.0, bias=((4, 2.5),)), (7,), 1)])[0]
    assert first == second
    assert marks.marks[second[0]].nonzero().flatten().tolist() == [7]
    assert marks.bias[second[1]].nonzero().flatten().tolist() == [4]
    marks.check({0: second[:2]})


def test_tables_grow_and_keep_what_is_in_them() -> None:
    marks = SeatMarks(VOCAB, CPU)
    lent = {}
    for seat in range(5):
        words = (tuple(range(seat, seat + 2 + 4 * seat)),) * (seat + 1)
        sampling = Sampling(bad_words=words, bias=((seat, 1.0),))
        known = tuple(range(10 * seat, 10 * seat + 20))
        (row, bias, count) = marks.take([(sampling, known, 20)])[0]
        lent[seat] = row, bias
        assert count == seat + 1
    for seat, (row, bias) in lent.items():
        length = 2 + 4 * seat
        assert marks.words[row, seat].tolist()[-length:] == list(range(seat, seat + length))
        assert marks.bias[bias].nonzero().flatten().tolist() == [seat]
        tail = [marks.tails[row, place % marks.tails.shape[1]].item() for place in range(20 - min(length, 8), 20)]
        assert tail == list(range(10 * seat + 20 - min(length, 8), 10 * seat + 20))
    marks.check(lent)


def test_check_finds_a_row_that_is_lent_twice() -> None:
    marks = SeatMarks(VOCAB, CPU)
    row = marks.take([(Sampling(repetition=2.0), (1,), 1)])[0][:2]
    with pytest.raises(AssertionError, match="lent twice"):
        marks.check({0: row, 1: row})
