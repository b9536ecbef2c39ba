"""A client that goes away ends its requests at once, wherever they are; one that stays ends nothing."""

import asyncio
import random
from typing import Any

import pytest
from fastapi import FastAPI, Request
from starlette.requests import ClientDisconnect

from fairstep.request import SamplingParams
from fairstep.serving.app import create_app
from fairstep.serving.disconnect import until_disconnect
from fairstep.serving.fan_in import fan_in
from fakes_serving import FakeEngine, run
from raw_http import Server, open_raw, read_head, read_part, read_rest, serving

HI = {"messages": [{"role": "user", "content": "hi"}]}
CHAT, TEXT = "/v1/chat/completions", "/v1/completions"


def tasks() -> int:
    return len(asyncio.all_tasks())


@pytest.mark.parametrize("tokens", [0, 1])
@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_goes_is_cancelled_before_and_after_the_first_token(stream: bool, tokens: int) -> None:
    async def test() -> None:
        engine = FakeEngine(held=True)
        async with serving(create_app(engine)) as server:
            _, writer = await open_raw(server, {**HI, "stream": stream})
            await engine.until(lambda: len(engine.asked) == 1)
            for _ in range(tokens):
                engine.say(engine.asked[0], "one")
            writer.close()
            await engine.until(lambda: engine.cancelled == [engine.asked[0].stream.request_id])

    run(test)


def test_a_client_that_goes_in_the_middle_of_a_stream_is_cancelled() -> None:
    async def test() -> None:
        engine = FakeEngine(held=True)
        async with serving(create_app(engine)) as server:
            reader, writer = await open_raw(server, {**HI, "stream": True})
            await engine.until(lambda: len(engine.asked) == 1)
            engine.say(engine.asked[0], "one")
            assert (await read_head(reader))[0] == 200
            await read_part(reader)
            writer.transport.abort()  # a reset, not an orderly end
            await engine.until(lambda: len(engine.cancelled) == 1)

    run(test)


def test_a_client_that_goes_without_reading_what_was_sent_is_cancelled() -> None:
    async def test() -> None:
        engine = FakeEngine(held=True)
        async with serving(create_app(engine)) as server:
            reader, writer = await open_raw(server, {**HI, "stream": True})
            await engine.until(lambda: len(engine.asked) == 1)
            engine.say(engine.asked[0], "x" * 50_000_000)  # more than sockets and buffers hold
            assert (await read_head(reader))[0] == 200
            writer.transport.abort()
            await engine.until(lambda: len(engine.cancelled) == 1)

    run(test)


@pytest.mark.parametrize("tokens", [0, 1])
@pytest.mark.parametrize("stream", [False, True])
def test_it_works_behind_a_hosts_middleware(stream: bool, tokens: int, caplog: Any) -> None:
    async def test() -> None:
        engine, host = FakeEngine(held=True), FastAPI()

        @host.middleware("http")
        async def passing(request: Request, call_next: Any) -> Any:
            return await call_next(request)

        host.mount("/llm", create_app(engine))
        async with serving(host) as server:
            before = tasks()
            _, writer = await open_raw(server, {**HI, "stream": stream}, "/llm" + CHAT)
            await engine.until(lambda: len(engine.asked) == 1)
            for _ in range(tokens):
                engine.say(engine.asked[0], "one")
            writer.close()
            await engine.until(lambda: len(engine.cancelled) == 1)
            while tasks() > before:
                await asyncio.sleep(0)

    run(test)
    assert caplog.records == []


@pytest.mark.parametrize("stream", [False, True])
def test_all_prompts_of_a_body_are_cancelled_together(stream: bool) -> None:
    async def test() -> None:
        engine = FakeEngine(held=True)
        async with serving(create_app(engine)) as server:
            _, writer = await open_raw(server, {"prompt": ["a", "b", "c"], "stream": stream}, TEXT)
            await engine.until(lambda: len(engine.asked) == 3)
            engine.end(engine.asked[1])  # this one has its answer
            writer.close()
            await engine.until(lambda: len(engine.cancelled) == 2)
        assert engine.asked[1].stream.request_id not in engine.cancelled

    run(test)


@pytest.mark.parametrize("body", [HI, {**HI, "stream": True}])
def test_a_client_that_goes_while_its_prompt_is_tokenized_submits_nothing(body: dict[str, Any]) -> None:
    async def test() -> None:
        engine = FakeEngine()
        engine.encoding = asyncio.Event()
        async with serving(create_app(engine)) as server:
            before = tasks()
            _, writer = await open_raw(server, body)
            await engine.encoding.wait()
            writer.close()
            while tasks() > before:
                await asyncio.sleep(0)
        assert engine.asked == []

    run(test)


def test_a_client_that_goes_in_the_middle_of_its_body_leaves_nothing(caplog: Any) -> None:
    async def test() -> None:
        engine = FakeEngine()
        async with serving(create_app(engine)) as server:
            before = tasks()
            _, writer = await asyncio.open_connection(*server.listener.getsockname())
            writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n")
            writer.write(b'Content-Length: 100\r\n\r\n{"prompt"')
            while tasks() == before:
                await asyncio.sleep(0)
            writer.close()
            while tasks() > before:
                await asyncio.sleep(0)
        assert engine.asked == []

    run(test)
    assert caplog.records == []


