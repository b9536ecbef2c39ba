"""Whatever a client sends, it gets the protocol's error object that names the field, and the next request works."""

import json
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairstep.serving.app import create_app
from fakes_serving import CONTEXT, FakeEngine, client_of, events_of, run
from fakes_text import BOS, EOS, TURN, VOCAB
from replay_engine import replaying

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
HI = [{"role": "user", "content": "hi"}]
GOOD = {CHAT: {"messages": HI}, TEXT: {"prompt": "hi"}}
TOOLS = [{"type": "function", "function": {"name": "f"}}]
SURROGATE = "\ud800"
MAX_REPLY = 16 * 1024


async def refused(path: str, status: int = 400, **how: Any) -> dict[str, Any]:
    """The error object of a reply with `status`; checks its shape, and that the same application still serves."""
    if "json" in how:  # httpx itself refuses to send a lone surrogate
        how = {"content": json.dumps(how["json"]), "headers": {"Content-Type": "application/json"}}
    async with client_of(create_app(FakeEngine())) as client:
        reply = await client.post(path, **how)
        check_error(reply, status)
        assert (await client.post(path, json=GOOD[path])).status_code == 200
    return reply.json()["error"]


def check_error(reply: httpx.Response, status: int) -> None:
    assert reply.status_code == status, reply.text[:500]
    assert reply.headers["content-type"] == "application/json" and reply.headers["x-request-id"]
    assert len(reply.content) < MAX_REPLY
    error = reply.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"] and error["type"] and error["code"]


