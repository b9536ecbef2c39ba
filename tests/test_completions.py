"""POST /v1/completions: the four forms of a prompt, several choices, defaults."""

import json
from typing import Any

import pytest

from fairstep.serving.app import create_app
from fakes_serving import CONTEXT, FakeEngine, client_of, events_of, run
from fakes_text import BOS, EOS
from replay_engine import NEVER, replaying

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


async def replay(*scripts: Any, prompt: Any = "aé", **fields: Any) -> Any:
    """The reply to a completion whose answers say these ids."""
    async with replaying(*scripts) as (client, _):
        reply = await client.post("/v1/completions", json={"prompt": prompt, **fields})
    assert reply.status_code == 200, reply.text
    return reply.json()


async def replay_stream(*scripts: Any, prompt: Any = "aé", **fields: Any) -> list[Any]:
    async with replaying(*scripts) as (client, _):
        reply = await client.post("/v1/completions", json={"prompt": prompt, "stream": True, **fields})
    assert reply.status_code == 200, reply.text
    return [json.loads(event)["choices"][0] for event in events_of(reply.text)[:-1]]


def test_the_choices_of_several_prompts_stand_in_order() -> None:
    scripts = [list(b"a0"), list(b"a1"), list(b"b0"), list(b"b1")]

    async def test() -> None:
        reply = await replay(*scripts, prompt=["aa", "b"], n=2)
        assert [(choice["index"], choice["text"]) for choice in reply["choices"]] == [
            (0, "a0"),
            (1, "a1"),
            (2, "b0"),
            (3, "b1"),
        ]
        assert reply["usage"]["prompt_tokens"] == 5 and reply["usage"]["completion_tokens"] == 12
        parts = await replay_stream(*scripts, prompt=["aa", "b"], n=2)
        for choice in reply["choices"]:
            own = [part for part in parts if part["index"] == choice["index"]]
            assert "".join(part["text"] for part in own) == choice["text"]
            assert sum(part["finish_reason"] is not None for part in own) == 1

    run(test)


def test_the_best_of_several_are_told_and_all_of_them_are_counted() -> None:
    scripts = [[6, 6], [7, 14, 21], [7]]  # log probabilities a token, with the end's: -2.4, -1.3, -1.6

    async def test() -> None:
        reply = await replay(*scripts, best_of=3, n=2, return_token_ids=True)
        assert [(choice["index"], choice["token_ids"][:-1]) for choice in reply["choices"]] == [
            (0, [7, 14, 21]),
            (1, [7]),
        ]
        assert reply["usage"]["completion_tokens"] == 3 + 4 + 2
        assert [choice["logprobs"] for choice in reply["choices"]] == [None, None]
        reply = await replay(*scripts, best_of=3, logprobs=0)
        assert [choice["logprobs"]["token_logprobs"][0] for choice in reply["choices"]] == [-1.0]
        reply = await replay(*scripts, best_of=3, n=3, return_token_ids=True)
        assert [choice["token_ids"][:-1] for choice in reply["choices"]] == scripts, "all of them: as they were drawn"

    run(test)


def test_as_many_as_are_asked_for_are_streamed_also_with_best_of() -> None:
    async def test() -> None:
        parts = await replay_stream(list(b"x"), list(b"y"), best_of=2, n=2)
        assert {part["index"]: part["finish_reason"] for part in parts} == {0: "stop", 1: "stop"}

    run(test)


@pytest.mark.parametrize("fields", [{}, {"logprobs": 1}, {"logprobs": 1, "top_k": 1, "n": 2}, {"prompt_logprobs": 0}])
def test_the_prompt_alone_is_echoed(fields: dict[str, Any]) -> None:
    async def test() -> None:
        reply = await replay(list(b"never"), echo=True, max_tokens=0, **fields)
        assert [choice["index"] for choice in reply["choices"]] == list(range(fields.get("n", 1)))
        for choice in reply["choices"]:
            assert (choice["text"], choice["finish_reason"]) == ("aé", "length")
            if "logprobs" in fields:
                assert choice["logprobs"]["tokens"] == ["", "a", "", "é"]
                assert choice["logprobs"]["token_logprobs"] == [None, -2.5, -2.5, -1.25]
        assert reply["usage"]["completion_tokens"] == 0 and reply["usage"]["prompt_tokens"] == 4

    run(test)


