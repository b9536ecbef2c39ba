"""Reports about input that broke an engine, replayed against a running one: a 4xx, and the next answer is the same.

test_bad_input.py tries every field; here are the bodies of the reports, one after another on one engine.
"""

import asyncio
import json
import resource
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import httpx
import openai
import pytest

from fairstep.serving.app import create_app
from fairstep.text.fast_codec import FastCodec
from fairstep.text.tokenizer import Tokenizer
from fakes_serving import FakeEngine, client_of, run
from fakes_text import VOCAB
from raw_http import serving, serving_in_thread
from replay_http import ASKS, CHAT, HI, TEXT, client_over, text_of, whole
from replay_memory import MemoryRunner, text_alone
from replay_tokens import fast
from trained_vocabularies import byte_level

JSON = {"Content-Type": "application/json"}
MAX_REPLY = 16 * 1024
PROMPT = list(b"control")
CONTROL: dict[str, Any] = {"prompt": PROMPT, "max_tokens": 12, "temperature": 0, "ignore_eos": True}
Body = tuple[str, Any]  # a path and a JSON value, or bytes as they are


def user(content: Any, role: str = "user") -> dict[str, Any]:
    return {"messages": [{"role": role, "content": content}]}


def text(prompt: Any, **more: Any) -> Body:
    return TEXT, {"prompt": prompt, **more}


def both(**fields: Any) -> list[Body]:
    return [(path, {**ask, **fields}) for path, ask in ASKS.items()]


EMPTY: list[Body] = [
    *(text(prompt) for prompt in ("", [""], [], [[]], [[1], []], ["a", ""])),
    *(text(prompt, add_special_tokens=False) for prompt in ("", [""])),
    (CHAT, {"messages": []}),
    (CHAT, user(None)),
    (CHAT, {"messages": None}),
]
BIASES: list[Body] = [
    body
    for bias in ({"191222": -100}, {"-1": 1}, {"abc": 1}, {"5": 1e9}, {"5": float("nan")}, {str(VOCAB): 1})
    for body in both(logit_bias=bias)
]
IDS: list[Body] = [
    *(text(prompt) for prompt in ([999999], [-1], [VOCAB], [2**63], [-(2**63)], [1.0], [1.5], [[[1]]], [1, "a"])),
    *(text(prompt) for prompt in (["a", 1], [[1], "a"], [None], [True], [[1], [999999]])),
    *(("/detokenize", {"tokens": tokens}) for tokens in ([-1], [VOCAB], [2**63], [1.5], ["a"], [[1]])),
    *both(stop_token_ids=[999999]),
    *both(allowed_token_ids=[999999]),
]
NUMBERS: list[Body] = [
    *both(temperature=-1),
    *both(temperature=101),
    *both(temperature=float("nan")),
    *both(top_p=0),
    *both(top_p=1.0001),
    *both(top_p=-1e-9),
    *both(top_k=-2),
    *both(top_k=10**10),
]
DEEP = b"[" * 10_000 + b"]" * 10_000
WHOLE = json.dumps({"messages": HI}).encode()
SHAPES: list[Body] = [
    *((path, value) for path in (CHAT, TEXT, "/tokenize", "/detokenize") for value in ([], True, None, 123, "x")),
    *((CHAT, {"messages": value}) for value in (True, 123, "hi", {}, [1], ["hi"], [[]], [None])),
    *((CHAT, {"messages": HI, "tools": value}) for value in (True, 5, "x", {}, [{}], [5])),
    (CHAT, user("hi", role="SYSTEM")),
    (CHAT, user("hi", role="nobody")),
    (CHAT, WHOLE[:-1]),
    (CHAT, b"\xef\xbb\xbf" + WHOLE),
    (CHAT, b'{"messages": [], ' + WHOLE[1:]),
    (CHAT, b'{"messages": ' + DEEP + b"}"),
    (CHAT, DEEP),
    (CHAT, b'{"messages": [{"role": "user", "content": "\xff\xfe"}]}'),
    (CHAT, WHOLE.decode().encode("utf-16")),
]
FORMATS: list[Body] = [
    body
    for value in (
        "json",
        {},
        {"type": "notatype"},
        {"type": "json_schema"},
        {"type": "json_schema", "json_schema": {}},
        {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "notatype"}}},
        {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "string", "pattern": "^a\\!$"}}},
        {"type": "json_schema", "json_schema": {"name": "x", "schema": {"$ref": "#/x"}}},
        {"type": "regex", "regex": "("},
    )
    for body in both(response_format=value)
] + [*both(guided_regex="("), *both(structured_outputs={"regex": "("}), *both(guided_grammar="root ::=")]


