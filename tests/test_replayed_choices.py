"""Reports about several answers to one prompt, replayed through the whole path."""

from typing import Any

import pytest

from fairstep.request import SEED_BITS, SEED_STEP
from fakes_serving import run
from replay_engine import ReplayRunner
from replay_http import CHAT, TEXT, client_over, streamed, text_of, whole
from replay_memory import MemoryRunner, text_alone

PROMPT = list(b"tell me")
SEED, TOKENS = 7, 64
paths = pytest.mark.parametrize("path", [CHAT, TEXT])


def expected(n: int) -> list[str]:
    """Each sibling's answer by itself, on an idle engine."""
    return [text_alone(PROMPT, TOKENS, seed=(SEED + place * SEED_STEP) % 2**SEED_BITS) for place in range(n)]


@pytest.mark.parametrize("prefix", [True, False])
@pytest.mark.parametrize("seats", [1, 4])
def test_seeded_answers_differ_and_are_the_same_again(seats: int, prefix: bool) -> None:
    """vllm#11898: n identical answers."""
    fields = {"prompt": PROMPT, "n": 4, "seed": SEED, "temperature": 1, "max_tokens": TOKENS, "ignore_eos": True}

    async def test() -> None:
        async with client_over(MemoryRunner(), seats=seats, prefix_cache=prefix) as client:
            replies = [(await whole(client, **fields))["choices"] for _ in range(2)]
            stream = await streamed(client, **fields)
        for texts in (*(list(map(text_of, reply)) for reply in replies), [stream.text(index) for index in range(4)]):
            assert texts == expected(4)
        assert len(set(expected(4))) == 4

    run(test)


@paths
@pytest.mark.parametrize("short", range(4))
def test_one_that_ends_early_silences_none_of_the_others(path: str, short: int) -> None:
    """vllm#11898: after the first had finished, the others got no chunks."""
    scripts = [list(f"answer {place}: ".encode()) + [ord("x")] * 50 for place in range(4)]
    scripts[short] = list(b"no")

    async def test() -> None:
        async with client_over(ReplayRunner(scripts)) as client:
            stream = await streamed(client, path, n=4, max_tokens=61)
        assert [stream.text(index) for index in range(4)] == [bytes(script).decode() for script in scripts]
        assert [stream.reasons(index) for index in range(4)] == [
            ["stop"] if place == short else ["length" if len(script) == 61 else "stop"]
            for place, script in enumerate(scripts)
        ]

    run(test)


@paths
def test_each_answer_of_a_whole_reply_is_its_own(path: str) -> None:
    """vllm#14280, vllm#16863: the outputs overwrote each other."""
    scripts = [list(b"the first answer"), list(b"and a second, longer one")]

    async def test() -> None:
        async with client_over(ReplayRunner(scripts), seats=1) as client:  # they go through the waiting room one by one
            reply: Any = await whole(client, path, n=2, max_tokens=40, return_token_ids=True)
        assert [text_of(choice).encode() for choice in reply["choices"]] == [bytes(script) for script in scripts]
        assert [choice["token_ids"][:-1] for choice in reply["choices"]] == scripts
        assert reply["usage"]["completion_tokens"] == sum(len(script) + 1 for script in scripts)

    run(test)
