"""Reports about clients that go away and requests that are cancelled, replayed over real sockets and in the engine."""

import asyncio
import os
import random
from typing import Any

import pytest

from fairstep import AsyncEngine, SamplingParams
from fairstep.serving.app import create_app
from fakes_serving import client_of, run
from fakes_text import FakeTokenizer
from fakes_worker import FakeRunner
from raw_http import Server, open_raw, read_head, read_part, serving
from replay_http import ASKS, CHAT, TEXT, engine_over, over_a_socket, text_of, until_idle, whole
from replay_memory import Gate, MemoryRunner, text_alone

PROMPT = list(b"the prompt of somebody who goes away")
CUT_STREAMS, AT_ONCE = 1000, 20
ROUNDS = 500


async def gauges(engine: AsyncEngine) -> dict[str, float]:
    """Running, waiting and KV use as /metrics tells them."""
    async with client_of(create_app(engine)) as client:
        lines = (await client.get("/metrics")).text.splitlines()
    names = ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc")
    return {name: float(line.split()[-1]) for line in lines for name in names if line.startswith(f"fairstep:{name}{{")}


async def until(engine: AsyncEngine, *, running: int, waiting: int) -> None:
    while (engine.live().running, engine.live().waiting) != (running, waiting):
        await asyncio.sleep(0.001)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", [CHAT, TEXT])
def test_a_client_that_is_killed_ends_its_request(path: str, stream: bool) -> None:
    """vllm#10806, vllm#54947 (whole replies) and llama.cpp#24496, llama.cpp#13262 (streams)."""
    gate = Gate(5)
    runner = MemoryRunner(before=gate)

    async def test() -> None:
        async with engine_over(runner, pages=2000, context=5000) as engine, serving(create_app(engine)) as server:
            fields = {**ASKS[path], "stream": stream, "max_tokens": 4000, "ignore_eos": True}
            _, writer = await open_raw(server, fields, path)
            await asyncio.to_thread(gate.reached.wait, 60)
            await until(engine, running=1, waiting=0)
            writer.transport.abort()
            await until(engine, running=0, waiting=0)
            gate.open()
            await until_idle(engine)
            assert set((await gauges(engine)).values()) == {0.0}
            assert len(runner.plans) <= 7, "it went on running"

    run(test)


@pytest.mark.parametrize("stream", [False, True])
def test_queued_requests_of_clients_that_went_are_never_computed(stream: bool) -> None:
    """llama.cpp#24496, llama.cpp#11720, llama.cpp#13262."""
    gate = Gate(5)
    runner = MemoryRunner(before=gate)

    async def test() -> None:
        async with engine_over(runner, seats=1) as engine, serving(create_app(engine)) as server:
            fields = {"prompt": PROMPT, "max_tokens": 40, "ignore_eos": True, "temperature": 0}
            running = asyncio.create_task(over_a_socket(server, **fields))
            await asyncio.to_thread(gate.reached.wait, 60)
            computed = runner.prompt_tokens
            queued = [await open_raw(server, {**fields, "stream": stream}, TEXT) for _ in range(20)]
            await until(engine, running=1, waiting=20)
            for _, writer in queued:
                writer.transport.abort()
            await until(engine, running=1, waiting=0)
            gate.open()
            assert (await running).text() == text_alone(PROMPT, 40)
            await until_idle(engine)
            assert runner.prompt_tokens == computed

    run(test)


def test_cancelling_a_queued_request_leaves_the_running_one_alone() -> None:
    """ik_llama.cpp#1929: it killed another client's decode."""
    gate = Gate(5)

    async def test() -> None:
        async with engine_over(MemoryRunner(before=gate), seats=1) as engine, serving(create_app(engine)) as server:
            fields = {"prompt": PROMPT, "max_tokens": 40, "ignore_eos": True, "temperature": 0}
            first = asyncio.create_task(over_a_socket(server, **fields))
            await asyncio.to_thread(gate.reached.wait, 60)
            _, writer = await open_raw(server, {**fields, "stream": True}, TEXT)
            await until(engine, running=1, waiting=1)
            writer.transport.abort()
            await until(engine, running=1, waiting=0)
            gate.open()
            answer = await first
        assert (answer.text(), answer.reasons()) == (text_alone(PROMPT, 40), ["length"])

    run(test)


async def cut_after_the_first_chunk(server: Server, number: int) -> None:
    fields = {"prompt": f"{number} and more", "max_tokens": 150, "stream": True}
    reader, writer = await open_raw(server, fields, TEXT)
    assert (await read_head(reader))[0] == 200
    assert await read_part(reader)
    writer.transport.abort()


async def left_over(engine: AsyncEngine, tasks: int, descriptors: int) -> tuple[int, int]:
    """How many tasks and descriptors more than so many there are, once what has ended had its time to go."""
    await until_idle(engine)
    for _ in range(2000):
        more = len(asyncio.all_tasks()) - tasks, len(os.listdir("/proc/self/fd")) - descriptors
        if max(more) <= 0:
            break
        await asyncio.sleep(0.001)
    return more


