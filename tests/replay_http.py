"""For replays of public reports: a whole engine and its application over a runner without torch, asked both ways."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
from msgspec.structs import replace

from fairstep import AsyncEngine
from fairstep.clock import MonotonicClock
from fairstep.config import EngineConfig
from fairstep.door import Ready
from fairstep.serving.app import create_app
from fairstep.stepping.cost import StepModel
from fairstep.stepping.loop import StepLoop
from fairstep.worker import ProgressCall, Worker
from fakes_serving import client_of, events_of
from fakes_text import FakeTokenizer
from fakes_worker import ready, settings
from raw_http import Server, open_raw, read_head, read_rest

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
HI = [{"role": "user", "content": "hi"}]
ASKS: dict[str, dict[str, Any]] = {CHAT: {"messages": HI}, TEXT: {"prompt": "hi"}}
Json = dict[str, Any]


@asynccontextmanager
async def engine_over(runner: Any, tokenizer: Any = None, **changes: int) -> AsyncIterator[AsyncEngine]:
    """An engine whose steps `runner` computes; `changes` are to fakes_worker's settings."""
    own, speech = settings(**changes), tokenizer or FakeTokenizer()

    def build(model: str, config: EngineConfig, progress: ProgressCall) -> tuple[Worker, Ready]:
        worker = Worker(StepLoop(own, StepModel()), runner, MonotonicClock())
        context = min(own.context, own.pool_tokens)
        return worker, replace(ready(own), vocab_size=speech.vocab_size, eos_ids=(speech.eos_id,), context=context)

    async with AsyncEngine("fake", in_process=True, tokenizer=speech, build_worker=build) as engine:
        yield engine
        engine.check()


@asynccontextmanager
async def client_over(runner: Any, tokenizer: Any = None, **changes: int) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the application of such an engine."""
    async with engine_over(runner, tokenizer, **changes) as engine, client_of(create_app(engine)) as client:
        yield client


async def until_idle(engine: AsyncEngine) -> None:
    """Wait until nobody runs or waits and no page is held."""
    while (live := engine.live()).running or live.waiting or live.kv_usage:
        await asyncio.sleep(0.001)


@dataclass(frozen=True)
class Streamed:
    """The choices and the usage of a stream's chunks, in order."""

    chunks: list[Json]

    @property
    def choices(self) -> list[Json]:
        return [choice for chunk in self.chunks for choice in chunk["choices"]]

    def of(self, index: int) -> list[Json]:
        return [choice for choice in self.choices if choice["index"] == index]

    def text(self, index: int = 0) -> str:
        return "".join(map(text_of, self.of(index)))

    def joined(self, name: str, index: int = 0) -> list[Any]:
        """A list that comes in pieces, such as token_ids."""
        return [item for choice in self.of(index) for item in choice.get(name) or ()]

    def reasons(self, index: int = 0) -> list[str]:
        return [choice["finish_reason"] for choice in self.of(index) if choice["finish_reason"] is not None]


def text_of(choice: Mapping[str, Any]) -> str:
    """The text of a choice, of either kind of completion, streamed or whole."""
    if "text" in choice:
        return str(choice["text"])
    return str((choice.get("delta") or choice.get("message") or {}).get("content") or "")


def chunks_of(events: Iterable[str]) -> Streamed:
    *chunks, done = events
    assert done == "[DONE]"
    return Streamed([json.loads(chunk) for chunk in chunks])


async def whole(client: httpx.AsyncClient, path: str = TEXT, **fields: Any) -> Json:
    """The reply to a body without a stream."""
    reply = await client.post(path, json={**ASKS[path], **fields})
    assert reply.status_code == 200, reply.text
    answer: Json = reply.json()
    return answer


async def streamed(client: httpx.AsyncClient, path: str = TEXT, **fields: Any) -> Streamed:
    """The same, streamed."""
    reply = await client.post(path, json={**ASKS[path], **fields, "stream": True})
    assert reply.status_code == 200, reply.text
    return chunks_of(events_of(reply.content.decode()))


async def asked_both_ways(client: httpx.AsyncClient, path: str = TEXT, **fields: Any) -> tuple[Json, Streamed]:
    """The first choice of the whole reply, and the stream; both say the same text and end the same way."""
    (choice, *_), stream = (await whole(client, path, **fields))["choices"], await streamed(client, path, **fields)
    assert stream.text() == text_of(choice)
    assert stream.reasons() == [choice["finish_reason"]]
    return choice, stream


async def over_a_socket(server: Server, path: str = TEXT, **fields: Any) -> Streamed:
    """A stream read as bytes from a real socket: each event by itself is valid UTF-8."""
    reader, writer = await open_raw(server, {**ASKS[path], **fields, "stream": True}, path)
    status, _ = await read_head(reader)
    assert status == 200
    body = await read_rest(reader)
    writer.close()
    events = [event.decode() for event in body.removesuffix(b"\n\n").split(b"\n\n")]
    return chunks_of(event.removeprefix("data: ") for event in events if event != ": ping")