FIELDS: list[tuple[str, dict[str, Any]]] = [
    ("temperature", {"temperature": -1}),
    ("temperature", {"temperature": 101}),
    ("temperature", {"temperature": "1"}),
    ("temperature", {"temperature": True}),
    ("temperature", {"temperature": []}),
    ("top_p", {"top_p": 0}),
    ("top_p", {"top_p": 1.1}),
    ("min_p", {"min_p": 1.5}),
    ("top_k", {"top_k": -2}),
    ("top_k", {"top_k": 0.5}),
    ("top_k", {"top_k": 10**30}),
    ("seed", {"seed": 10**30}),
    ("seed", {"seed": 1.0}),
    ("max_tokens", {"max_tokens": 0}),
    ("max_tokens", {"max_tokens": -1}),
    ("max_tokens", {"max_tokens": 1.5}),
    ("max_tokens", {"max_tokens": "ten"}),
    ("max_tokens", {"max_tokens": "10"}),
    ("max_tokens", {"max_tokens": True}),
    ("max_tokens", {"max_tokens": 10**12}),
    ("max_tokens", {"max_tokens": 10**40}),
    ("min_tokens", {"min_tokens": -1}),
    ("min_tokens", {"min_tokens": 5, "max_tokens": 4}),
    ("min_tokens", {"min_tokens": 10**30}),
    ("stop", {"stop": ""}),
    ("stop", {"stop": [""]}),
    ("stop", {"stop": 5}),
    ("stop", {"stop": ["a"] * 17}),
    ("stop", {"stop": [1] * 5000}),
    ("stop_token_ids", {"stop_token_ids": [-1]}),
    ("stop_token_ids", {"stop_token_ids": ["a"]}),
    ("stop_token_ids", {"stop_token_ids": [1] * 5000}),
    ("ignore_eos", {"ignore_eos": "yes"}),
    ("stream", {"stream": "yes"}),
    ("stream", {"stream": 1}),
    ("stream_options", {"stream_options": {}}),
    ("stream_options", {"stream": False, "stream_options": {"include_usage": True}}),
    ("stream_options", {"stream": True, "stream_options": 5}),
    ("stream_options", {"stream": True, "stream_options": {"include_usage": "yes"}}),
    ("priority", {"priority": 10**30}),
    ("priority", {"priority": "high"}),
    ("model", {"model": 5}),
    ("n", {"n": 0}),
    ("n", {"n": -1}),
    ("n", {"n": True}),
    ("top_logprobs", {"top_logprobs": 5}),
    ("n", {"n": 17}),
    ("n", {"n": 1.5}),
    ("n", {"n": 10**30}),
    ("logprobs", {"logprobs": "yes"}),
    ("logprobs", {"logprobs": -1}),
    ("prompt_logprobs", {"prompt_logprobs": -1}),
    ("prompt_logprobs", {"prompt_logprobs": 21}),
    ("prompt_logprobs", {"prompt_logprobs": True}),
    ("prompt_logprobs", {"prompt_logprobs": 0, "stream": True}),
    ("logit_bias", {"logit_bias": {"5": 1e9}}),
    ("logit_bias", {"logit_bias": {"191222": -100}}),
    ("logit_bias", {"logit_bias": {"-1": 1}}),
    ("logit_bias", {"logit_bias": {"abc": 1}}),
    ("logit_bias", {"logit_bias": {"05": 1}}),
    ("logit_bias", {"logit_bias": {"٣": 1}}),
    ("logit_bias", {"logit_bias": {"": 1}}),
    ("logit_bias", {"logit_bias": {"9" * 5000: 1}}),
    ("logit_bias", {"logit_bias": {"5": None}}),
    ("logit_bias", {"logit_bias": {"5": "1"}}),
    ("logit_bias", {"logit_bias": {"5": True}}),
    ("logit_bias", {"logit_bias": {"5": 10**400}}),
    ("logit_bias", {"logit_bias": [[5, 1]]}),
    ("logit_bias", {"logit_bias": {str(n): 1 for n in range(2000)}}),
    ("logit_bias", {"logit_bias": {"5": float("nan")}}),
    ("frequency_penalty", {"frequency_penalty": 2.1}),
    ("presence_penalty", {"presence_penalty": -2.1}),
    ("presence_penalty", {"presence_penalty": "1"}),
    ("repetition_penalty", {"repetition_penalty": 0}),
    ("repetition_penalty", {"repetition_penalty": -1}),
    ("repetition_penalty", {"repetition_penalty": True}),
    ("allowed_token_ids", {"allowed_token_ids": []}),
    ("allowed_token_ids", {"allowed_token_ids": [VOCAB]}),
    ("allowed_token_ids", {"allowed_token_ids": [-1]}),
    ("allowed_token_ids", {"allowed_token_ids": [10**40]}),
    ("allowed_token_ids", {"allowed_token_ids": ["a"]}),
    ("allowed_token_ids", {"allowed_token_ids": 5}),
    ("bad_words", {"bad_words": [""]}),
    ("bad_words", {"bad_words": "word"}),
    ("bad_words", {"bad_words": [5]}),
    ("bad_words", {"bad_words": ["a"] * 1000}),
    ("stop_token_ids", {"stop_token_ids": [VOCAB]}),
    ("skip_special_tokens", {"skip_special_tokens": 0}),
    ("spaces_between_special_tokens", {"spaces_between_special_tokens": "no"}),
    ("include_stop_str_in_output", {"include_stop_str_in_output": 1}),
    ("truncate_prompt_tokens", {"truncate_prompt_tokens": 0}),
    ("truncate_prompt_tokens", {"truncate_prompt_tokens": -2}),
    ("truncate_prompt_tokens", {"truncate_prompt_tokens": 1.5}),
    ("truncate_prompt_tokens", {"truncate_prompt_tokens": 10**30}),
    ("chat_template", {"chat_template": "{{ messages }}"}),
    ("cache_salt", {"cache_salt": "x"}),
    ("use_beam_search", {"use_beam_search": True}),
    ("suffix", {"suffix": "end"}),
    ("response_format", {"response_format": {"type": "json_object"}}),
    ("response_format", {"response_format": "text"}),
    ("tools", {"tools": TOOLS}),
    ("tools", {"tools": TOOLS, "tool_choice": "auto"}),
    ("tools", {"tools": 5}),
    ("tool_choice", {"tool_choice": "required"}),
    ("tool_choice", {"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "f"}}}),
    ("temperature", {"stream": True, "temperature": -1}),
    ("n", {"stream": True, "n": 0}),
    ("max_tokens", {"stream": True, "max_tokens": 10**12}),
]


@pytest.mark.parametrize("path", [CHAT, TEXT])
@pytest.mark.parametrize(("param", "fields"), FIELDS, ids=lambda value: json.dumps(value)[:50])
def test_a_wrong_field_is_named(path: str, param: str, fields: dict[str, Any]) -> None:
    async def test() -> None:
        error = await refused(path, json={**GOOD[path], **fields})
        assert error["param"] == param and error["type"] == "invalid_request_error"

    run(test)


CHAT_FIELDS: list[tuple[str, dict[str, Any]]] = [
    ("logprobs", {"logprobs": 1}),
    ("top_logprobs", {"logprobs": True, "top_logprobs": 21}),
    ("top_logprobs", {"logprobs": True, "top_logprobs": -1}),
    ("top_logprobs", {"logprobs": True, "top_logprobs": True}),
    ("top_logprobs", {"logprobs": False, "top_logprobs": 5}),
    ("best_of", {"best_of": 2}),
    ("echo", {"echo": True}),
    ("add_special_tokens", {"add_special_tokens": True}),
    ("continue_final_message", {"continue_final_message": True, "add_generation_prompt": True}),
    ("continue_final_message", {"continue_final_message": "yes"}),
    ("add_generation_prompt", {"add_generation_prompt": 1}),
    ("chat_template_kwargs", {"chat_template_kwargs": []}),
    ("chat_template_kwargs", {"chat_template_kwargs": "x"}),
    ("chat_template_kwargs", {"chat_template_kwargs": {"messages": []}}),
]
TEXT_FIELDS: list[tuple[str, dict[str, Any]]] = [
    ("logprobs", {"logprobs": True}),
    ("logprobs", {"logprobs": 21}),
    ("best_of", {"best_of": 0}),
    ("best_of", {"best_of": 17}),
    ("best_of", {"best_of": 1, "n": 2}),
    ("best_of", {"best_of": 3, "n": 2, "stream": True}),
    ("best_of", {"best_of": "2"}),
    ("n", {"n": 16, "prompt": ["a"] * 17}),
    ("best_of", {"best_of": 16, "prompt": ["a"] * 17}),
    ("max_tokens", {"max_tokens": 0, "logprobs": 1}),
    ("max_tokens", {"max_tokens": -1, "echo": True}),
    ("echo", {"echo": 1}),
    ("add_special_tokens", {"add_special_tokens": 0}),
    ("max_completion_tokens", {"max_completion_tokens": 5}),
    ("continue_final_message", {"continue_final_message": True}),
    ("add_generation_prompt", {"add_generation_prompt": False}),
    ("chat_template_kwargs", {"chat_template_kwargs": {"a": 1}}),
]


@pytest.mark.parametrize(
    ("path", "param", "fields"),
    [(CHAT, *row) for row in CHAT_FIELDS] + [(TEXT, *row) for row in TEXT_FIELDS],
    ids=lambda value: json.dumps(value)[:50],
)
def test_a_wrong_field_of_one_kind_is_named(path: str, param: str, fields: dict[str, Any]) -> None:
    async def test() -> None:
        assert (await refused(path, json={**GOOD[path], **fields}))["param"] == param

    run(test)


@pytest.mark.parametrize("fields", [{"suffix": "x"}, {"tools": TOOLS}, {"tool_choice": "required"}, {"echo": True}])
def test_what_is_not_supported_says_so(fields: dict[str, Any]) -> None:
    async def test() -> None:
        assert "not supported" in (await refused(CHAT, json={**GOOD[CHAT], **fields}))["message"]

    run(test)


@pytest.mark.parametrize("value", [0, 10**12, "ten"])
def test_max_completion_tokens_is_named_when_it_was_sent(value: Any) -> None:
    async def test() -> None:
        error = await refused(CHAT, json={**GOOD[CHAT], "max_completion_tokens": value})
        assert error["param"] == "max_completion_tokens"

    run(test)


# each value is right by itself; some do not go together
FITTING: dict[str, list[Any]] = {
    "n": [1, 2, 3],
    "max_tokens": [1, 5, None],
    "min_tokens": [0, 2],
    "stop": ["a", ["ab", "<eos>"]],
    "stop_token_ids": [[98], [VOCAB - 1]],
    "ignore_eos": [True],
    "include_stop_str_in_output": [True],
    "skip_special_tokens": [False],
    "truncate_prompt_tokens": [-1, 1, 3],
    "return_token_ids": [True],
    "logit_bias": [{"97": 5}],
    "allowed_token_ids": [[97, 98]],
    "bad_words": [["a b"]],
    "presence_penalty": [0.5],
    "prompt_logprobs": [0, 2],
}
FITTING_CHATS = {
    "logprobs": [True],
    "top_logprobs": [0, 2],
    "continue_final_message": [True, False],
    "chat_template_kwargs": [{}, {"a": [1]}],
}
FITTING_TEXTS = {"logprobs": [0, 2], "best_of": [1, 3], "echo": [True, False], "add_special_tokens": [False]}
STREAMS: list[dict[str, Any]] = [
    {},
    {"stream": True},
    {"stream": True, "stream_options": {"include_usage": True, "continuous_usage_stats": True}},
]
SCRIPTS = ([*b"abc"], [0xC3, 0x80], [TURN, *b"ab<e", EOS, 98])


def some_of(fields: dict[str, list[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional={name: st.sampled_from(values) for name, values in fields.items()})


async def served_or_refused(path: str, body: dict[str, Any]) -> None:
    async with replaying(*SCRIPTS) as (client, _):
        reply = await client.post(path, json=body)
    if reply.status_code != 200:
        check_error(reply, 400)
        assert reply.json()["error"]["param"]
    elif body.get("stream"):
        *events, done = events_of(reply.text)
        assert done == "[DONE]" and not any(event.startswith('{"error"') for event in events)
    else:
        assert all(choice["finish_reason"] in ("stop", "length") for choice in reply.json()["choices"])


@given(some_of({**FITTING, **FITTING_CHATS}), st.sampled_from(STREAMS))
def test_no_fields_of_a_chat_are_together_a_fault_of_the_server(fields: dict[str, Any], how: dict[str, Any]) -> None:
    run(lambda: served_or_refused(CHAT, {"messages": HI, **fields, **how}))


@given(
    some_of({**FITTING, **FITTING_TEXTS}),
    st.sampled_from(STREAMS),
    st.sampled_from(["ab", ["ab", "é"], [97, 0xC3], [[BOS], [1, 2]]]),
)
def test_no_fields_of_a_completion_are_together_a_fault_of_the_server(
    fields: dict[str, Any], how: dict[str, Any], prompt: Any
) -> None:
    run(lambda: served_or_refused(TEXT, {"prompt": prompt, **fields, **how}))


PROMPTS: list[Any] = [
    "",
    [],
    [[]],
    [""],
    None,
    5,
    True,
    {},
    ["a", 1],
    ["a", ["b"]],
    [1, "a"],
    [[1], "a"],
    [[1], []],
    [1.0],
    [True],
    [[True]],
    [[[1]]],
    [None],
    [-1],
    [[-1]],
    [VOCAB],
    [2**63],
    [10**40],
    [[1], [VOCAB]],
    "a" * CONTEXT,
    [1] * CONTEXT,
    [1] * 100_000,
    [1.5] * 100_000,
    ["a"] * 1000,
    SURROGATE,
    [SURROGATE],
]


@pytest.mark.parametrize("prompt", PROMPTS, ids=lambda value: json.dumps(value)[:40])
def test_a_wrong_prompt_is_refused(prompt: Any) -> None:
    async def test() -> None:
        for stream in (False, True):
            assert (await refused(TEXT, json={"prompt": prompt, "stream": stream}))["param"] == "prompt"

    run(test)


MESSAGES: list[Any] = [
    [],
    None,
    "hi",
    5,
    {},
    [None],
    ["hi"],
    [[]],
    [{}],
    [{"role": "user"}],
    [{"content": "hi"}],
    [{"role": "SYSTEM", "content": "hi"}],
    [{"role": ["user"], "content": "hi"}],
    [{"role": "user", "content": None}],
    [{"role": "user", "content": 5}],
    [{"role": "user", "content": {"type": "text", "text": "hi"}}],
    [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}],
    [{"role": "user", "content": [{"type": "text"}]}],
    [{"role": "user", "content": ["hi"]}],
    [{"role": "user", "content": [{"oops": 1}] * 5000}],
    [{"oops": "x" * 100}] * 5000,
    [{"role": "tool", "content": "the template refuses this role"}],
    [{"role": "user", "content": SURROGATE}],
    [{"role": "user", "content": "hi", "name": SURROGATE}],
    [{"role": "user", "content": "a" * CONTEXT}],
]


@pytest.mark.parametrize("messages", MESSAGES, ids=lambda value: json.dumps(value)[:60])
def test_wrong_messages_are_refused(messages: Any) -> None:
    async def test() -> None:
        for stream in (False, True):
            assert (await refused(CHAT, json={"messages": messages, "stream": stream}))["param"] == "messages"

    run(test)


def test_a_template_error_carries_the_templates_own_words() -> None:
    async def test() -> None:
        error = await refused(CHAT, json={"messages": [{"role": "tool", "content": "x"}]})
        assert error["code"] == "template_error" and "unknown role 'tool'" in error["message"]

    run(test)


@pytest.mark.parametrize("path", [CHAT, TEXT])
def test_a_missing_prompt_is_named(path: str) -> None:
    async def test() -> None:
        (name,) = GOOD[path]
        assert (await refused(path, json={}))["param"] == name

    run(test)


DEEP = b"[" * 10_000 + b"]" * 10_000
BODIES: list[tuple[bytes, str | None]] = [
    (b"", None),
    (b"{", None),
    (b'{"prompt": "hi"', None),
    (b'{"prompt": "hi"} x', None),
    (b'{"prompt": "hi",}', None),
    (b"[]", None),
    (b"true", None),
    (b"null", None),
    (b"123", None),
    (b'"hi"', None),
    (DEEP, None),
    (b'{"prompt": "hi", "x": ' + DEEP + b"}", None),
    (b'{"prompt": "hi", "x": ' + b"[" * 150 + b"]" * 150 + b"}", "x"),
    (b'{"prompt": "hi", "x": ' + b'{"a":' * 150 + b"1" + b"}" * 150 + b"}", "x"),
    (b'{"prompt": "hi", "temperature": NaN}', "temperature"),
    (b'{"prompt": "hi", "temperature": -Infinity}', "temperature"),
    (b'{"prompt": "hi", "temperature": 1e999}', "temperature"),
    (b'{"prompt": "hi", "seed": ' + b"1" * 5000 + b"}", None),
    (b'{"prompt": "hi", "prompt": "ho"}', "prompt"),
    (b'{"prompt": "hi", "x": {"a": 1, "a": 2}}', "a"),
    (b'\xef\xbb\xbf{"prompt": "hi"}', None),
    (b'{"prompt": "\xff\xfe"}', None),
    ('{"prompt": "hi"}'.encode("utf-16"), None),
    (b'{"prompt": "\xed\xa0\x80"}', None),
    (b'{"prompt": "\\udc00"}', "prompt"),
    (b'{"prompt": "hi", "model": "\\ud800"}', "model"),
    (b'{"prompt": "hi", "stop": ["\\ud800"]}', "stop"),
    (b'{"prompt": "hi", "user": {"\\ud800": 1}}', "user"),
    (b'{"prompt": "hi", "\\ud800": 1}', "?"),
    (b"\x00", None),
    (b"\x1f\x8b\x08\x00", None),
]


@pytest.mark.parametrize(("body", "param"), BODIES, ids=lambda value: repr(value)[:40])
def test_a_body_that_is_no_clean_json_object_is_refused(body: bytes, param: str | None) -> None:
    async def test() -> None:
        error = await refused(TEXT, content=body, headers={"Content-Type": "application/json"})
        assert error["param"] == param

    run(test)


def test_a_whole_pair_of_surrogates_is_a_character() -> None:
    async def test() -> None:
        engine = FakeEngine()
        async with client_of(create_app(engine)) as client:
            headers = {"Content-Type": "application/json"}
            reply = await client.post(TEXT, content=b'{"prompt": "\\ud83e\\udee0"}', headers=headers)
        assert reply.status_code == 200
        assert engine.tokenizer.decode(engine.asked[0].prompt_ids) == "🫠"

    run(test)


@pytest.mark.parametrize(
    "kind", [None, "", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "application/jsonx"]
)
def test_another_content_type_is_415(kind: str | None) -> None:
    async def test() -> None:
        headers = {} if kind is None else {"Content-Type": kind}
        await refused(TEXT, 415, content=b'{"prompt": "hi"}', headers=headers)

    run(test)


@pytest.mark.parametrize("kind", ["application/json", "application/json; charset=utf-8", "Application/vnd.x+JSON"])
def test_every_json_content_type_passes(kind: str) -> None:
    async def test() -> None:
        async with client_of(create_app(FakeEngine())) as client:
            reply = await client.post(TEXT, content=b'{"prompt": "hi"}', headers={"Content-Type": kind})
        assert reply.status_code == 200

    run(test)


@pytest.mark.parametrize("path", [CHAT, TEXT])
def test_an_unknown_model_is_404(path: str) -> None:
    async def test() -> None:
        error = await refused(path, 404, json={**GOOD[path], "model": "gpt-" + "9" * 100_000})
        assert error["code"] == "model_not_found" and error["param"] == "model"

    run(test)


def test_an_unknown_route_is_404_and_a_wrong_method_405_in_the_same_shape() -> None:
    async def test() -> None:
        async with client_of(create_app(FakeEngine())) as client:
            check_error(await client.get("/v1/nothing"), 404)
            check_error(await client.get("/v1/models/other"), 404)
            reply = await client.get(TEXT)
            check_error(reply, 405)
            assert reply.headers["allow"] == "POST"

    run(test)


def test_a_body_over_the_limit_is_413_whether_announced_or_not() -> None:
    async def test() -> None:
        taken = 0

        async def endless() -> Any:
            nonlocal taken
            while True:
                taken += 1
                yield b" " * 1000

        engine = FakeEngine()
        async with client_of(create_app(engine, max_body_bytes=10_000)) as client:
            headers = {"Content-Type": "application/json"}
            check_error(await client.post(TEXT, content=endless(), headers=headers), 413)
            assert taken == 11  # read no further than needed
            check_error(await client.post(TEXT, json={"prompt": "a" * 10_000}), 413)
            taken = 0
            check_error(await client.post(TEXT, content=endless(), headers={**headers, "Content-Length": "10001"}), 413)
            assert taken == 0
            assert (await client.post(TEXT, json={"prompt": "hi"})).status_code == 200

    run(test)
