"""Request bodies: what is taken, how strictly, and how quickly a hostile one is refused."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fairstep.errors import InvalidRequest
from fairstep.serving.ask import chat_ask, completion_ask
from fairstep.serving.body import MAX_DEPTH, parse_object
from fairstep.serving.limits import Limits
from fairstep.serving.messages import Conversation
from fairstep.serving.protocol import ChatBody, CompletionBody, DetokenizeBody, TokenizeBody
from fairstep.serving.tokenizing import tokenize_ask
from fairstep.serving.unsupported import IN_CHATS, IN_COMPLETIONS, Neutral, refuse_unsupported

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)
FIELDS_OF = [*ChatBody.model_fields, *CompletionBody.model_fields, *TokenizeBody.model_fields, "tokens"]
NAMES = sorted({*FIELDS_OF, *IN_CHATS, *IN_COMPLETIONS, "tools", "tool_choice", "other"})
# a value that is likely for some field, so that more than the first check is reached
LIKELY = st.sampled_from(
    [0, 1, 2, -1, 0.5, True, "a", "1", ["a"], [1], {"1": 1}, {"1": 200}, {"a": 1}, [[1], [2]], None]
)
FOUR = Limits(prompts=4)
HI = [{"role": "user", "content": "hi"}]
# a first run builds tables of characters for seconds, and no test is about time
patiently = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
FIELDS = st.dictionaries(st.sampled_from(NAMES), LIKELY | VALUES)


@patiently
@given(FIELDS)
def test_any_json_object_is_taken_or_refused_in_short_words(fields: dict[str, Any]) -> None:
    for check, needed in (
        (chat_ask, {"messages": HI}),
        (lambda body: completion_ask(body, FOUR), {"prompt": "hi"}),
        (tokenize_ask, {"prompt": "hi"}),
        (DetokenizeBody.of, {"tokens": [1]}),
    ):
        for body in (fields, {**fields, **needed}):
            try:
                check(body)  # type: ignore[operator]
            except InvalidRequest as error:
                assert error.param in NAMES and len(str(error)) < 2000


@patiently
@given(VALUES)
def test_a_body_is_read_as_python_reads_it(value: Any) -> None:
    assert parse_object(json.dumps({"x": value}).encode()) == {"x": value}
    assert parse_object(json.dumps({"x": value}, ensure_ascii=False).encode()) == {"x": value}


@patiently
@given(st.binary())
def test_any_bytes_are_an_object_or_refused(raw: bytes) -> None:
    try:
        assert isinstance(parse_object(raw), dict)
    except InvalidRequest as error:
        assert len(str(error)) < 500


@pytest.mark.parametrize(("opening", "inner", "closing"), [("[", "", "]"), ('{"a":', "1", "}")])
def test_depth_is_limited_to_a_level(opening: str, inner: str, closing: str) -> None:
    def nested(levels: int) -> bytes:
        return ('{"x":' + opening * levels + inner + closing * levels + "}").encode()

    parse_object(nested(MAX_DEPTH - 1))
    with pytest.raises(InvalidRequest, match="nests deeper"):
        parse_object(nested(MAX_DEPTH + 1))


UNSUPPORTED = [(fields, name) for fields in (IN_CHATS, IN_COMPLETIONS) for name in sorted(fields)]


@pytest.mark.parametrize(("fields", "name"), UNSUPPORTED)
def test_every_unsupported_field_has_neutral_values_and_refuses_others(fields: Neutral, name: str) -> None:
    for value in fields[name]:
        refuse_unsupported({name: value}, fields)
    with pytest.raises(InvalidRequest) as refusal:
        refuse_unsupported({name: ["something", "else"]}, fields)
    assert refusal.value.param == name


def test_no_field_is_both_taken_and_refused() -> None:
    assert set(ChatBody.model_fields).isdisjoint(IN_CHATS)
    assert set(CompletionBody.model_fields).isdisjoint(IN_COMPLETIONS)


@pytest.mark.parametrize(
    ("fields", "most"), [({"max_tokens": 3, "max_completion_tokens": 2}, 2), ({"max_tokens": 3}, 3)]
)
def test_max_completion_tokens_wins(fields: dict[str, int], most: int) -> None:
    ask = chat_ask({"messages": [{"role": "user", "content": "hi"}], **fields})
    assert ask.params.max_tokens == most


def test_null_means_absent_for_every_optional_field() -> None:
    nulls = dict.fromkeys(name for name in NAMES if name not in ("messages", "prompt"))
    message = {"role": "user", "content": "hi"}
    assert chat_ask({"messages": [message], **nulls}) == chat_ask({"messages": [message]})
    assert completion_ask({"prompt": "hi", **nulls}) == completion_ask({"prompt": "hi"})


def test_messages_keep_what_a_template_may_know() -> None:
    call = {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}], "refusal": None}
    (conversation,) = chat_ask({"messages": [call]}).prompts
    assert conversation == Conversation(({"role": "assistant", "content": "", "tool_calls": [{"id": "1"}]},))


def test_sampling_fields_reach_the_engines_names() -> None:
    fields = {
        "repetition_penalty": 1.1,
        "presence_penalty": -0.5,
        "frequency_penalty": 2,
        "logit_bias": {"5": -100, "0": 1.5},
        "allowed_token_ids": [5, 6],
        "bad_words": ["rude"],
        "include_stop_str_in_output": True,
        "skip_special_tokens": False,
        "spaces_between_special_tokens": True,
        "prompt_logprobs": 3,
    }
    for ask in (chat_ask({"messages": HI, **fields}), completion_ask({"prompt": "hi", **fields})):
        params = ask.params
        assert (params.repetition_penalty, params.presence_penalty, params.frequency_penalty) == (1.1, -0.5, 2)
        assert dict(params.logit_bias) == {5: -100, 0: 1.5}
        assert (params.allowed_token_ids, params.bad_words) == ((5, 6), ("rude",))
        assert params.include_stop and not params.skip_special_tokens and params.prompt_logprobs == 3


@pytest.mark.parametrize(
    ("fields", "of_answer", "of_prompt"),
    [
        ({}, None, None),
        ({"logprobs": 0}, 0, None),
        ({"logprobs": 4, "prompt_logprobs": 2}, 4, 2),
        ({"logprobs": 4, "prompt_logprobs": 2, "echo": True}, 4, 4),
        ({"logprobs": 1, "prompt_logprobs": 2, "echo": True}, 1, 2),
        ({"logprobs": 1, "echo": True}, 1, 1),
        ({"best_of": 2}, 0, None),  # to find the best
        ({"best_of": 2, "n": 2}, None, None),
    ],
)
def test_the_engine_tells_as_many_log_probabilities_as_are_needed(
    fields: dict[str, Any], of_answer: int | None, of_prompt: int | None
) -> None:
    params = completion_ask({"prompt": "hi", **fields}).params
    assert (params.logprobs, params.prompt_logprobs) == (of_answer, of_prompt)


def test_a_message_is_continued_or_answered() -> None:
    def how(**fields: Any) -> tuple[bool, bool]:
        (prompt,) = chat_ask({"messages": HI, **fields}).prompts
        assert isinstance(prompt, Conversation)
        return prompt.add_generation_prompt, prompt.continue_final_message

    assert how() == (True, False)
    assert how(continue_final_message=True) == (False, True)
    assert how(continue_final_message=True, add_generation_prompt=False) == (False, True)
    assert how(add_generation_prompt=False) == (False, False)


def test_the_api_page_names_every_field() -> None:
    page = (Path(__file__).resolve().parent.parent / "docs" / "api.md").read_text(encoding="utf-8")
    unknown = set(NAMES) - {"other"} - set(re.findall(r"`([a-z_]+)`", page))
    assert {name for name in unknown if not re.search(rf"\b{name}: true`", page)} == set()