def test_a_thousand_cut_streams_leave_nothing_behind() -> None:
    """lmdeploy#1788, lmdeploy#548, lmdeploy#1848: each aborted stream leaked; after 100 to 300 the server stalled."""

    async def test() -> None:
        async with engine_over(FakeRunner(), seats=8, pages=512) as engine, serving(create_app(engine)) as server:
            before = len(asyncio.all_tasks()), len(os.listdir("/proc/self/fd"))
            alone = await over_a_socket(server, max_tokens=20)
            for first in range(0, CUT_STREAMS, AT_ONCE):
                await asyncio.gather(*(cut_after_the_first_chunk(server, first + n) for n in range(AT_ONCE)))
            assert max(await left_over(engine, *before)) <= 0
            answers = await asyncio.gather(*(over_a_socket(server, max_tokens=20) for _ in range(20)))
            assert all(answer.text() == alone.text() for answer in answers)
            assert max(await left_over(engine, *before)) <= 0

    run(test)


def test_no_token_comes_after_a_cancel_around_the_first_one() -> None:
    """sglang#34112, sglang#34149: an abort after the last prompt chunk was launched still emitted a token."""
    chance, runner = random.Random(5), MemoryRunner()
    seen: list[int] = []

    async def one(engine: AsyncEngine) -> None:
        prompt = [97 + chance.randrange(26) for _ in range(chance.randrange(1, 30))]
        stream = engine.submit(prompt, SamplingParams(temperature=0, max_tokens=20, ignore_eos=True))
        deltas = [await anext(stream)] if chance.random() < 0.2 else []
        for _ in range(chance.randrange(40)):
            await asyncio.sleep(0)
        stream.cancel()
        deltas += [delta async for delta in stream]
        tokens = [token for delta in deltas for token in delta.token_ids]
        last = deltas[-1]
        assert last.finish_reason in ("cancelled", "length") and not any(delta.finish_reason for delta in deltas[:-1])
        assert last.usage is not None and last.usage.completion_tokens == len(tokens)
        assert bytes(tokens).decode() == text_alone(prompt, len(tokens))
        seen.append(len(tokens))

    async def test() -> None:
        async with engine_over(runner, chunk=8) as engine:
            for number in range(ROUNDS):
                await one(engine)
                if number % 50 == 0:
                    await until_idle(engine)
                    engine.check()
            await until_idle(engine)
        assert 0 in seen and max(seen) > 0, "all cancels came on one side of the first token"

    run(test)


def test_only_what_was_computed_of_a_cut_prompt_is_found_again() -> None:
    """sglang#28374: keys of a request that was aborted half-way went into the prefix cache."""
    prompt = [97 + place % 26 for place in range(60)]
    gate = Gate(3)
    runner = MemoryRunner(before=gate)

    async def test() -> None:
        async with engine_over(runner, chunk=8) as engine, serving(create_app(engine)) as server:
            fields: dict[str, Any] = {"prompt": prompt, "max_tokens": 20, "ignore_eos": True, "temperature": 0}
            _, writer = await open_raw(server, {**fields, "stream": True}, TEXT)
            await asyncio.to_thread(gate.reached.wait, 60)
            await until(engine, running=1, waiting=0)
            writer.transport.abort()
            await until(engine, running=0, waiting=0)
            gate.open()
            await until_idle(engine)
            computed = runner.prompt_tokens
            async with client_of(create_app(engine)) as client:
                reply = await whole(client, **fields)
        assert text_of(reply["choices"][0]) == text_alone(prompt, 20)
        assert 8 <= reply["usage"]["prompt_tokens_details"]["cached_tokens"] <= computed < len(prompt)

    run(test)


def test_a_turn_right_after_a_cut_one_has_the_whole_conversation() -> None:
    """sglang#36475: a disconnect and an immediate next turn lost the context."""
    turns = [{"role": "user", "content": "first"}]

    async def test() -> None:
        async with engine_over(MemoryRunner(), pages=256) as engine, serving(create_app(engine)) as server:
            reader, writer = await open_raw(server, {"messages": turns, "stream": True, "ignore_eos": True}, CHAT)
            await read_head(reader)
            await read_part(reader)
            writer.transport.abort()
            more = [*turns, {"role": "assistant", "content": "so fa"}, {"role": "user", "content": "second"}]
            ids = FakeTokenizer().encode_chat(more)
            fields = {"messages": more, "max_tokens": 9, "ignore_eos": True, "temperature": 0}
            async with client_of(create_app(engine)) as client:
                reply = await whole(client, CHAT, **fields)
        assert reply["usage"]["prompt_tokens"] == len(ids)
        assert text_of(reply["choices"][0]) == text_alone(ids, 9)

    run(test)
