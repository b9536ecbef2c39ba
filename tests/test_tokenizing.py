"""POST /tokenize and /detokenize: vLLM's shapes, there and back, and what is refused."""

from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairstep.serving.app import create_app
from fakes_serving import CONTEXT, FakeEngine, client_of, run
from fakes_text import BOS, EOS, VOCAB

HI = [{"role": "user", "content": "hi"}]
BOTH = {"continue_final_message": True, "add_generation_prompt": True}
RENDERED = "user: hi\nassistant: "


async def post(path: str, engine: FakeEngine | None = None, **fields: Any) -> httpx.Response:
    async with client_of(create_app(engine or FakeEngine())) as client:
        return await client.post(path, json=fields)


async def tokens(**fields: Any) -> Any:
    reply = await post("/tokenize", **fields)
    assert reply.status_code == 200, reply.text
    return reply.json()


def test_a_prompt_has_ids_a_count_and_the_context() -> None:
    async def test() -> None:
        assert await tokens(model="fake", prompt="ab") == {
            "count": 3,
            "max_model_len": CONTEXT,
            "tokens": [BOS, 97, 98],
            "token_strs": None,
        }
        bare = await tokens(prompt="é", add_special_tokens=False, return_token_strs=True)
        assert (bare["tokens"], bare["token_strs"]) == ([0xC3, 0xA9], ["\ufffd", "\ufffd"])
        assert (await tokens(prompt="", add_special_tokens=False))["tokens"] == []

    run(test)


def test_a_conversation_has_exactly_one_bos_and_is_rendered_as_for_an_answer() -> None:
    async def test() -> None:
        asked: list[tuple[dict[str, Any], str]] = [
            ({}, RENDERED),
            ({"add_special_tokens": False}, RENDERED),
            ({"add_generation_prompt": False}, "user: hi\n"),
            ({"continue_final_message": True}, "user: hi"),
            ({"chat_template_kwargs": {"tone": "dry"}}, "tone=dry\n" + RENDERED),
        ]
        for how, text in asked:
            assert (await tokens(messages=HI, **how))["tokens"] == [BOS, *text.encode()]
        engine = FakeEngine()
        async with client_of(create_app(engine)) as client:
            await client.post("/v1/chat/completions", json={"messages": HI})
        assert list(engine.asked[0].prompt_ids) == (await tokens(messages=HI))["tokens"]

    run(test)


@given(st.text(max_size=50))
def test_there_and_back_is_the_text(text: str) -> None:
    async def test() -> None:
        ids = (await tokens(prompt=text, add_special_tokens=False))["tokens"]
        assert (await post("/detokenize", tokens=ids)).json() == {"prompt": text}

    run(test)


def test_special_tokens_are_shown_and_no_tokens_are_no_text() -> None:
    async def test() -> None:
        assert (await post("/detokenize", tokens=[BOS, 97, EOS])).json() == {"prompt": "<bos>a<eos>"}
        assert (await post("/detokenize", tokens=[])).json() == {"prompt": ""}

    run(test)


def test_many_tokens_are_read_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        monkeypatch.setattr("fairstep.serving.off_loop.MANY_TOKENS", 1)
        assert (await post("/detokenize", tokens=list("hé".encode()))).json() == {"prompt": "hé"}

    run(test)


REFUSED: list[tuple[str, str, dict[str, Any]]] = [
    ("/tokenize", "prompt", {}),
    ("/tokenize", "prompt", {"prompt": "a", "messages": HI}),
    ("/tokenize", "prompt", {"prompt": ["a"]}),
    ("/tokenize", "prompt", {"prompt": 5}),
    ("/tokenize", "prompt", {"prompt": [1]}),
    ("/tokenize", "messages", {"messages": []}),
    ("/tokenize", "messages", {"messages": "hi"}),
    ("/tokenize", "messages", {"messages": [{"role": "tool", "content": "x"}]}),
    ("/tokenize", "add_special_tokens", {"prompt": "a", "add_special_tokens": "yes"}),
    ("/tokenize", "add_special_tokens", {"messages": HI, "add_special_tokens": True}),
    ("/tokenize", "add_generation_prompt", {"prompt": "a", "add_generation_prompt": False}),
    ("/tokenize", "return_token_strs", {"prompt": "a", "return_token_strs": 1}),
    ("/tokenize", "continue_final_message", {"messages": HI, **BOTH}),
    ("/tokenize", "chat_template_kwargs", {"messages": HI, "chat_template_kwargs": []}),
    ("/tokenize", "chat_template_kwargs", {"messages": HI, "chat_template_kwargs": {"messages": 1}}),
    ("/tokenize", "chat_template", {"messages": HI, "chat_template": "{{ 1 }}"}),
    ("/tokenize", "tools", {"messages": HI, "tools": [{}]}),
    ("/detokenize", "tokens", {}),
    ("/detokenize", "tokens", {"tokens": 5}),
    ("/detokenize", "tokens", {"tokens": None}),
    ("/detokenize", "tokens", {"tokens": [-1]}),
    ("/detokenize", "tokens", {"tokens": [VOCAB]}),
    ("/detokenize", "tokens", {"tokens": [2**63]}),
    ("/detokenize", "tokens", {"tokens": [10**40]}),
    ("/detokenize", "tokens", {"tokens": [1.0]}),
    ("/detokenize", "tokens", {"tokens": ["1"]}),
    ("/detokenize", "tokens", {"tokens": [True]}),
    ("/detokenize", "tokens", {"tokens": [[1]]}),
    ("/detokenize", "tokens", {"tokens": [1] * (CONTEXT + 1)}),  # no token of the fake is longer than a character
]


@pytest.mark.parametrize(("path", "param", "fields"), REFUSED, ids=lambda value: str(value)[:60])
def test_what_is_wrong_is_named(path: str, param: str, fields: dict[str, Any]) -> None:
    async def test() -> None:
        reply = await post(path, **fields)
        assert reply.status_code == 400 and reply.json()["error"]["param"] == param, reply.text

    run(test)


@pytest.mark.parametrize("path", ["/tokenize", "/detokenize"])
def test_another_model_is_404_and_a_dead_engine_503(path: str) -> None:
    async def test() -> None:
        fields: dict[str, Any] = {"prompt": "a", "tokens": [97]}
        assert (await post(path, **fields, model="other")).status_code == 404
        engine = FakeEngine()
        engine.failure = "the worker was killed"
        assert (await post(path, engine, **fields)).status_code == 503

    run(test)
