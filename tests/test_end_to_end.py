"""The real model over real sockets: who joins late waits for no one; who leaves costs no one a token."""

import asyncio
import json
import os
import random
import resource
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest
from openai import AsyncOpenAI, BadRequestError, OpenAI

from fairstep import EngineConfig
from live_server import LiveServer
from reference import assert_all_same, greedy, reference_model

pytestmark = pytest.mark.real

EIGHT = [
    "The capital of France is",
    "Once upon a time",
    "Water boils at",
    "The three primary colours are",
    "A short poem about rain:",
    "def fibonacci(n):",
    "My favourite food is",
    "In 1969, humans",
]
DECODED = 48
CUTS = 100


@pytest.fixture(scope="module")
def server() -> Iterator[LiveServer]:
    with LiveServer("smollm2", EngineConfig(dtype="float32")) as server:
        yield server


@pytest.fixture
def client(server: LiveServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=120) as client:
        yield client


def body(prompt: str, **more: Any) -> dict[str, Any]:
    return {"prompt": prompt, "temperature": 0, "max_tokens": DECODED, "ignore_eos": True, **more}


async def stream(client: httpx.AsyncClient, sent: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
    asked = {**sent, "stream": True, "return_token_ids": True}
    async with client.stream("POST", "/v1/completions", json=asked) as response:
        assert response.status_code == 200, await response.aread()
        async for line in response.aiter_lines():
            if line.startswith("data: {"):
                yield json.loads(line.removeprefix("data: "))["choices"][0]


async def eight_and_one_late(server: LiveServer) -> tuple[list[list[int]], list[str]]:
    """The eight's token ids, and the order of events: first tokens and ends by name."""
    events: list[str] = []
    ids: list[list[int]] = [[] for _ in EIGHT]
    all_started = asyncio.Event()

    async def one(client: httpx.AsyncClient, place: int) -> None:
        async for choice in stream(client, body(EIGHT[place])):
            ids[place] += choice["token_ids"] or []
            if all(ids):
                all_started.set()
        events.append(f"end {place}")

    async def late(client: httpx.AsyncClient) -> None:
        await all_started.wait()
        async for choice in stream(
            client, body("Please list the planets of the solar system in order: ", max_tokens=4)
        ):
            if choice["text"]:
                events.append("late")

    async with httpx.AsyncClient(base_url=server.url, timeout=120) as client:
        await asyncio.gather(late(client), *(one(client, place) for place in range(len(EIGHT))))
    return ids, events


def test_a_late_request_gets_its_first_token_before_any_of_eight_ends_and_they_lose_none(server: LiveServer) -> None:
    ids, events = asyncio.run(eight_and_one_late(server))
    assert events.index("late") < min(n for n, event in enumerate(events) if event.startswith("end"))
    steps = server.call(lambda: server.engine.steps)
    mixed = [s for s in steps if s.decode_tokens == len(EIGHT) and s.prompt_tokens and len(s.slices) == len(EIGHT) + 1]
    assert mixed, "no step held the late prompt's tokens and the eight decodes"
    late = {piece.seq for step in mixed for piece in step.slices if not piece.decode}
    assert len(late) == 1
    tokenizer = server.engine.tokenizer
    model = reference_model("smollm2")
    controls = [greedy(model, tokenizer.encode(prompt), DECODED) for prompt in EIGHT]
    assert_all_same([(own, *control) for own, control in zip(ids, controls, strict=True)])


def settled(server: LiveServer) -> tuple[int, int]:
    """Descriptors and tasks once nothing runs."""

    async def idle() -> int:
        while True:
            live = server.engine.live()
            if not live.running and not live.waiting and not live.kv_usage:
                break
            await asyncio.sleep(0.02)
        for _ in range(200):
            tasks = len(asyncio.all_tasks())
            if tasks <= 4:
                break
            await asyncio.sleep(0.02)
        return tasks

    tasks = server.wait_for(idle())
    return len(os.listdir("/proc/self/fd")), tasks


async def cut_one(port: int, sent: dict[str, Any], path: str, seconds: float) -> None:
    """Send a request, go away after a while, read nothing."""
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    content = json.dumps(sent).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    )
    writer.write(head.encode() + content)
    await writer.drain()
    await asyncio.sleep(seconds)
    writer.transport.abort()


async def cut_many(port: int) -> None:
    draw = random.Random(7)
    each = []
    for n in range(2 * CUTS):
        words = " ".join(str(draw.randrange(1000)) for _ in range(draw.randrange(2, 120)))
        sent = body(f"{n} {words}", max_tokens=400, stream=n % 2 == 0)
        each.append(cut_one(port, sent, "/v1/completions", draw.uniform(0.0, 1.5)))
    await asyncio.gather(*each)


