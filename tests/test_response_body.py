"""response_body.py: a response's body is that of a chat under other names."""

from typing import Any

import pytest

from fairstep.errors import InvalidRequest
from fairstep.serving.ask import chat_ask
from fairstep.serving.limits import Limits
from fairstep.serving.messages import Conversation
from fairstep.serving.response_body import IN_RESPONSES, response_ask


def conversation(fields: dict[str, Any]) -> list[dict[str, Any]]:
    _, ask = response_ask(fields, Limits())
    assert isinstance(ask.prompts[0], Conversation)
    return [dict(message) for message in ask.prompts[0].messages]


def test_input_is_a_text_or_messages_and_instructions_come_first() -> None:
    user, system = {"role": "user", "content": "hi"}, {"role": "system", "content": "be brief"}
    assert conversation({"input": "hi"}) == [user]
    parts = [{"type": "input_text", "text": "h"}, {"type": "input_text", "text": "i"}]
    assert conversation({"input": [{"type": "message", "role": "user", "content": parts}]}) == [user]
    said = {"role": "assistant", "content": [{"type": "output_text", "text": "yes", "annotations": []}], "id": "msg_1"}
    assert conversation({"input": [user, said, user], "instructions": "be brief"}) == [
        system, user, {"role": "assistant", "content": "yes"}, user,
    ]  # fmt: skip


def test_the_rest_is_what_a_chat_would_ask() -> None:
    shared = {"temperature": 0.5, "seed": 3, "stop": "x", "deadline_ms": 100, "priority": 2, "stream": True}
    _, ask = response_ask({"input": "hi", "max_output_tokens": 9, "metadata": {"a": "b"}, **shared}, Limits())
    chat = chat_ask({"messages": [{"role": "user", "content": "hi"}], "max_completion_tokens": 9, **shared})
    assert (ask.params, ask.prompts, ask.stream, ask.priority) == (chat.params, chat.prompts, True, 2)
    assert ask.deadline_ms == 100


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({}, "input"),
        ({"input": []}, "input"),
        ({"input": 3}, "input"),
        ({"input": [{"type": "function_call_output", "output": "x"}]}, "input"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input"),
        ({"input": [{"role": "nobody", "content": "x"}]}, "input"),
        ({"input": "x", "max_output_tokens": 0}, "max_output_tokens"),
        ({"input": "x", "temperature": -1}, "temperature"),
        ({"input": "x", "background": True, "store": False}, "background"),
        ({"input": "x", "metadata": {"a": 1}}, "metadata"),
        ({"input": "x", "metadata": {str(n): "" for n in range(17)}}, "metadata"),
        ({"input": "x", "metadata": {"a": "x" * 513}}, "metadata"),
        ({"input": "x", "previous_response_id": "resp_1"}, "previous_response_id"),
        ({"input": "x", "truncation": "auto"}, "truncation"),
        ({"input": "x", "tools": [{"type": "web_search"}]}, "tools"),
        ({"input": "x", "text": {"format": {"type": "json_object"}}}, "text"),
        ({"input": "x", "n": 2}, "n"),
    ],
)
def test_what_is_wrong_or_not_supported_is_refused_by_the_name_it_has_here(fields: Any, param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        response_ask(fields, Limits())
    assert caught.value.param == param


@pytest.mark.parametrize("name", IN_RESPONSES)
def test_neutral_values_pass(name: str) -> None:
    for value in IN_RESPONSES[name]:
        response_ask({"input": "x", name: value}, Limits())