async def check_control(client: httpx.AsyncClient) -> None:
    assert text_of((await whole(client, **CONTROL))["choices"][0]) == text_alone(PROMPT, 12)


async def send(client: httpx.AsyncClient, body: Body) -> httpx.Response:
    path, value = body
    content = value if isinstance(value, bytes) else json.dumps(value).encode()
    return await client.post(path, content=content, headers=JSON)


@pytest.mark.parametrize(
    "bodies",
    [
        pytest.param(EMPTY, id="vllm#7283, vllm#7632, vllm#7746, vllm#1130: an empty prompt"),
        pytest.param(BIASES, id="vllm#16529, vllm#6866, sglang#7670: logit_bias beyond the vocabulary"),
        pytest.param(IDS, id="vllm#9634, vllm#35231, vllm#51795: prompt ids beyond the vocabulary"),
        pytest.param(NUMBERS, id="vllm#1623, lmms-eval#1265: numbers out of range"),
        pytest.param(SHAPES, id="vllm#42961, vllm#54026, vllm#17664, vllm#16774: another shape of JSON"),
        pytest.param(FORMATS, id="vllm#35438, vllm#17248, llama.cpp#19051: formats that cannot be kept to"),
    ],
)
def test_it_is_refused_and_the_engine_goes_on(bodies: list[Body]) -> None:
    async def test() -> None:
        async with client_over(MemoryRunner()) as client:
            await check_control(client)
            for body in bodies:
                reply = await send(client, body)
                assert reply.status_code in (400, 422), (body, reply.text[:300])
                assert reply.json()["error"]["message"] and len(reply.content) < MAX_REPLY
                await check_control(client)

    run(test)


@pytest.mark.parametrize(
    "fields",
    [
        {"temperature": 1e-12},
        {"temperature": 2},
        {"temperature": 100},
        {"temperature": None},
        {"top_p": 1e-9},
        {"top_p": 1},
        {"top_k": -1},
        {"top_k": 0},
        {"top_k": 1},
        {"top_k": 10**9},
        {"logit_bias": {}},
        {"logit_bias": {"5": -100}},
        {"response_format": {"type": "text"}},
        {"max_tokens": None},
    ],
    ids=str,
)
def test_what_only_looks_wrong_is_answered(fields: dict[str, Any]) -> None:
    """vllm#1623, lmms-eval#1265, vllm#16529 and vllm#6707: the values beside those that are refused."""

    async def test() -> None:
        async with client_over(MemoryRunner()) as client:
            for path in (CHAT, TEXT):
                await whole(client, path, **fields)

    run(test)


def test_a_conversation_that_renders_to_nothing_is_refused() -> None:
    """vllm#7283: a prompt without any token, from a tokenizer without BOS."""
    backend = byte_level()
    backend.post_processor = None
    template = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
    tokenizer = Tokenizer(FastCodec(backend), {"eos_token": "<eos>"}, template)

    async def test() -> None:
        async with client_over(MemoryRunner(), tokenizer) as client:
            for content in ("", [], [{"type": "text", "text": ""}]):
                reply = await client.post(CHAT, json=user(content))
                assert reply.status_code == 400 and reply.json()["error"]["param"] == "messages", reply.text
            assert (await client.post(CHAT, json=user("x"))).status_code == 200

    run(test)


def test_a_small_request_never_gets_a_long_error() -> None:
    """vllm#49239: 114 MB of error for 5,000 malformed parts."""
    parts: list[Any] = [{"oops": 1}, {"type": "text"}, {"type": "image_url", "image_url": {"url": "x"}}, 5, None, []]

    async def test() -> None:
        async with client_of(create_app(FakeEngine())) as client:
            for part in parts:
                for body in (user([part] * 5000), {"messages": [part] * 5000}):
                    reply = await client.post(CHAT, json=body)
                    assert reply.status_code == 400 and len(reply.content) < MAX_REPLY

    run(test)


