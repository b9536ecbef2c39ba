"""sequence.py: one arithmetic for prompts, decodes and resumed sequences, and how a drawn token ends one."""

import pytest

from fairstep.stepping.sequence import Sequence
from fakes_stepping import admit


def test_pending_is_what_is_known_and_not_computed() -> None:
    sequence = Sequence(admit(1, range(10)))
    assert (sequence.pending, sequence.outputs) == (10, 0)
    sequence.computed = 7
    assert sequence.pending == 3


def test_the_last_prompt_token_is_prompt_work_and_a_drawn_token_is_a_decode() -> None:
    sequence = Sequence(admit(1, range(4)))
    sequence.computed = 3
    assert sequence.pending == 1 and not sequence.decodes
    sequence.computed = 4
    sequence.take(9, context=100)
    assert sequence.pending == 1 and sequence.decodes and sequence.outputs == 1


def test_outputs_of_an_earlier_attempt_are_prompt_work_in_the_next() -> None:
    sequence = Sequence(admit(1, range(6), attempt=2, prompt_len=4))
    sequence.computed = 5
    assert sequence.outputs == 2 and sequence.pending == 1 and not sequence.decodes


def test_a_stop_id_ends_it_and_wins_over_length() -> None:
    sequence = Sequence(admit(1, [1], max_tokens=1, stop_ids=(5,)))
    assert sequence.take(5, context=2) == "stop"
    assert sequence.tokens == [1, 5]


def test_a_stop_id_among_the_first_min_tokens_is_a_token_like_others() -> None:
    sequence = Sequence(admit(1, [1], max_tokens=9, min_tokens=2, stop_ids=(5,)))
    assert [sequence.take(5, context=100) for _ in range(3)] == [None, None, "stop"]


def test_max_tokens_counts_the_outputs_of_all_attempts() -> None:
    sequence = Sequence(admit(1, range(6), attempt=2, prompt_len=4, max_tokens=4))
    assert [sequence.take(7, context=100) for _ in range(2)] == [None, "length"]


def test_a_sequence_as_long_as_the_context_ends_and_one_token_less_does_not() -> None:
    sequence = Sequence(admit(1, range(6), max_tokens=99))
    assert [sequence.take(7, context=8) for _ in range(2)] == [None, "length"]
    assert len(sequence.tokens) == 8


def test_age_orders_by_arrival_and_rank_by_tier_then_priority_then_arrival() -> None:
    urgent = Sequence(admit(1, [1], order=9, tier=0, priority=-1))
    old = Sequence(admit(2, [1], order=1, tier=0, priority=0))
    batch = Sequence(admit(3, [1], order=0, tier=1, priority=-9))
    assert sorted((urgent, old, batch), key=lambda s: s.rank) == [urgent, old, batch]
    assert min((urgent, old, batch), key=lambda s: s.age) is batch


def test_check_finds_pages_held_without_a_seat() -> None:
    sequence = Sequence(admit(1, [1, 2]))
    sequence.check()
    sequence.pages.append(3)
    with pytest.raises(AssertionError, match="holds pages"):
        sequence.check()


def test_a_sequence_of_no_tokens_draws_none_and_one_that_tells_its_prompt_says_so() -> None:
    assert not Sequence(admit(1, [1], max_tokens=0)).draws and Sequence(admit(1, [1], max_tokens=1)).draws
    assert Sequence(admit(1, [1], prompt_logprobs=0)).tells_prompt and not Sequence(admit(1, [1])).tells_prompt
