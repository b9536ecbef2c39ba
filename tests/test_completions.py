"""POST /v1/completions: the four forms of a prompt, several choices, defaults."""

import json
from typing import Any

import pytest

from fairstep.serving.app import create_app
from fakes_serving import CONTEXT, FakeEngine, client_of, events_of, run
from fakes_text import BOS

TEXT = "Hello wörld"


async def complete(engine: FakeEngine, prompt: Any, **fields: Any) -> Any:
    async with client_of(create_app(engine)) as client:
        return await client.post("/v1/completions", json={"prompt": prompt, **fields})


@pytest.mark.parametrize(
    ("prompt", "ids"),
    [
        ("ab", [(BOS, 97, 98)]),
        (["ab", "c"], [(BOS, 97, 98), (BOS, 99)]),
        ([97, 98], [(97, 98)]),
        ([[97, 98], [99]], [(97, 98), (99,)]),
    ],
)
def test_each_form_of_a_prompt_gives_a_choice_a_prompt(prompt: Any, ids: list[tuple[int, ...]]) -> None:
    async def test() -> None:
        engine = FakeEngine()
        body = (await complete(engine, prompt)).json()
        assert [asked.prompt_ids for asked in engine.asked] == ids
        assert len({asked.how["request_id"] for asked in engine.asked}) == len(ids)
        assert body["object"] == "text_completion" and body["id"].startswith("cmpl-")
        assert [(choice["index"], choice["text"]) for choice in body["choices"]] == [(i, TEXT) for i in range(len(ids))]
        assert body["usage"]["prompt_tokens"] == sum(map(len, ids))
        assert body["usage"]["completion_tokens"] == 3 * len(ids)

    run(test)


def test_a_stream_of_several_prompts_ends_each_choice_once() -> None:
    async def test() -> None:
        fields = {"stream": True, "stream_options": {"include_usage": True}, "return_token_ids": True}
        reply = await complete(FakeEngine(), ["a", "b", "c"], **fields)
        *events, done = events_of(reply.text)
        *parts, last = map(json.loads, events)
        assert done == "[DONE]" and last["choices"] == [] and last["usage"]["completion_tokens"] == 9
        assert {part["object"] for part in parts} == {"text_completion"}
        for index, prompt in enumerate("abc"):
            choices = [part["choices"][0] for part in parts if part["choices"][0]["index"] == index]
            assert "".join(choice["text"] for choice in choices) == TEXT
            assert [choice["finish_reason"] for choice in choices if choice["finish_reason"]] == ["stop"]
            assert [choice.get("prompt_token_ids") for choice in choices][:1] == [[BOS, ord(prompt)]]
            assert not any("prompt_token_ids" in choice for choice in choices[1:])
            assert [token for choice in choices for token in choice["token_ids"]] == [1, 2, 3]

    run(test)


def test_sixteen_tokens_are_the_default_and_never_more_than_the_context_leaves() -> None:
    async def test() -> None:
        engine = FakeEngine()
        await complete(engine, "a")
        await complete(engine, [7] * (CONTEXT - 3))
        await complete(engine, "a", max_tokens=40)
        assert [asked.params.max_tokens for asked in engine.asked] == [16, 3, 40]

    run(test)


@pytest.mark.parametrize("short", [[1], "a"])
def test_one_prompt_too_long_refuses_all_of_them_before_any_runs(short: Any) -> None:
    async def test() -> None:
        engine = FakeEngine()
        long = [1] * CONTEXT if isinstance(short, list) else "a" * CONTEXT
        reply = await complete(engine, [short, long])
        assert reply.status_code == 400 and reply.json()["error"]["code"] == "context_length_exceeded"
        assert engine.asked == []

    run(test)


def test_one_prompt_that_is_refused_keeps_all_of_its_body_out() -> None:
    async def test() -> None:
        engine = FakeEngine(held=True)
        reply = await complete(engine, [[1], [100_000]])
        assert reply.status_code == 400 and reply.json()["error"]["param"] == "prompt"
        assert engine.asked == []

    run(test)


def test_more_prompts_than_the_limit_are_refused() -> None:
    async def test() -> None:
        async with client_of(create_app(FakeEngine(), max_prompts=2)) as client:
            reply = await client.post("/v1/completions", json={"prompt": ["a", "b", "c"]})
        assert reply.status_code == 400 and reply.json()["error"]["param"] == "prompt"

    run(test)


def test_text_held_back_sends_nothing_until_it_comes() -> None:
    async def test() -> None:
        reply = await complete(FakeEngine(["", "", "ab"]), "x", stream=True)
        texts = [json.loads(event)["choices"][0]["text"] for event in events_of(reply.text)[:-1]]
        assert texts == ["ab", ""]  # one piece, one end

    run(test)
