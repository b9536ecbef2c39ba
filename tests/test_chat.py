"""POST /v1/chat/completions: shapes, order of chunks, roles and content."""

import asyncio
import json
from typing import Any

import pytest

from fairstep.request import Usage
from fairstep.serving.app import create_app
from fakes_serving import CONTEXT, FakeEngine, client_of, events_of, run
from fakes_text import EOS, TURN
from replay_engine import replaying

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
        assert how["priority"] == -1 and how["tenant"] == "anonymous"

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
            "best_of": 1,
            "echo": False,
            "add_special_tokens": False,
            "chat_template": None,
            "spaces_between_special_tokens": False,
        }
        assert (await chat(FakeEngine(), **neutral)).status_code == 200
        tools = [{"type": "function", "function": {"name": "f"}}]
        assert (await chat(FakeEngine(), tools=tools, tool_choice="none")).status_code == 200

    run(test)


async def replay(*scripts: Any, **fields: Any) -> Any:
    """The choices of a chat whose answers say these ids."""
    async with replaying(*scripts) as (client, _):
        reply = await client.post("/v1/chat/completions", json={**HI, **fields})
    assert reply.status_code == 200, reply.text
    return reply.json()["choices"]


def test_log_probabilities_have_an_entry_for_each_token_of_the_text() -> None:
    async def test() -> None:
        (choice,) = await replay(list("aé".encode()), logprobs=True, top_logprobs=2)
        entries = choice["logprobs"]["content"]
        assert [entry["bytes"] for entry in entries] == [[97], [0xC3], [0xA9]], "and none for the end of the answer"
        assert [entry["token"] for entry in entries] == ["a", "\ufffd", "\ufffd"]
        assert all([top["token"] for top in entry["top_logprobs"]] == ["A", "\ufffd"] for entry in entries)
        (choice,) = await replay(list(b"a"), logprobs=True)
        assert choice["logprobs"]["content"][0]["top_logprobs"] == []
        (choice,) = await replay([EOS], logprobs=True)
        assert choice["logprobs"] == {"content": []}

    run(test)


def test_special_tokens_show_when_asked_for_in_a_stream_too() -> None:
    async def test() -> None:
        for fields, text in (({}, "ab"), ({"skip_special_tokens": False}, "a<turn>b")):
            for stream in (False, True):
                async with replaying([97, TURN, 98]) as (client, _):
                    body = {**HI, **fields, "stream": stream}
                    reply = await client.post("/v1/chat/completions", json=body)
                if stream:
                    deltas = [json.loads(event)["choices"][0]["delta"] for event in events_of(reply.text)[:-1]]
                    assert "".join(delta.get("content", "") for delta in deltas) == text
                else:
                    assert reply.json()["choices"][0]["message"]["content"] == text

    run(test)


@pytest.mark.parametrize(("include", "text"), [(False, "a "), (True, "a END")])
def test_the_stop_string_stays_when_asked_for(include: bool, text: str) -> None:
    async def test() -> None:
        (choice,) = await replay(list(b"a END b"), stop="END", include_stop_str_in_output=include)
        assert (choice["message"]["content"], choice["stop_reason"]) == (text, "END")

    run(test)


def test_n_answers_have_a_choice_each_that_ends_once_and_the_prompt_counts_once() -> None:
    scripts = (list(b"one"), list(b"second"), [])

    async def test() -> None:
        async with replaying(*scripts) as (client, runner):
            body = {**HI, "n": 3, "seed": 7, "temperature": 1.0}
            reply = (await client.post("/v1/chat/completions", json=body)).json()
            seeds = {piece.sampling.seed for plan in runner.plans for piece in plan.slices}
        assert [choice["index"] for choice in reply["choices"]] == [0, 1, 2]
        assert [choice["message"]["content"] for choice in reply["choices"]] == ["one", "second", ""]
        assert reply["usage"]["prompt_tokens"] == PROMPT and reply["usage"]["completion_tokens"] == 4 + 7 + 1
        assert len(seeds) == 3 and 7 in seeds, "no two answers are drawn with the same seed"
        async with replaying(*scripts) as (client, _):
            options = {"stream": True, "stream_options": {"include_usage": True}}
            *events, done = events_of((await client.post("/v1/chat/completions", json={**body, **options})).text)
        *parts, last = map(json.loads, events)
        assert done == "[DONE]" and last["usage"] == reply["usage"]
        for choice in reply["choices"]:
            own = [part["choices"][0] for part in parts if part["choices"][0]["index"] == choice["index"]]
            assert [part["delta"].get("role") for part in own] == ["assistant"] + [None] * (len(own) - 1)
            assert "".join(part["delta"].get("content", "") for part in own) == choice["message"]["content"]
            assert [part["finish_reason"] for part in own if part["finish_reason"]] == ["stop"]
            assert own[-1]["finish_reason"] == "stop"

    run(test)


def test_the_prompts_log_probabilities_stand_beside_the_choices() -> None:
    async def test() -> None:
        async with replaying(list(b"x")) as (client, _):
            body = {**HI, "prompt_logprobs": 1, "n": 2, "max_tokens": 1}
            reply = (await client.post("/v1/chat/completions", json=body)).json()
        first, *others = reply["prompt_logprobs"]
        assert first is None and len(others) == PROMPT - 1
        assert others[0][str(ord("u"))]["decoded_token"] == "u"
        assert not any("prompt_logprobs" in choice for choice in reply["choices"])

    run(test)


def test_a_chat_may_continue_its_last_message_and_hand_names_to_the_template() -> None:
    async def test() -> None:
        engine = FakeEngine()
        messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Once"}]
        await chat(engine, messages=messages, continue_final_message=True)
        await chat(engine, add_generation_prompt=False, chat_template_kwargs={"thinking": False})
        prompts = [engine.tokenizer.decode(asked.prompt_ids) for asked in engine.asked]
        assert prompts == ["user: hi\nassistant: Once", "thinking=False\nuser: hi\n"]

    run(test)


@pytest.mark.parametrize(
    ("fields", "status", "tokens"),
    [
        ({}, 200, CONTEXT - PROMPT),
        ({"max_tokens": None}, 200, CONTEXT - PROMPT),
        ({"max_tokens": 1}, 200, 1),
        ({"max_tokens": 9, "max_completion_tokens": 2}, 200, 2),
        ({"max_tokens": CONTEXT - PROMPT}, 200, CONTEXT - PROMPT),
        ({"max_tokens": CONTEXT - PROMPT + 1}, 400, 0),
        ({"max_tokens": 0}, 400, 0),
        ({"max_tokens": 0, "max_completion_tokens": 2}, 200, 2),
        ({"max_tokens": 3, "max_completion_tokens": 0}, 400, 0),
    ],
)
def test_an_answer_has_at_most_the_tokens_that_are_asked_for_and_fit(
    fields: dict[str, Any], status: int, tokens: int
) -> None:
    async def test() -> None:
        async with replaying(list(b"x" * CONTEXT)) as (client, _):
            reply = await client.post("/v1/chat/completions", json={**HI, **fields})
        assert reply.status_code == status
        if status == 200:
            assert reply.json()["usage"]["completion_tokens"] == tokens
            assert reply.json()["choices"][0]["finish_reason"] == "length"

    run(test)
