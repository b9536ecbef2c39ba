"""What a caller may ask."""

import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairstep.errors import InvalidParameter
from fairstep.request import (
    MAX_BAD_WORD_CHARS,
    MAX_BAD_WORDS,
    MAX_BIASES,
    MAX_LOGPROBS,
    MAX_SIBLINGS,
    MAX_STOP_CHARS,
    MAX_STOPS,
    SEED_STEP,
    Completion,
    Delta,
    Place,
    Request,
    SamplingParams,
    Usage,
)

WRONG = {
    "temperature": [-1, -0.001, 100.5, math.nan, math.inf, "1", True],
    "top_k": [-2, 1.5, "3", True],
    "top_p": [0, 0.0, 1.1, -0.5, math.nan, "x", False],
    "min_p": [-0.1, 1.1, math.nan, "x"],
    "seed": [2**64, -(2**63) - 1, 0.5, "a", True],
    "max_tokens": [-1, 1.5, "ten", True],
    "min_tokens": [-1, 0.5, "1", True],
    "stop": ["", ("a", ""), (1,), ("x" * (MAX_STOP_CHARS + 1),), ("a",) * (MAX_STOPS + 1)],
    "stop_token_ids": [(-1,), (1.5,), ("a",), (True,), 5],
    "ignore_eos": [None, 1, "yes"],
    "repetition_penalty": [0, 0.009, 100.1, -1, math.nan, "1", True],
    "presence_penalty": [-2.1, 2.1, math.inf, "0"],
    "frequency_penalty": [-2.1, 2.1, math.nan, "0"],
    "logit_bias": [
        *({-1: 1}, {"5": 1}, {5: 100.1}, {5: math.nan}, {5: 10**9}, {5: "1"}, {5: None}, [5], 5, "x"),
        dict.fromkeys(range(MAX_BIASES + 1), 0.0),
    ],
    "allowed_token_ids": [(), [], (-1,), (1.5,), 5, "x"],
    "bad_words": ["", ["a", ""], [1], ["x" * (MAX_BAD_WORD_CHARS + 1)], ["a"] * (MAX_BAD_WORDS + 1), 5],
    "logprobs": [-1, MAX_LOGPROBS + 1, 1.5, True],
    "prompt_logprobs": [-1, MAX_LOGPROBS + 1, "1", True],
    "skip_special_tokens": [None, 0],
    "include_stop": [None, "true"],
}


@pytest.mark.parametrize(("field", "value"), [(field, value) for field in WRONG for value in WRONG[field]])
def test_a_wrong_value_names_its_field(field: str, value: object) -> None:
    with pytest.raises(InvalidParameter, match=field) as caught:
        SamplingParams(**{field: value})  # type: ignore[arg-type]
    assert caught.value.param == field


EDGES = {
    "temperature": [0, 0.0, 100, 1e-9],
    "top_k": [-1, 0, 1],
    "top_p": [1, 1.0, 1e-9],
    "min_p": [0, 1],
    "seed": [0, 2**64 - 1, -(2**63)],
    "max_tokens": [0, 1, 10**9],
    "min_tokens": [0],
    "stop": ["a", ("x" * MAX_STOP_CHARS,), ("a",) * MAX_STOPS, ()],
    "stop_token_ids": [(0,), [5, 6], None],
    "repetition_penalty": [0.01, 100, 1],
    "presence_penalty": [-2, 2.0],
    "frequency_penalty": [-2, 2.0],
    "logit_bias": [{}, {0: 100, 5: -100.0}, [(5, 1)], dict.fromkeys(range(MAX_BIASES), 0.0)],
    "allowed_token_ids": [None, [0], (5, 6)],
    "bad_words": ["word", ["x" * MAX_BAD_WORD_CHARS], ["a"] * MAX_BAD_WORDS, None],
    "logprobs": [None, 0, MAX_LOGPROBS],
    "prompt_logprobs": [None, 0, MAX_LOGPROBS],
}


@pytest.mark.parametrize(("field", "value"), [(field, value) for field in EDGES for value in EDGES[field]])
def test_the_edges_are_allowed(field: str, value: object) -> None:
    SamplingParams(**{field: value})  # type: ignore[arg-type]


def test_one_stop_string_may_stand_alone() -> None:
    assert SamplingParams(stop="END").stop == ("END",)  # type: ignore[arg-type]


