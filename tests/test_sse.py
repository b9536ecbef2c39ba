"""The bytes of a stream on a real socket: framing, headers, pings, errors inside the stream."""

import asyncio
import json
from typing import Any

import pytest
from starlette.types import Message

from fairstep.serving.app import create_app
from fairstep.serving.sse import event
from fakes_serving import FakeEngine, events_of, run
from raw_http import open_raw, read_head, read_part, read_rest, serving

CHAT = "/v1/chat/completions"
HI = {"messages": [{"role": "user", "content": "hi"}], "stream": True}
ALWAYS = 1e-6  # a silence that is over at once
NEVER = 1e6


def test_an_event_is_one_line_of_json_after_data_and_a_space() -> None:
    assert event({"a": "x\ny"}) == b'data: {"a":"x\\ny"}\n\n'


@pytest.mark.parametrize("mark", ["\n", "\r", "\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\u2029"])
def test_no_character_can_break_the_line_of_an_event(mark: str) -> None:
    line, *rest = event({"a": f"x{mark}y"}).decode().splitlines()
    assert rest == [""] and json.loads(line.removeprefix("data: ")) == {"a": f"x{mark}y"}


def test_the_raw_bytes_of_a_stream() -> None:
    async def test() -> None:
        async with serving(create_app(FakeEngine(["a🫠", "é"]))) as server:
            reader, writer = await open_raw(server, HI)
            status, headers = await read_head(reader)
            assert status == 200
            assert headers["content-type"] == "text/event-stream; charset=utf-8"
            assert headers["cache-control"] == "no-cache" and headers["x-accel-buffering"] == "no"
            assert headers["transfer-encoding"] == "chunked" and "content-length" not in headers
            body = await read_rest(reader)
            writer.close()
        assert body.endswith(b"}\n\ndata: [DONE]\n\n") and b"\r" not in body
        *events, _ = events_of(body.decode())
        texts = [json.loads(data)["choices"][0]["delta"].get("content", "") for data in events]
        assert "".join(texts) == "a🫠é" and "🫠".encode() in body

    run(test)


def test_nothing_is_sent_before_the_first_token_and_each_token_as_it_comes() -> None:
    async def test() -> None:
        engine = FakeEngine(held=True)
        async with serving(create_app(engine, ping_seconds=NEVER)) as server:
            reader, writer = await open_raw(server, HI)
            await engine.until(lambda: len(engine.asked) == 1)
            (asked,) = engine.asked
            head = asyncio.create_task(read_head(reader))
            async with serving(create_app(FakeEngine())) as other:  # a whole answer of another server takes long enough
                _, busy = await open_raw(other, HI)
                busy.close()
            assert not head.done()
            engine.say(asked, "one")
            assert (await head)[0] == 200
            first = await read_part(reader)
            assert b'"role":"assistant"' in first and b"one" in first
            engine.say(asked, "two")
            assert b"two" in await read_part(reader)
            engine.end(asked, "length")
            rest = await read_rest(reader)
            assert b'"finish_reason":"length"' in rest and rest.endswith(b"data: [DONE]\n\n")
            writer.close()

    run(test)


def test_a_silent_stream_is_kept_alive_with_comments_before_and_between_tokens() -> None:
    async def test() -> None:
        engine = FakeEngine(held=True)
        async with serving(create_app(engine, ping_seconds=ALWAYS)) as server:
            reader, writer = await open_raw(server, HI)
            assert (await read_head(reader))[0] == 200
            assert await read_part(reader) == b": ping\n\n"
            engine.say(engine.asked[0], "one")
            while b"one" not in await read_part(reader):
                pass
            assert await read_part(reader) == b": ping\n\n"
            engine.end(engine.asked[0])
            rest = await read_rest(reader)
            assert rest.endswith(b"data: [DONE]\n\n")
            writer.close()

    run(test)


