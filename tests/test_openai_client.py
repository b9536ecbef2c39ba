"""The official `openai` package against a real server: sync and async, chat and completions, streaming and not."""

from collections.abc import Iterator

import openai
import pytest
from fastapi import FastAPI

from fairstep.serving.app import create_app
from fakes_serving import FakeEngine, run
from fakes_text import BOS
from live_server import LiveServer
from raw_http import serving_in_thread
from replay_engine import ReplayRunner, replay_parts

TEXT = "Hello wörld"
HI = [{"role": "user", "content": "hi"}]
USAGE = {"include_usage": True}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    host = FastAPI()
    host.mount("/llm", create_app(FakeEngine()))
    with serving_in_thread(host) as root:
        yield f"{root}/llm/v1"


@pytest.fixture
def client(url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=url, api_key="none", max_retries=0) as client:
        yield client


def asynchronous(url: str) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0)


def test_models(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["fake"]
    assert client.models.retrieve("fake").owned_by == "fairstep"


def test_chat(client: openai.OpenAI) -> None:
    reply = client.chat.completions.create(model="fake", messages=HI, max_tokens=5, temperature=0)
    assert reply.choices[0].message.content == TEXT and reply.choices[0].message.role == "assistant"
    assert reply.choices[0].finish_reason == "stop"
    assert reply.usage is not None and reply.usage.completion_tokens == 3
    assert reply.usage.prompt_tokens_details is not None and reply.usage.prompt_tokens_details.cached_tokens == 2


def test_chat_stream(client: openai.OpenAI) -> None:
    parts = list(client.chat.completions.create(model="fake", messages=HI, stream=True, stream_options=USAGE))
    assert "".join(part.choices[0].delta.content or "" for part in parts if part.choices) == TEXT
    assert parts[0].choices[0].delta.role == "assistant"
    assert [part.choices[0].finish_reason for part in parts if part.choices][-1] == "stop"
    assert parts[-1].usage is not None and parts[-1].usage.completion_tokens == 3


def test_the_stream_helper_builds_the_whole_message(client: openai.OpenAI) -> None:
    with client.chat.completions.stream(model="fake", messages=HI) as stream:
        assert stream.get_final_completion().choices[0].message.content == TEXT


def test_completions(client: openai.OpenAI) -> None:
    reply = client.completions.create(model="fake", prompt=["a", "b"])
    assert [(choice.index, choice.text) for choice in reply.choices] == [(0, TEXT), (1, TEXT)]
    assert reply.usage is not None and reply.usage.prompt_tokens == 4


def test_completions_stream_of_token_ids(client: openai.OpenAI) -> None:
    parts = list(client.completions.create(model="fake", prompt=[BOS, 97], stream=True, stream_options=USAGE))
    assert "".join(part.choices[0].text for part in parts if part.choices) == TEXT
    assert parts[-1].usage is not None and parts[-1].usage.prompt_tokens == 2


def test_vllm_extras_go_through_extra_body(client: openai.OpenAI) -> None:
    extra = {"return_token_ids": True, "ignore_eos": True, "min_tokens": 1, "top_k": 3}
    reply = client.completions.create(model="fake", prompt="a", extra_body=extra)
    assert reply.choices[0].model_extra is not None and reply.choices[0].model_extra["token_ids"] == [1, 2, 3]


@pytest.fixture(scope="module")
def replay() -> Iterator[openai.OpenAI]:
    parts = replay_parts(ReplayRunner([list("Hé".encode()), list(b"other")]))
    with (
        LiveServer("fake", **parts) as server,
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client,
    ):
        yield client


def test_chat_log_probabilities_are_typed(replay: openai.OpenAI) -> None:
    asked = {"model": "fake", "messages": HI, "n": 2, "logprobs": True, "top_logprobs": 3}
    reply = replay.chat.completions.create(**asked)
    assert [choice.message.content for choice in reply.choices] == ["Hé", "other"]
    contents = [choice.logprobs.content for choice in reply.choices if choice.logprobs is not None]
    for choice, content in zip(reply.choices, contents, strict=True):
        assert content is not None
        assert b"".join(bytes(entry.bytes or ()) for entry in content).decode() == choice.message.content
        assert all(len(entry.top_logprobs) == 3 and entry.logprob <= 0 for entry in content)


def test_the_stream_helper_puts_log_probabilities_together(replay: openai.OpenAI) -> None:
    with replay.chat.completions.stream(model="fake", messages=HI, n=2, logprobs=True) as stream:
        final = stream.get_final_completion()
    assert {choice.message.content for choice in final.choices} == {"Hé", "other"}
    for choice in final.choices:
        assert choice.logprobs is not None and choice.logprobs.content is not None
        data = b"".join(bytes(entry.bytes or ()) for entry in choice.logprobs.content)
        assert data.decode() == choice.message.content


def test_completion_log_probabilities_are_typed(replay: openai.OpenAI) -> None:
    reply = replay.completions.create(model="fake", prompt="a", echo=True, logprobs=2, n=2)
    for choice in reply.choices:
        assert choice.text[0] == "a" and choice.logprobs is not None
        assert "".join(choice.logprobs.tokens or ()) == choice.text
        assert choice.logprobs.top_logprobs is not None and len(choice.logprobs.top_logprobs[-1]) == 3
        assert choice.logprobs.text_offset is not None and choice.logprobs.text_offset[-1] == len(choice.text)
    parts = list(replay.completions.create(model="fake", prompt="a", echo=True, logprobs=2, n=2, stream=True))
    for choice in reply.choices:
        own = [part.choices[0] for part in parts if part.choices[0].index == choice.index]
        assert "".join(part.text for part in own) == choice.text


def test_errors_are_the_packages_own(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as wrong:
        client.chat.completions.create(model="fake", messages=HI, top_p=0)
    assert wrong.value.param == "top_p" and wrong.value.code == "invalid_value" and "top_p" in wrong.value.message
    assert wrong.value.request_id
    with pytest.raises(openai.BadRequestError, match="messages"):
        client.chat.completions.create(model="fake", messages=[], stream=True)
    with pytest.raises(openai.NotFoundError) as unknown:
        client.chat.completions.create(model="other", messages=HI)
    assert unknown.value.code == "model_not_found"


def test_an_error_inside_a_stream_is_raised_to_the_caller() -> None:
    with (
        serving_in_thread(create_app(FakeEngine(ending="error"))) as root,
        openai.OpenAI(base_url=f"{root}/v1", api_key="none", max_retries=0) as client,
        pytest.raises(openai.APIError, match="the request failed"),
    ):
        list(client.chat.completions.create(model="fake", messages=HI, stream=True))


def test_async_chat(url: str) -> None:
    async def test() -> None:
        async with asynchronous(url) as client:
            reply = await client.chat.completions.create(model="fake", messages=HI)
            assert reply.choices[0].message.content == TEXT
            stream = await client.chat.completions.create(model="fake", messages=HI, stream=True)
            assert "".join([part.choices[0].delta.content or "" async for part in stream]) == TEXT

    run(test)


def test_async_completions(url: str) -> None:
    async def test() -> None:
        async with asynchronous(url) as client:
            reply = await client.completions.create(model="fake", prompt="a")
            assert reply.choices[0].text == TEXT
            stream = await client.completions.create(model="fake", prompt="a", stream=True)
            assert "".join([part.choices[0].text async for part in stream]) == TEXT

    run(test)


def test_an_async_stream_that_is_closed_early_is_cancelled_in_the_engine() -> None:
    engine = FakeEngine(["x"] * 100_000)

    async def test() -> None:
        with serving_in_thread(create_app(engine)) as root:
            async with asynchronous(f"{root}/v1") as client:
                stream = await client.chat.completions.create(model="fake", messages=HI, stream=True)
                async for _ in stream:
                    break
                await stream.close()

    run(test)
    assert engine.cancelled == [engine.asked[0].stream.request_id]