@pytest.mark.parametrize("logprobs", [None, 0, 2])
@pytest.mark.parametrize("prompt", ["aé", [97, 0xC3], ["ab", "c" * 30]])
def test_an_echo_is_the_prompt_before_each_answer_streamed_or_not(prompt: Any, logprobs: int | None) -> None:
    scripts = [list("xé".encode()), list(b"second"), [0xA9, *b"!"], [NEVER]]

    async def test() -> None:
        fields = {"prompt": prompt, "echo": True, "n": 2, "logprobs": logprobs}
        reply = await replay(*scripts, **fields)
        parts = await replay_stream(*scripts, **fields)
        prompts = prompt if isinstance(prompt[0], str) and isinstance(prompt, list) else [prompt] * 2
        for choice in reply["choices"]:
            own = [part for part in parts if part["index"] == choice["index"]]
            assert "".join(part["text"] for part in own) == choice["text"]
            text = prompts[choice["index"] // 2]
            text = text if isinstance(text, str) else bytes(text).decode(errors="replace")
            assert own[0]["text"].startswith(text), "the prompt comes with the first chunk"
            if logprobs is None:
                continue
            lists = [part["logprobs"] for part in own if part["logprobs"]]
            assert {name: [own for part in lists for own in part[name]] for name in lists[0]} == choice["logprobs"]
            assert "".join(choice["logprobs"]["tokens"]) == choice["text"]
            assert choice["logprobs"]["token_logprobs"][0] is None and choice["logprobs"]["top_logprobs"][0] is None

    run(test)


def test_log_probabilities_without_an_echo_begin_with_the_answer() -> None:
    async def test() -> None:
        (choice,) = (await replay(list(b"xy"), logprobs=1))["choices"]
        assert choice["logprobs"]["text_offset"] == [0, 1, 2] and choice["logprobs"]["tokens"] == ["x", "y", ""]
        assert all(next(iter(top)) == "A" and len(top) == 2 for top in choice["logprobs"]["top_logprobs"])

    run(test)


def test_the_token_that_ends_an_answer_is_the_last_entry() -> None:
    """Whoever scores a prompt by echo and max_tokens 1 leaves the last entry out: it must be there."""

    async def test() -> None:
        (choice,) = (await replay([EOS], echo=True, logprobs=0, max_tokens=1))["choices"]
        assert choice["finish_reason"] == "stop"
        assert len(choice["logprobs"]["tokens"]) == 5 and choice["logprobs"]["top_logprobs"][-1] == {"<eos>": -2.25}

    run(test)


def test_what_is_all_but_impossible_has_the_protocols_floor() -> None:
    async def test() -> None:
        (choice,) = (await replay([NEVER], logprobs=0, prompt=[97, NEVER], echo=True, prompt_logprobs=0))["choices"]
        assert choice["logprobs"]["token_logprobs"][1:3] == [-9999.0, -9999.0]
        assert choice["prompt_logprobs"][1][str(NEVER)]["logprob"] == -9999.0

    run(test)


def test_a_prompts_log_probabilities_stand_in_each_of_its_choices() -> None:
    async def test() -> None:
        reply = await replay(list(b"x"), prompt=[[97, 98, 99], [99]], n=2, prompt_logprobs=2)
        for choice in reply["choices"]:
            first, *others = choice["prompt_logprobs"]
            assert first is None and len(others) == (2 if choice["index"] < 2 else 0)
            assert all(len(tokens) == 3 for tokens in others)

    run(test)


@pytest.mark.parametrize("add", [True, False])
def test_special_tokens_are_added_unless_they_are_not_wanted(add: bool) -> None:
    async def test() -> None:
        engine = FakeEngine()
        await complete(engine, "ab", add_special_tokens=add)
        assert engine.asked[0].prompt_ids == ((BOS,) if add else ()) + (97, 98)

    run(test)


def test_a_long_prompt_is_cut_when_asked_for() -> None:
    async def test() -> None:
        engine = FakeEngine()
        await complete(engine, "a" * 500 + "bc", truncate_prompt_tokens=2)
        await complete(engine, "a" * 500, truncate_prompt_tokens=-1, max_tokens=50)
        await complete(engine, "a" * 500, truncate_prompt_tokens=CONTEXT)
        assert [len(asked.prompt_ids) for asked in engine.asked] == [2, CONTEXT - 50], "the last is still too long"
        assert engine.asked[0].prompt_ids == (98, 99)

    run(test)


@pytest.mark.parametrize(
    ("prompt", "max_tokens", "tokens"),
    [(CONTEXT - 1, 1, 1), (CONTEXT - 1, None, 1), (CONTEXT, 1, None), (CONTEXT + 1, None, None), (CONTEXT, None, None)],
)
def test_a_prompt_may_leave_one_token_of_the_context_and_no_less(
    prompt: int, max_tokens: int | None, tokens: int | None
) -> None:
    async def test() -> None:
        async with replaying(list(b"x" * CONTEXT)) as (client, _):
            body = {"prompt": [97] * prompt, "max_tokens": max_tokens}
            reply = await client.post("/v1/completions", json=body)
        if tokens is not None:
            assert reply.json()["usage"]["completion_tokens"] == tokens
            return
        message = reply.json()["error"]["message"]
        assert reply.status_code == 400 and str(prompt) in message and str(CONTEXT) in message

    run(test)