GEMMA = (
    "{{ bos_token }}"
    "{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    "{% for m in messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}"
    "{{ m['role'] + ': ' + m['content'] }}{% endfor %}"
)


@pytest.mark.parametrize(
    ("roles", "words"),
    [
        (["system", "user"], "System role not supported"),
        (["user", "user"], "Conversation roles must alternate"),
        (["SYSTEM", "user"], "role must be one of"),
        (["user", "wizard"], "role must be one of"),
    ],
)
def test_a_template_that_refuses_is_quoted(roles: list[str], words: str) -> None:
    """sglang#892 (500), mistral.rs#506 (501), vllm#53071."""

    async def test() -> None:
        async with client_over(MemoryRunner(), fast(GEMMA)) as client:
            for stream in (False, True):
                messages = [{"role": role, "content": "hi"} for role in roles]
                reply = await client.post(CHAT, json={"messages": messages, "stream": stream})
                assert reply.status_code == 400 and words in reply.json()["error"]["message"], reply.text
            assert (await client.post(CHAT, json=user("hi"))).status_code == 200

    run(test)


def test_the_openai_client_finds_message_and_status() -> None:
    """vllm#12886: a flat error object, which clients could not read."""
    with (
        serving_in_thread(create_app(FakeEngine())) as url,
        openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client,
    ):
        with pytest.raises(openai.BadRequestError) as refused:
            client.chat.completions.create(model="fake", messages=HI, temperature=-1)  # type: ignore[arg-type]
        assert refused.value.status_code == 400 and "temperature" in refused.value.message
        assert (refused.value.param, refused.value.type) == ("temperature", "invalid_request_error")


async def flood(port: int, parts: AsyncIterator[bytes]) -> bytes:
    """Send as much as is taken; the reply's first line."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    with suppress(ConnectionError):
        async for part in parts:
            writer.write(part)
            await writer.drain()
    try:
        line = (await reader.read(1000)).split(b"\r\n")[0]
    except ConnectionError:
        line = b""  # a reset may overtake the reply
    writer.transport.abort()
    return line


async def head(*lines: bytes) -> AsyncIterator[bytes]:
    yield b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    for line in lines:
        yield line


async def long_header() -> AsyncIterator[bytes]:
    async for part in head(b"X-Long: ", *[b"a" * 100_000] * 100):
        yield part


async def many_headers() -> AsyncIterator[bytes]:
    async for part in head(
        *(b"".join(b"X-%d: a\r\n" % (first + n) for n in range(1000)) for first in range(0, 100_000, 1000))
    ):
        yield part


async def long_body() -> AsyncIterator[bytes]:
    async for part in head(b"Content-Length: 200000000\r\n\r\n", *[b" " * 1_000_000] * 200):
        yield part


async def long_chunks() -> AsyncIterator[bytes]:
    async for part in head(b"Transfer-Encoding: chunked\r\n\r\n", *[b"186A0\r\n" + b" " * 100_000 + b"\r\n"] * 2000):
        yield part


@pytest.mark.parametrize(
    ("parts", "refusals"),
    [
        (long_header, (b"400", b"431")),
        (many_headers, (b"400", b"431")),
        (long_body, (b"413",)),
        (long_chunks, (b"413",)),
    ],
)
def test_floods_are_refused_and_cost_no_memory(parts: Any, refusals: tuple[bytes, ...]) -> None:
    """CVE-2025-48956, HabanaAI/vllm-fork#2173: no limit on headers."""

    async def test() -> None:
        async with serving(create_app(FakeEngine())) as server:
            port = server.listener.getsockname()[1]
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            line = await flood(port, parts())
            assert not line or line.split(b" ")[1] in refusals, line
            assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 60_000, "KiB kept of it"
            async with httpx.AsyncClient(base_url=server.url) as client:
                assert (await client.post(TEXT, json=ASKS[TEXT])).status_code == 200

    run(test)
