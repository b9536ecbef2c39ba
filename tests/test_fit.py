"""fit.py: what can never fit is refused with both numbers."""

import pytest

from fairstep.admission.fit import answer_room, check_ids, check_param_ids
from fairstep.errors import ContextTooLong, InvalidRequest
from fairstep.request import SamplingParams


def test_an_answer_may_fill_the_context_exactly() -> None:
    assert answer_room(prompt_tokens=19, max_tokens=None, context=20) == 1
    assert answer_room(prompt_tokens=5, max_tokens=15, context=20) == 15


@pytest.mark.parametrize("prompt", [20, 21])
def test_a_prompt_that_leaves_no_room_is_refused_naming_both_numbers(prompt: int) -> None:
    with pytest.raises(ContextTooLong, match=f"{prompt}.*20") as caught:
        answer_room(prompt, None, 20)
    assert caught.value.param == "prompt"


def test_an_explicit_overshoot_is_refused_naming_what_would_fit() -> None:
    with pytest.raises(ContextTooLong, match="at most 15") as caught:
        answer_room(5, 16, 20)
    assert caught.value.param == "max_tokens"


@pytest.mark.parametrize(
    ("ids", "told"), [([], "empty"), ([3, -1], "-1"), ([10], "10"), ([True], "True"), ([1.5], "1.5")]
)
def test_ids_outside_the_vocabulary_are_refused(ids: list[int], told: str) -> None:
    with pytest.raises(InvalidRequest, match=told) as caught:
        check_ids(ids, vocab_size=10)
    assert caught.value.param == "prompt"


def test_an_answer_of_no_tokens_needs_no_room_but_its_prompt() -> None:
    assert answer_room(prompt_tokens=19, max_tokens=0, context=20) == 0


@pytest.mark.parametrize(
    ("params", "field"),
    [
        (SamplingParams(stop_token_ids=[9, 10]), "stop_token_ids"),
        (SamplingParams(allowed_token_ids=[10, 9]), "allowed_token_ids"),
        (SamplingParams(logit_bias={9: 1, 10: -100}), "logit_bias"),
    ],
)
def test_ids_outside_the_vocabulary_are_refused_wherever_params_hold_some(params: SamplingParams, field: str) -> None:
    with pytest.raises(InvalidRequest, match="10; ids go from 0 to 9") as caught:
        check_param_ids(params, vocab_size=10)
    assert caught.value.param == field
    check_param_ids(params, vocab_size=11)