def test_a_cancelled_neighbour_changes_nothing_for_the_others() -> None:
    async def test() -> None:
        engine = FakeEngine(held=True)
        async with serving(create_app(engine)) as server:
            reader, writer = await open_raw(server, {**HI, "stream": True})
            await engine.until(lambda: len(engine.asked) == 1)
            _, going = await open_raw(server, {**HI, "stream": True})
            await engine.until(lambda: len(engine.asked) == 2)
            going.close()
            await engine.until(lambda: len(engine.cancelled) == 1)
            engine.say(engine.asked[0], "one")
            engine.end(engine.asked[0])
            assert (await read_head(reader))[0] == 200
            assert b"one" in await read_part(reader)
            writer.close()
        assert engine.cancelled == [engine.asked[1].stream.request_id]

    run(test)


@pytest.mark.parametrize("stream", [False, True])
def test_answers_that_end_by_themselves_are_never_cancelled(stream: bool) -> None:
    async def test() -> None:
        engine = FakeEngine()
        async with serving(create_app(engine)) as server:
            for _ in range(20):
                reader, writer = await open_raw(server, {**HI, "stream": stream})
                _, headers = await read_head(reader)
                if stream:
                    await read_rest(reader)
                else:
                    await reader.readexactly(int(headers["content-length"]))
                writer.close()
        assert len(engine.asked) == 20 and engine.cancelled == []

    run(test)


def test_after_many_cuts_at_random_moments_no_task_is_left_and_the_server_serves() -> None:
    async def one(server: Server, engine: FakeEngine, chance: random.Random) -> None:
        body = {**HI, "stream": chance.random() < 0.5}
        _, writer = await open_raw(server, body)
        for _ in range(chance.randrange(12)):
            await asyncio.sleep(0)
        if chance.random() < 0.5:
            for asked in engine.asked:
                if asked.stream.request_id not in engine.cancelled:
                    engine.say(asked, "x")
        writer.transport.abort()

    async def test() -> None:
        engine, chance = FakeEngine(held=True), random.Random(7)
        async with serving(create_app(engine)) as server:
            before = tasks()
            for _ in range(10):
                await asyncio.gather(*(one(server, engine, chance) for _ in range(20)))
            while tasks() > before:
                await asyncio.sleep(0)
            assert sorted(engine.cancelled) == sorted(asked.stream.request_id for asked in engine.asked)
            assert len(engine.asked) > 20
            engine.held = False
            reader, writer = await open_raw(server, HI)
            assert (await read_head(reader))[0] == 200
            writer.close()

    run(test)


@pytest.mark.parametrize("stream", [False, True])
def test_a_server_that_ends_tells_who_still_waits(stream: bool) -> None:
    async def test() -> None:
        engine = FakeEngine(held=True)
        async with serving(create_app(engine)) as server:
            server.config.timeout_graceful_shutdown = 0
            reader, writer = await open_raw(server, {**HI, "stream": stream})
            await engine.until(lambda: len(engine.asked) == 1)
            engine.say(engine.asked[0], "one")
            if stream:
                assert (await read_head(reader))[0] == 200
                assert b"one" in await read_part(reader)
            server.should_exit = True
            if not stream:
                assert (await read_head(reader))[0] == 503
            rest = await reader.read()
            writer.close()
            assert b"shutting down" in rest and b"engine_closed" in rest
            assert stream == (b"data: [DONE]" in rest)
            assert len(engine.cancelled) == 1

    run(test)


def test_until_disconnect_gives_the_result_or_raises_what_the_work_raised() -> None:
    async def never() -> Any:
        await asyncio.Future()

    async def five() -> int:
        return 5

    async def wrong() -> int:
        raise KeyError("x")

    async def test() -> None:
        assert await until_disconnect(never, five()) == 5
        with pytest.raises(KeyError):
            await until_disconnect(never, wrong())
        assert tasks() == 1

    run(test)


def test_until_disconnect_waits_for_the_work_to_be_undone() -> None:
    steps: list[str] = []

    async def gone() -> Any:
        steps.append("gone")
        return {"type": "http.disconnect"}

    async def work() -> None:
        try:
            await asyncio.Future()
        finally:
            await asyncio.sleep(0)
            steps.append("undone")

    async def test() -> None:
        with pytest.raises(ClientDisconnect):
            await until_disconnect(gone, work())
        assert steps == ["gone", "undone"] and tasks() == 1

    run(test)


def test_until_disconnect_ends_its_work_when_it_is_cancelled_itself() -> None:
    async def test() -> None:
        begun = asyncio.Event()
        ended = asyncio.Event()

        async def never() -> Any:
            await asyncio.Future()

        async def work() -> None:
            begun.set()
            try:
                await asyncio.Future()
            finally:
                ended.set()

        watched = asyncio.create_task(until_disconnect(never, work()))
        await begun.wait()
        watched.cancel()
        with pytest.raises(asyncio.CancelledError):
            await watched
        assert ended.is_set() and tasks() == 1

    run(test)


def test_closing_a_fan_in_cancels_every_stream() -> None:
    async def test() -> None:
        engine = FakeEngine(held=True)
        streams = [engine.submit([1], SamplingParams(), request_id=str(i)) for i in range(3)]
        items = fan_in(streams, None)
        engine.say(engine.asked[2], "x")
        item = await anext(items)
        assert item is not None and item[0] == 2
        await items.aclose()
        assert sorted(engine.cancelled) == ["0", "1", "2"]

    run(test)