def test_lists_become_tuples_so_that_params_stay_frozen() -> None:
    params = SamplingParams(
        stop=["a"], stop_token_ids=[1, 1], bad_words=["b"], logit_bias={5: 1}, allowed_token_ids=[2, 3, 2]
    )
    assert (params.stop, params.stop_token_ids, params.bad_words) == (("a",), (1,), ("b",))
    assert (params.logit_bias, params.allowed_token_ids) == (((5, 1.0),), (2, 3))
    assert hash(params) == hash(dataclasses.replace(params))


def test_min_tokens_may_not_exceed_max_tokens() -> None:
    with pytest.raises(InvalidParameter) as caught:
        SamplingParams(min_tokens=3, max_tokens=2)
    assert caught.value.param == "min_tokens"
    assert SamplingParams(min_tokens=2, max_tokens=2).min_tokens == 2


def test_open_fields_take_the_models_defaults_then_neutral_values() -> None:
    params = SamplingParams(top_p=0.5).resolved({"temperature": 0.6, "top_p": 0.9})
    assert (params.temperature, params.top_p, params.top_k, params.min_p) == (0.6, 0.5, 0, 0.0)
    assert params.repetition_penalty == 1.0
    assert SamplingParams().resolved({"repetition_penalty": 1.1}).repetition_penalty == 1.1
    assert SamplingParams(repetition_penalty=1).resolved({"repetition_penalty": 1.1}).repetition_penalty == 1


def test_zero_given_is_not_open() -> None:
    assert SamplingParams(temperature=0).resolved({"temperature": 0.6}).temperature == 0


@given(st.lists(st.text(max_size=5), min_size=1, max_size=6), st.lists(st.integers(0, 99), max_size=6))
def test_joined_deltas_are_the_whole_answer(texts: list[str], ids: list[int]) -> None:
    usage = Usage(prompt_tokens=3, completion_tokens=len(ids), cached_tokens=1)
    deltas = [Delta("r", text=text) for text in texts]
    deltas += [Delta("r", token_ids=(token,)) for token in ids]
    deltas += [Delta("r", finish_reason="stop", stop_reason="END", usage=usage)]
    whole = Completion.join(deltas)
    assert (whole.text, whole.token_ids, whole.usage) == ("".join(texts), tuple(ids), usage)
    assert (whole.request_id, whole.finish_reason, whole.stop_reason, whole.error) == ("r", "stop", "END", None)


def test_joining_an_unfinished_request_is_a_bug() -> None:
    with pytest.raises(AssertionError):
        Completion.join([Delta("r", text="a")])


def test_params_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        SamplingParams().seed = 1  # type: ignore[misc]


def asked(**params: object) -> Request:
    return Request.at((1, 2), SamplingParams(**params), 5.0, Place(request_id="r", tenant="t", priority=3))  # type: ignore[arg-type]


def test_siblings_follow_the_first_and_draw_with_seeds_of_their_own() -> None:
    first, *others = asked(seed=2**64 - 1, prompt_logprobs=1).siblings(3)
    assert first == asked(seed=2**64 - 1, prompt_logprobs=1)
    assert [other.id for other in others] == ["r.1", "r.2"] and {other.leader for other in others} == {"r"}
    assert [other.params.seed for other in others] == [SEED_STEP - 1, (2 * SEED_STEP - 1) % 2**64]
    assert {other.params.prompt_logprobs for other in others} == {None}
    assert {(other.prompt_ids, other.tenant, other.priority, other.arrival) for other in others} == {
        ((1, 2), "t", 3, 5.0)
    }


def test_siblings_without_a_seed_have_none() -> None:
    assert [sibling.params.seed for sibling in asked().siblings(3)] == [None] * 3


@pytest.mark.parametrize("n", [0, -1, MAX_SIBLINGS + 1, 1.5, True, "2"])
def test_a_wrong_number_of_siblings_is_refused(n: int) -> None:
    with pytest.raises(InvalidParameter) as caught:
        asked().siblings(n)
    assert caught.value.param == "n"


def test_a_request_that_says_nothing_of_its_place_arrives_now() -> None:
    request = Request.at([1], None, 5.0, Place())
    assert (request.arrival, request.tenant, request.priority, request.deadline, len(request.id)) == (
        5.0,
        "anonymous",
        0,
        None,
        32,
    )
    assert Request.at([1], None, 5.0, Place(arrival=2.0)).arrival == 2.0
