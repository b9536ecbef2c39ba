"""rope_lengths.py: what length an attempt's keys are turned for, whom it shares them with, when it begins anew."""

import pytest

from fairstep.stepping.rope_lengths import RopeLengths
from fairstep.stepping.sequence import Sequence
from fakes_stepping import admit

EDGE = 10
DYNAMIC, LONGROPE = RopeLengths(EDGE), RopeLengths(EDGE, switches=True)


def attempt(known: int, prompt: int) -> Sequence:
    return Sequence(admit(1, range(known), prompt_len=prompt, max_tokens=99))


def test_without_an_edge_no_length_matters() -> None:
    plain, sequence = RopeLengths(), attempt(known=30, prompt=20)
    assert (plain.stretch(sequence), plain.regime(sequence), plain.outgrown(sequence, 30)) == (0, 0, False)


@pytest.mark.parametrize(("prompt", "regime"), [(9, 0), (10, 0), (11, 11), (15, 15)])
def test_dynamic_turns_for_the_prompt_in_every_attempt(prompt: int, regime: int) -> None:
    for known in (prompt, prompt + 8):
        sequence = attempt(known, prompt)
        assert (DYNAMIC.stretch(sequence), DYNAMIC.regime(sequence)) == (prompt, regime)


@pytest.mark.parametrize(("known", "regime"), [(9, 0), (10, 0), (11, 1), (15, 1)])
def test_longrope_turns_for_all_that_an_attempt_knew(known: int, regime: int) -> None:
    sequence = attempt(known, prompt=5)
    assert (LONGROPE.stretch(sequence), LONGROPE.regime(sequence)) == (known, regime)


def test_longrope_is_outgrown_by_the_first_token_past_the_edge_and_only_then() -> None:
    sequence = attempt(known=8, prompt=8)
    grown = []
    for token in range(4):
        sequence.take(token, context=100)
        length = len(sequence.tokens)
        grown.append((length, LONGROPE.outgrown(sequence, length), DYNAMIC.outgrown(sequence, length)))
    assert grown == [(9, False, False), (10, False, False), (11, True, False), (12, True, False)]
    beyond = attempt(known=11, prompt=8)
    beyond.take(1, context=100)
    assert not LONGROPE.outgrown(beyond, 12)
