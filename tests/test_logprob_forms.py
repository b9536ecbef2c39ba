"""Log probabilities in the protocol's forms: real bytes, names that do not collide, and numbers that JSON can hold."""

import json
import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairstep.door import TokenLogprobs
from fairstep.request import Completion, Usage
from fairstep.serving.logprob_forms import (
    FLOOR,
    TokenNames,
    chat_entries,
    completion_lists,
    mean_logprob,
    prompt_entries,
)
from fairstep.serving.spans import Span
from fakes_text import EOS, VOCAB, FakeTokenizer

A, Z = ord("a"), ord("z")
SHOWN = Span(0, "a")
NUMBERS = st.floats() | st.sampled_from([-math.inf, math.inf, math.nan, -1e300])


def names(*, skip_special: bool = True) -> TokenNames:
    tokenizer: Any = FakeTokenizer()
    return TokenNames(tokenizer, skip_special=skip_special)


def item(*pairs: tuple[int, float], rank: int = 1) -> TokenLogprobs:
    ids, values = zip(*pairs, strict=True)
    return TokenLogprobs(ids, values, rank)


def test_a_chat_has_the_token_and_the_likeliest_with_their_bytes() -> None:
    told = item((A, -2.0), (0xC3, -0.5), (A, -2.0), (Z, -3.0))
    assert chat_entries(names(), [SHOWN], [told], 2) == [
        {
            "token": "a",
            "logprob": -2.0,
            "bytes": [A],
            "top_logprobs": [
                {"token": "\ufffd", "logprob": -0.5, "bytes": [0xC3]},
                {"token": "a", "logprob": -2.0, "bytes": [A]},
            ],
        }
    ]


def test_without_top_logprobs_the_list_is_there_and_empty() -> None:
    (entry,) = chat_entries(names(), [SHOWN], [item((A, -2.0), (Z, -3.0))], 0)
    assert entry["top_logprobs"] == []


@pytest.mark.parametrize(("skip_special", "data"), [(True, []), (False, list(b"<eos>"))])
def test_a_hidden_special_token_adds_no_bytes(skip_special: bool, data: list[int]) -> None:
    (entry,) = chat_entries(names(skip_special=skip_special), [SHOWN], [item((EOS, -1.0))], 0)
    assert (entry["token"], entry["bytes"]) == ("<eos>", data)


def test_what_a_stop_kept_out_of_the_text_has_no_entry_in_a_chat_and_one_in_a_completion() -> None:
    spans, items = [SHOWN, Span(1, "", cut=True)], [item((A, -1.0)), item((EOS, -2.0))]
    assert len(chat_entries(names(), spans, items, 0)) == 1
    assert completion_lists(names(), spans, items, 0)["token_logprobs"] == [-1.0, -2.0]


def test_a_completion_has_four_lists_and_nothing_for_what_nothing_predicts() -> None:
    spans = [Span(0, "a"), Span(1, "z")]
    assert completion_lists(names(), spans, [None, item((Z, -2.0), (A, -1.0))], 1) == {
        "text_offset": [0, 1],
        "token_logprobs": [None, -2.0],
        "tokens": ["a", "z"],
        "top_logprobs": [None, {"a": -1.0, "z": -2.0}],
    }


def test_tokens_of_no_whole_character_are_told_apart_by_their_bytes() -> None:
    told = item((0x80, -3.0), (0x81, -1.0), (0x82, -2.0), (VOCAB + 5, -2.5))
    (top,) = completion_lists(names(), [SHOWN], [told], 3)["top_logprobs"]
    assert top == {"bytes:\\x81": -1.0, "bytes:\\x82": -2.0, f"token_id:{VOCAB + 5}": -2.5, "bytes:\\x80": -3.0}


def test_of_tokens_with_one_name_the_likeliest_is_told() -> None:
    class Twins(FakeTokenizer):
        def token_bytes(self, token: int) -> bytes:
            return b"a"

    tokenizer: Any = Twins()
    told = item((7, -3.0), (8, -1.0), (9, -2.0))
    lists = completion_lists(TokenNames(tokenizer, skip_special=True), [SHOWN], [told], 2)
    assert lists["top_logprobs"] == [{"a": -1.0}] and lists["token_logprobs"] == [-3.0]


def test_a_prompts_tokens_are_told_by_id_with_rank_and_text() -> None:
    told = item((Z, -2.0), (A, -1.0), (0xC3, -1.5), rank=9)
    assert prompt_entries(names(), [None, told], 1) == [
        None,
        {
            str(Z): {"logprob": -2.0, "rank": 9, "decoded_token": "z"},
            str(A): {"logprob": -1.0, "rank": 1, "decoded_token": "a"},
        },
    ]


@given(st.lists(st.tuples(st.integers(0, VOCAB), NUMBERS), min_size=1, max_size=5))
def test_every_number_is_one_that_json_has(pairs: list[tuple[int, float]]) -> None:
    told = item(*pairs)
    written = [
        chat_entries(names(), [SHOWN], [told], 20),
        completion_lists(names(), [SHOWN], [told], 20),
        prompt_entries(names(), [told], 20),
    ]
    assert all(FLOOR <= number <= 0 for number in numbers(json.loads(msgspec.json.encode(written))))


def numbers(value: Any) -> list[float]:
    """All log probabilities in a reply."""
    if isinstance(value, float):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [number for own in inner for number in numbers(own)]


def test_the_mean_is_a_token_and_nothing_for_no_tokens() -> None:
    def answer(*values: float) -> Completion:
        told = tuple(item((A, value)) for value in values)
        return Completion("r", "", (A,) * len(values), "stop", None, Usage(1, 1), logprobs=told)

    assert mean_logprob(answer(-1.0, -3.0)) == -2.0
    assert mean_logprob(answer()) == 0.0
    assert mean_logprob(answer(-math.inf)) == FLOOR
