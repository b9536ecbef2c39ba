"""POST /v1/chat/completions: shapes, order of chunks, roles and content."""

import asyncio
import json
from typing import Any

import pytest

from fairstep.request import Usage
from fairstep.serving.app import create_app
from fakes_serving import FakeEngine, client_of, events_of, run

HI = {"messages": [{"role": "user", "content": "hi"}]}
TEXT = "Hello wörld"
PROMPT = 1 + len("user: hi\nassistant: ")  # <bos> first


async def chat(engine: FakeEngine, **fields: Any) -> Any:
    async with client_of(create_app(engine)) as client:
        return await client.post("/v1/chat/completions", json={**HI, **fields})


async def chunks(engine: FakeEngine, **fields: Any) -> list[Any]:
    reply = await chat(engine, stream=True, **fields)
    assert reply.status_code == 200
    *events, done = events_of(reply.text)
    assert done == "[DONE]"
    return [json.loads(event) for event in events]


def test_a_whole_answer_has_message_finish_reason_and_usage() -> None:
    async def test() -> None:
        reply = await chat(FakeEngine())
        body = reply.json()
        assert reply.status_code == 200 and reply.headers["content-type"] == "application/json"
        assert body["id"].startswith("chatcmpl-") and body["object"] == "chat.completion" and body["model"] == "fake"
        assert body["choices"] == [
            {
                "index": 0,
                "message": {"role": "assistant", "content": TEXT},
                "logprobs": None,
                "finish_reason": "stop",
                "stop_reason": None,
            }
        ]
        assert body["usage"] == {
            "prompt_tokens": PROMPT,
            "completion_tokens": 3,
            "total_tokens": PROMPT + 3,
            "prompt_tokens_details": {"cached_tokens": 2},
        }

    run(test)


