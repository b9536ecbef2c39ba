"""Reports about the shape of chunks and of usage, replayed through the whole path."""

from typing import Any

import openai
import pytest

from fairstep.serving.app import create_app
from fakes_serving import FakeEngine, run
from raw_http import open_raw, serving, serving_in_thread
from replay_engine import ReplayRunner
from replay_http import ASKS, CHAT, HI, TEXT, client_over, streamed, whole

SCRIPTS = [list(b"one"), list(b"seven77"), list(b"four")]
paths = pytest.mark.parametrize("path", [CHAT, TEXT])


@paths
@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, False),
        ({"stream_options": None}, False),
        ({"stream_options": {}}, False),
        ({"stream_options": {"include_usage": None}}, False),
        ({"stream_options": {"include_usage": False}}, False),
        ({"stream_options": {"include_usage": False, "continuous_usage_stats": True}}, False),
        ({"stream_options": {"continuous_usage_stats": True}}, False),
        ({"stream_options": {"include_usage": True}}, True),
        ({"stream_options": {"include_usage": True, "continuous_usage_stats": True}}, True),
    ],
)
def test_usage_comes_once_at_the_end_and_only_when_asked_for(path: str, options: dict[str, Any], told: bool) -> None:
    """vllm#7262: usage in every chunk. vllm#36379: an empty stream_options brought it."""

    async def test() -> None:
        async with client_over(ReplayRunner([list(b"hello")])) as client:
            *others, last = (await streamed(client, path, **options)).chunks
            usage = (await whole(client, path))["usage"]
        assert (last["choices"] == []) == told and all(chunk["choices"] for chunk in others)
        if told:
            assert {**last["usage"], "prompt_tokens_details": None} == {**usage, "prompt_tokens_details": None}
        continuous = bool((options.get("stream_options") or {}).get("continuous_usage_stats"))
        assert all(("usage" in chunk) == (told and continuous) for chunk in others)

    run(test)


@paths
def test_each_choice_of_a_stream_ends_exactly_once(path: str) -> None:
    """sglang#8417, sglang#4550: two finish chunks, or one for the last index only."""

    async def test() -> None:
        async with client_over(ReplayRunner(SCRIPTS)) as client:
            stream = await streamed(client, path, n=3)
        for index, script in enumerate(SCRIPTS):
            assert stream.text(index).encode() == bytes(script)
            reasons = [choice["finish_reason"] for choice in stream.of(index)]
            assert reasons[-1] == "stop" and not any(reasons[:-1])
        assert {choice["index"] for choice in stream.choices} == {0, 1, 2}

    run(test)


def test_the_openai_client_sees_the_usage_that_comes_behind_the_finish_chunk() -> None:
    """litellm#25410: a client dropped the usage chunk. It is the last one, and has no choices."""
    with (
        serving_in_thread(create_app(FakeEngine())) as url,
        openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client,
    ):
        asked: dict[str, Any] = {"model": "fake", "messages": HI}
        *parts, last = client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True})
        assert not any(part.usage for part in parts) and parts[-1].choices[0].finish_reason == "stop"
        assert last.choices == [] and last.usage == client.chat.completions.create(**asked).usage


@paths
def test_a_stream_of_no_answers_is_a_plain_400_and_the_reply_ends(path: str) -> None:
    """mistral.rs#1874: an error event, and then the stream stayed open."""

    async def test() -> None:
        async with serving(create_app(FakeEngine())) as server:
            reader, writer = await open_raw(server, {**ASKS[path], "stream": True, "n": 0}, path)
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            assert head.startswith(b"http/1.1 400 ") and b"content-type: application/json" in head
            length = int(head.split(b"content-length: ")[1].split(b"\r\n")[0])
            assert b'"param":"n"' in await reader.readexactly(length)
            writer.close()

    run(test)
