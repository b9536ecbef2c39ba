"""What a caller may ask."""

import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairstep.errors import InvalidParameter
from fairstep.request import MAX_STOP_CHARS, MAX_STOPS, Completion, Delta, SamplingParams, Usage

WRONG = {
    "temperature": [-1, -0.001, 100.5, math.nan, math.inf, "1", True],
    "top_k": [-2, 1.5, "3", True],
    "top_p": [0, 0.0, 1.1, -0.5, math.nan, "x", False],
    "min_p": [-0.1, 1.1, math.nan, "x"],
    "seed": [2**64, -(2**63) - 1, 0.5, "a", True],
    "max_tokens": [0, -1, 1.5, "ten", True],
    "min_tokens": [-1, 0.5, "1", True],
    "stop": ["", ("a", ""), (1,), ("x" * (MAX_STOP_CHARS + 1),), ("a",) * (MAX_STOPS + 1)],
    "stop_token_ids": [(-1,), (1.5,), ("a",), (True,)],
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
    "max_tokens": [1, 10**9],
    "min_tokens": [0],
    "stop": ["a", ("x" * MAX_STOP_CHARS,), ("a",) * MAX_STOPS, ()],
    "stop_token_ids": [(0,), [5, 6]],
}


@pytest.mark.parametrize(("field", "value"), [(field, value) for field in EDGES for value in EDGES[field]])
def test_the_edges_are_allowed(field: str, value: object) -> None:
    SamplingParams(**{field: value})  # type: ignore[arg-type]


def test_one_stop_string_may_stand_alone() -> None:
    assert SamplingParams(stop="END").stop == ("END",)  # type: ignore[arg-type]


def test_lists_become_tuples_so_that_params_stay_frozen() -> None:
    params = SamplingParams(stop=["a"], stop_token_ids=[1])  # type: ignore[arg-type]
    assert (params.stop, params.stop_token_ids) == (("a",), (1,))
    assert hash(params) == hash(SamplingParams(stop=("a",), stop_token_ids=(1,)))


def test_min_tokens_may_not_exceed_max_tokens() -> None:
    with pytest.raises(InvalidParameter) as caught:
        SamplingParams(min_tokens=3, max_tokens=2)
    assert caught.value.param == "min_tokens"
    assert SamplingParams(min_tokens=2, max_tokens=2).min_tokens == 2


def test_open_fields_take_the_models_defaults_then_neutral_values() -> None:
    params = SamplingParams(top_p=0.5).resolved({"temperature": 0.6, "top_p": 0.9})
    assert (params.temperature, params.top_p, params.top_k, params.min_p) == (0.6, 0.5, 0, 0.0)


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