def test_two_hundred_requests_cut_at_random_moments_leave_nothing(server: LiveServer, client: httpx.Client) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 4096)), hard))
    sent = body("The capital of France is", max_tokens=8)
    before = client.post("/v1/completions", json=sent).json()["choices"][0]["text"]
    baseline = settled(server)
    asyncio.run(cut_many(server.port))
    after = settled(server)
    assert after[0] <= baseline[0] and after[1] <= baseline[1], f"descriptors and tasks {baseline} became {after}"
    assert client.post("/v1/completions", json=sent).json()["choices"][0]["text"] == before
    server.call(server.engine.check)
    gauges = client.get("/metrics").text
    for name in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc"):
        (line,) = [line for line in gauges.splitlines() if line.startswith(f"fairstep:{name}{{")]
        assert float(line.split()[-1]) == 0, line


def test_chat_answers_and_says_what_it_used(client: httpx.Client) -> None:
    messages = [{"role": "user", "content": "What is the capital of France? Answer in one word."}]
    reply = client.post("/v1/chat/completions", json={"messages": messages, "temperature": 0, "max_tokens": 16})
    answer = reply.json()
    assert reply.status_code == 200 and "Paris" in answer["choices"][0]["message"]["content"]
    assert answer["usage"]["total_tokens"] == answer["usage"]["prompt_tokens"] + answer["usage"]["completion_tokens"]


BAD: list[tuple[str, dict[str, Any]]] = [
    ("prompt", {"prompt": ""}),
    ("prompt", {"prompt": []}),
    ("prompt", {"prompt": "word " * 9_000}),
    ("prompt", {"prompt": [10**6]}),
    ("prompt", {"prompt": [-1]}),
    ("prompt", {"prompt": "\ud800"}),
    ("temperature", {"temperature": float("nan")}),
    ("temperature", {"temperature": -1}),
    ("top_p", {"top_p": 0}),
    ("top_p", {"top_p": 1.1}),
    ("max_tokens", {"max_tokens": 0}),
    ("max_tokens", {"max_tokens": -1}),
    ("max_tokens", {"max_tokens": 1.5}),
    ("max_tokens", {"max_tokens": "ten"}),
    ("max_tokens", {"max_tokens": 9_000}),
    ("stop", {"stop": ""}),
    ("n", {"n": 0}),
    ("stop_token_ids", {"stop_token_ids": [10**6]}),
]
JSON = {"Content-Type": "application/json"}


@pytest.mark.parametrize(("param", "fields"), BAD, ids=lambda value: json.dumps(value)[:40])
def test_bad_input_is_refused_by_name(client: httpx.Client, param: str, fields: dict[str, Any]) -> None:
    reply = client.post("/v1/completions", content=json.dumps({**body("hi"), **fields}), headers=JSON)
    error = reply.json()["error"]
    assert reply.status_code == 400 and error["message"] and error["type"] == "invalid_request_error"
    assert error["param"] == param


def test_what_is_no_request_at_all_is_refused_and_the_engine_lives(client: httpx.Client) -> None:
    whole = json.dumps(body("hi")).encode()
    for status, path, content, headers in (
        (400, "/v1/completions", whole[:-1], JSON),
        (415, "/v1/completions", whole, {"Content-Type": "text/plain"}),
        (404, "/v1/completions", json.dumps(body("hi", model="gpt-9")).encode(), JSON),
        (413, "/v1/completions", b" " * 50_000_000, JSON),
        (400, "/v1/chat/completions", json.dumps({"messages": []}).encode(), JSON),
        (400, "/v1/chat/completions", json.dumps({"messages": [{"role": "nobody", "content": "x"}]}).encode(), JSON),
    ):
        try:
            reply = client.post(path, content=content, headers=headers)
        except httpx.WriteError:  # a body cut short by the refusal
            assert status == 413
            continue
        assert reply.status_code == status and set(reply.json()["error"]) == {"message", "type", "param", "code"}
    answer = client.post("/v1/completions", json=body("The capital of France is", max_tokens=2))
    assert answer.json()["choices"][0]["text"].startswith(" Paris")


def test_the_openai_package_gets_the_same_answer_every_way(server: LiveServer) -> None:
    messages: list[Any] = [{"role": "user", "content": "Say hello."}]
    asked: dict[str, Any] = {"model": "smollm2", "temperature": 0, "max_tokens": 12}

    async def streamed() -> str:
        async with AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none") as client:
            chunks = await client.chat.completions.create(messages=messages, stream=True, **asked)
            return "".join([chunk.choices[0].delta.content or "" async for chunk in chunks])

    with OpenAI(base_url=f"{server.url}/v1", api_key="none") as client:
        chat = client.chat.completions.create(messages=messages, **asked)
        rendered = server.engine.tokenizer.render(messages)
        text = client.completions.create(prompt=rendered, **asked)
        chunks = client.completions.create(prompt=server.engine.tokenizer.encode(rendered), stream=True, **asked)
        pieces = "".join(chunk.choices[0].text for chunk in chunks)
        with pytest.raises(BadRequestError) as refused:
            client.chat.completions.create(messages=messages, **{**asked, "temperature": -1})
    assert chat.choices[0].message.content == text.choices[0].text == pieces == asyncio.run(streamed())
    assert (chat.usage is not None and chat.usage.completion_tokens == 12) or chat.choices[0].finish_reason == "stop"
    assert refused.value.param == "temperature"