def test_a_stream_has_one_role_chunk_the_text_one_finish_chunk_and_no_usage() -> None:
    async def test() -> None:
        parts = await chunks(FakeEngine())
        assert parts[0]["choices"] == [
            {"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}
        ]
        choices = [part["choices"][0] for part in parts]
        assert "".join(choice["delta"].get("content", "") for choice in choices) == TEXT
        assert [choice["finish_reason"] for choice in choices if choice["finish_reason"]] == ["stop"]
        assert sum("role" in choice["delta"] for choice in choices) == 1
        assert choices[-1]["finish_reason"] == "stop"
        assert {part["object"] for part in parts} == {"chat.completion.chunk"}
        assert len({(part["id"], part["created"], part["model"]) for part in parts}) == 1
        assert not any("usage" in part for part in parts)

    run(test)


@pytest.mark.parametrize("options", [None, {}, {"include_usage": False}, {"include_usage": None}])
def test_usage_comes_only_when_asked_for(options: Any) -> None:
    async def test() -> None:
        assert not any("usage" in part for part in await chunks(FakeEngine(), stream_options=options))

    run(test)


def test_usage_is_one_last_chunk_without_choices_and_equals_the_whole_answers() -> None:
    async def test() -> None:
        *parts, last = await chunks(FakeEngine(), stream_options={"include_usage": True})
        assert last["choices"] == [] and not any("usage" in part for part in parts)
        assert last["usage"] == (await chat(FakeEngine())).json()["usage"]

    run(test)


def test_continuous_usage_counts_up_in_every_chunk() -> None:
    async def test() -> None:
        options = {"include_usage": True, "continuous_usage_stats": True}
        parts = await chunks(FakeEngine(), stream_options=options)
        counts = [part["usage"]["completion_tokens"] for part in parts]
        assert counts == sorted(counts) and counts[-1] == 3

    run(test)


def test_the_engines_last_count_is_the_one_that_holds() -> None:
    class Counting(FakeEngine):
        def end(self, asked: Any, reason: str | None = None, **more: Any) -> None:
            super().end(asked, reason, usage=Usage(9, 7), **more)

    async def test() -> None:
        last = (await chunks(Counting(), stream_options={"include_usage": True}))[-1]
        assert last["usage"]["completion_tokens"] == 7
        assert (await chat(Counting())).json()["usage"]["completion_tokens"] == 7

    run(test)


def test_token_ids_come_when_asked_for() -> None:
    async def test() -> None:
        engine = FakeEngine()
        parts = await chunks(engine, return_token_ids=True)
        assert parts[0]["prompt_token_ids"] == list(engine.asked[0].prompt_ids)
        assert not any("prompt_token_ids" in part for part in parts[1:])
        assert [i for part in parts[1:] for i in part["choices"][0]["token_ids"]] == [1, 2, 3]
        body = (await chat(engine, return_token_ids=True)).json()
        assert body["prompt_token_ids"] == list(engine.asked[1].prompt_ids)
        assert body["choices"][0]["token_ids"] == [1, 2, 3]

    run(test)


def test_the_stop_reason_is_told_at_the_end() -> None:
    async def test() -> None:
        engine = FakeEngine(held=True)
        app = create_app(engine)

        async def answer() -> None:
            await engine.until(lambda: len(engine.asked) == 1)
            engine.say(engine.asked[0], "a")
            engine.end(engine.asked[0], "stop", stop_reason="END")

        async with client_of(app) as client, asyncio.TaskGroup() as group:
            group.create_task(answer())
            reply = await client.post("/v1/chat/completions", json={**HI, "stop": "END"})
        assert reply.json()["choices"][0]["stop_reason"] == "END"
        assert engine.asked[0].params.stop == ("END",)

    run(test)


def test_fields_reach_the_engine() -> None:
    async def test() -> None:
        engine = FakeEngine()
        await chat(
            engine,
            max_tokens=7,
            max_completion_tokens=5,
            temperature=0,
            top_k=4,
            top_p=0.5,
            min_p=0.1,
            seed=-3,
            stop=["a", "b"],
            stop_token_ids=[9],
            min_tokens=2,
            ignore_eos=True,
            priority=-1,
            user="tenant-of-nobody",
        )
        params, how = engine.asked[0].params, engine.asked[0].how
        assert (params.max_tokens, params.min_tokens, params.ignore_eos) == (5, 2, True)
        assert (params.temperature, params.top_k, params.top_p, params.min_p, params.seed) == (0, 4, 0.5, 0.1, -3)
        assert (params.stop, params.stop_token_ids) == (("a", "b"), (9,))
        assert how["priority"] == -1 and "tenant" not in how

    run(test)


def test_without_fields_the_models_own_defaults_hold_and_the_context_is_the_end() -> None:
    async def test() -> None:
        engine = FakeEngine()
        nulls = dict.fromkeys(["temperature", "top_p", "max_tokens", "stop", "seed", "user", "n", "model", "tools"])
        await chat(engine, **nulls)
        params = engine.asked[0].params
        assert params.max_tokens is None and params.temperature is None and params.top_p is None and params.stop == ()

    run(test)


def test_text_parts_are_joined_and_developer_means_system() -> None:
    async def test() -> None:
        engine = FakeEngine()
        parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
        messages = [
            {"role": "developer", "content": "be brief", "name": None},
            {"role": "user", "content": parts, "name": "x"},
            {"role": "assistant", "content": None},
        ]
        await chat(engine, messages=messages)
        prompt = engine.tokenizer.decode(engine.asked[0].prompt_ids)
        assert prompt == "system: be brief\nuser: a\nb\nassistant: \nassistant: "

    run(test)


def test_a_neutral_value_of_an_unsupported_field_and_an_unknown_field_pass() -> None:
    async def test() -> None:
        neutral = {
            "n": 1,
            "logprobs": False,
            "top_logprobs": None,
            "frequency_penalty": 0,
            "presence_penalty": 0.0,
            "repetition_penalty": 1.0,
            "logit_bias": {},
            "response_format": {"type": "text"},
            "tools": [],
            "tool_choice": "auto",
            "parallel_tool_calls": True,
            "metadata": {"a": [1]},
            "store": False,
            "service_tier": "auto",
            "cache_prompt": False,
            "never_heard_of": {"x": None},
        }
        assert (await chat(FakeEngine(), **neutral)).status_code == 200
        tools = [{"type": "function", "function": {"name": "f"}}]
        assert (await chat(FakeEngine(), tools=tools, tool_choice="none")).status_code == 200

    run(test)
