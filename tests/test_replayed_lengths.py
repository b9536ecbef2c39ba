"""Reports about length limits, replayed through the whole path."""

from typing import Any

import pytest

from fakes_serving import CONTEXT, run
from fakes_text import FakeTokenizer
from replay_engine import ReplayRunner
from replay_http import ASKS, CHAT, TEXT, client_over, whole

paths = pytest.mark.parametrize("path", [CHAT, TEXT])
FRAME = len(FakeTokenizer().encode_chat([{"role": "user", "content": ""}]))
OK, NO = 200, 400


def endless() -> ReplayRunner:
    return ReplayRunner([b"x" * 2 * CONTEXT])


@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens"])
@pytest.mark.parametrize(("length", "fits"), [(CONTEXT - 1, True), (CONTEXT, False), (CONTEXT + 1, False)])
@pytest.mark.parametrize("most", [1, None])
def test_a_conversation_may_leave_one_token_of_the_context(
    length: int, fits: bool, most: int | None, field: str
) -> None:
    """vllm#16445: a prompt of exactly the context."""

    async def test() -> None:
        messages = [{"role": "user", "content": "a" * (length - FRAME)}]
        async with client_over(endless(), pages=128) as client:
            reply = await client.post(CHAT, json={"messages": messages, field: most})
        if fits:
            assert reply.json()["usage"] | {"prompt_tokens_details": 0} == {
                "prompt_tokens": length,
                "completion_tokens": 1,
                "total_tokens": CONTEXT,
                "prompt_tokens_details": 0,
            }
            assert reply.json()["choices"][0]["finish_reason"] == "length"
        else:
            message = reply.json()["error"]["message"]
            assert reply.status_code == NO and str(length) in message and str(CONTEXT) in message

    run(test)


@paths
@pytest.mark.parametrize("prompt", [1, 7, CONTEXT - 20, CONTEXT - 2])
def test_an_answer_without_bounds_of_its_own_ends_exactly_with_the_context(path: str, prompt: int) -> None:
    """vllm#19337: 21 tokens in a context of 20."""

    async def test() -> None:
        asked: dict[str, Any] = {"ignore_eos": True}
        if path == TEXT:
            asked |= {"prompt": [97] * prompt, "max_tokens": CONTEXT - prompt}
        else:
            asked |= {"messages": [{"role": "user", "content": "a" * max(0, prompt - FRAME)}]}
        async with client_over(endless(), pages=128) as client:
            reply = await whole(client, path, **asked)
            one_more = await client.post(TEXT, json={"prompt": [97] * prompt, "max_tokens": CONTEXT - prompt + 1})
        assert reply["usage"]["total_tokens"] == CONTEXT and reply["choices"][0]["finish_reason"] == "length"
        assert one_more.status_code == NO and one_more.json()["error"]["code"] == "context_length_exceeded"

    run(test)


def test_a_pool_smaller_than_the_context_is_the_limit_that_is_told() -> None:
    """vllm#19337, with memory for less than a whole context."""

    async def test() -> None:
        async with client_over(endless(), pages=5) as client:
            reply = await whole(client, prompt=[97] * 7, max_tokens=13, ignore_eos=True)
            too_long = await client.post(TEXT, json={"prompt": [97] * 20})
        assert reply["usage"]["total_tokens"] == 20
        assert too_long.status_code == NO and "20" in too_long.json()["error"]["message"]

    run(test)


MOST: list[tuple[Any, int]] = [(None, OK), (0, NO), (1, OK), (-1, NO), (1.5, NO), ("10", NO), (10**12, NO), (True, NO)]


@paths
@pytest.mark.parametrize(("most", "status"), MOST)
def test_every_max_tokens_is_answered_or_refused(path: str, most: Any, status: int) -> None:
    """vllm#19862, vllm#6707: null gave a 500, or the engine's end."""
    asks = [{"max_tokens": most}]
    if path == CHAT:
        asks += [{"max_completion_tokens": most}, {"max_tokens": 3, "max_completion_tokens": most}]

    async def test() -> None:
        async with client_over(endless(), pages=128) as client:
            for ask in asks:
                for stream in (False, True):
                    reply = await client.post(path, json={**ASKS[path], **ask, "stream": stream})
                    assert reply.status_code == status, reply.text
                    assert status == OK or reply.json()["error"]["param"] in ask
            assert (await whole(client, path))["choices"][0]["finish_reason"] == "length"

    run(test)


@pytest.mark.parametrize(("first", "second", "drawn"), [(3, 5, 5), (5, 3, 3), (None, 4, 4), (4, None, 4)])
def test_of_both_names_the_newer_one_holds(first: int | None, second: int | None, drawn: int) -> None:
    """vllm#19862: both max_* fields at once."""

    async def test() -> None:
        async with client_over(endless()) as client:
            reply = await whole(client, CHAT, max_tokens=first, max_completion_tokens=second)
        assert reply["usage"]["completion_tokens"] == drawn

    run(test)
