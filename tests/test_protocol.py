"""Request bodies: what is taken, how strictly, and how quickly a hostile one is refused."""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fairstep.errors import InvalidRequest
from fairstep.serving.ask import chat_ask, completion_ask
from fairstep.serving.body import MAX_DEPTH, parse_object
from fairstep.serving.messages import Conversation
from fairstep.serving.protocol import ChatBody, CompletionBody
from fairstep.serving.unsupported import NEUTRAL, refuse_unsupported

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)
NAMES = sorted({*ChatBody.model_fields, *CompletionBody.model_fields, *NEUTRAL, "tools", "tool_choice", "other"})
# a first run builds tables of characters for seconds, and no test is about time
patiently = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
FIELDS = st.dictionaries(st.sampled_from(NAMES), VALUES)


@patiently
@given(FIELDS)
def test_any_json_object_is_taken_or_refused_in_short_words(fields: dict[str, Any]) -> None:
    for check in (chat_ask, lambda body: completion_ask(body, 4)):
        try:
            check(fields)
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


@pytest.mark.parametrize("name", sorted(NEUTRAL))
def test_every_unsupported_field_has_neutral_values_and_refuses_others(name: str) -> None:
    for value in NEUTRAL[name]:
        refuse_unsupported({name: value}, adds_special_tokens=True)
    with pytest.raises(InvalidRequest) as refusal:
        refuse_unsupported({name: ["something", "else"]}, adds_special_tokens=True)
    assert refusal.value.param == name


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
    assert completion_ask({"prompt": "hi", **nulls}, 4) == completion_ask({"prompt": "hi"}, 4)


def test_messages_keep_what_a_template_may_know() -> None:
    call = {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}], "refusal": None}
    (conversation,) = chat_ask({"messages": [call]}).prompts
    assert conversation == Conversation(({"role": "assistant", "content": "", "tool_calls": [{"id": "1"}]},))