@pytest.mark.parametrize(("ping_seconds", "tokens"), [(ALWAYS, 0), (NEVER, 1)])
def test_an_error_after_the_200_is_an_event_and_the_stream_still_ends(ping_seconds: float, tokens: int) -> None:
    async def test() -> None:
        engine = FakeEngine(held=True)
        async with serving(create_app(engine, ping_seconds=ping_seconds)) as server:
            reader, writer = await open_raw(server, HI)
            await engine.until(lambda: len(engine.asked) == 1)
            for _ in range(tokens):
                engine.say(engine.asked[0], "one")
            assert (await read_head(reader))[0] == 200
            engine.end(engine.asked[0], "error", error="out of memory")
            *_, error, done = events_of((await read_rest(reader)).decode())
            writer.close()
        assert done == "[DONE]"
        assert set(json.loads(error)["error"]) == {"message", "type", "param", "code"}
        assert json.loads(error)["error"]["message"] == "out of memory"

    run(test)


def test_an_unforeseen_exception_inside_a_stream_is_logged_and_told_without_its_text(caplog: Any) -> None:
    class Broken(FakeEngine):
        def end(self, asked: Any, reason: str | None = None, **more: Any) -> None:
            super().end(asked, "stop" if reason is None else reason, stop_reason=object(), **more)  # no JSON value

    async def test() -> None:
        async with serving(create_app(Broken())) as server:
            reader, writer = await open_raw(server, HI)
            assert (await read_head(reader))[0] == 200
            *_, error, done = events_of((await read_rest(reader)).decode())
            writer.close()
        assert done == "[DONE]" and json.loads(error)["error"]["code"] == "internal_error"

    run(test)
    assert [record.levelname for record in caplog.records if record.name.startswith("fairstep")] == ["ERROR"]


def test_one_failed_prompt_fails_the_reply_and_cancels_the_others() -> None:
    async def test() -> None:
        engine = FakeEngine(held=True)
        async with serving(create_app(engine)) as server:
            reader, writer = await open_raw(server, {"prompt": ["a", "b"], "stream": True}, "/v1/completions")
            await engine.until(lambda: len(engine.asked) == 2)
            first, second = engine.asked
            engine.say(second, "text")
            assert (await read_head(reader))[0] == 200
            engine.end(second, "error", error="failed")
            assert b'"failed"' in await read_rest(reader)
            writer.close()
        assert engine.cancelled == [first.stream.request_id]

    run(test)


def test_a_connection_serves_another_request_after_a_stream() -> None:
    async def test() -> None:
        async with serving(create_app(FakeEngine())) as server:
            reader, writer = await open_raw(server, HI)
            for _ in range(2):
                assert (await read_head(reader))[0] == 200
                assert (await read_rest(reader)).endswith(b"data: [DONE]\n\n")
                data = json.dumps(HI).encode()
                writer.write(f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n".encode())
                writer.write(f"Content-Length: {len(data)}\r\n\r\n".encode() + data)
            writer.close()

    run(test)


def test_a_server_that_speaks_asgi_2_4_is_watched_too() -> None:
    """Such a server tells of a disconnect only through `receive`, which Starlette then does not read."""

    async def test() -> None:
        engine = FakeEngine(held=True)
        app = create_app(engine, ping_seconds=NEVER)
        body = json.dumps(HI).encode()
        gone = asyncio.Event()
        incoming = [{"type": "http.request", "body": body, "more_body": False}]
        sent: list[Message] = []

        async def receive() -> Message:
            if incoming:
                return incoming.pop()
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            sent.append(message)

        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.4"},
            "http_version": "1.1",
            "method": "POST",
            "path": CHAT,
            "raw_path": CHAT.encode(),
            "root_path": "",
            "query_string": b"",
            "headers": [(b"content-type", b"application/json")],
            "scheme": "http",
            "server": ("x", 80),
        }
        serving_it = asyncio.create_task(app(scope, receive, send))
        await engine.until(lambda: len(engine.asked) == 1)
        gone.set()
        await serving_it
        assert engine.cancelled == [engine.asked[0].stream.request_id]

    run(test)
