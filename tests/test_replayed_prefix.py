"""Reports about the prefix cache, replayed on a model whose answers hang on every token that it reads through pages."""

import asyncio
import gc
import sys
from typing import Any

import pytest

from fairstep import AsyncEngine, Engine, SamplingParams
from fakes_serving import run
from fakes_text import FakeTokenizer
from fakes_worker import FakeRunner, fake_build, settings
from replay_http import client_over, engine_over, text_of, until_idle, whole
from replay_memory import MemoryRunner, text_alone

PAGE = 4
GREEDY = SamplingParams(temperature=0, max_tokens=6, ignore_eos=True)
PROMPTS, TOGETHER = 20_000, 8
SETTLED = 10_000  # prompts after which every table and ring has its full size


def prompt_of(length: int, seed: int = 0) -> list[int]:
    return [97 + (place * place + 7 * seed) % 26 for place in range(length)]


@pytest.mark.parametrize("chunk", [PAGE, 2 * PAGE, 64])
def test_prompts_around_whole_pages_are_found_again_but_for_their_last_token(chunk: int) -> None:
    """vllm#50409, vllm#50235, vllm#7753, vllm#7380: no hits, a crash or a wrong last token."""

    async def test() -> None:
        for length in (k * PAGE + more for k in range(1, 5) for more in (-1, 0, 1)):
            async with client_over(MemoryRunner(PAGE), chunk=chunk) as client:
                prompt = prompt_of(length)
                fields: dict[str, Any] = {"prompt": prompt, "temperature": 0, "max_tokens": 6, "ignore_eos": True}
                replies = [await whole(client, **fields) for _ in range(3)]
            assert [text_of(reply["choices"][0]) for reply in replies] == [text_alone(prompt, 6)] * 3
            cached = [reply["usage"]["prompt_tokens_details"]["cached_tokens"] for reply in replies]
            assert cached == [0] + [(length - 1) // PAGE * PAGE] * 2

    run(test)


@pytest.mark.parametrize("length", [PAGE - 1, PAGE, PAGE + 1, 2 * PAGE])
@pytest.mark.parametrize("echo", [{"echo": True, "logprobs": 1}, {"prompt_logprobs": 0}], ids=str)
def test_a_cached_prompt_tells_the_same_log_probabilities(length: int, echo: dict[str, Any]) -> None:
    """vllm#3251, vllm#3914, vllm#8268, vllm#5344, vllm#13105: the shapes did not fit, and the engine died."""

    async def test() -> None:
        fields: dict[str, Any] = {"prompt": prompt_of(length), "temperature": 0, "max_tokens": 6, "ignore_eos": True}
        async with client_over(MemoryRunner(PAGE)) as client:
            control = (await whole(client, **fields, **echo))["choices"]
        async with client_over(MemoryRunner(PAGE)) as client:
            await whole(client, **fields)
            assert [(await whole(client, **fields, **echo))["choices"] for _ in range(2)] == [control] * 2

    run(test)


async def prompt_work(engine: AsyncEngine, runner: MemoryRunner, prompt: list[int], tenant: str) -> tuple[int, int]:
    """Cached tokens that are told, and prompt tokens that were computed: what the first token waits for."""
    before = runner.prompt_tokens
    answer = await engine.generate(prompt, GREEDY, tenant=tenant)
    await until_idle(engine)
    assert answer.text == text_alone(prompt, 6)
    return answer.usage.cached_tokens, runner.prompt_tokens - before


def test_another_tenants_prefix_cannot_be_told_by_its_counts_or_its_work() -> None:
    """CVE-2025-46570, vllm#17045, vllm#16016: others' prompts showed in the time to the first token."""
    secret, other = prompt_of(120), prompt_of(120, seed=1)
    probe = [*secret[:100], *b"guess"]

    async def test() -> None:
        runner = MemoryRunner(PAGE)
        async with engine_over(runner, pages=256) as engine:
            await prompt_work(engine, runner, secret, "a")
            assert await prompt_work(engine, runner, probe, "b") == (0, len(probe))
            assert await prompt_work(engine, runner, secret, "b") == (100, 20), "only b's own probe is found"
            assert await prompt_work(engine, runner, other, "b") == (0, len(other))
            assert await prompt_work(engine, runner, secret, "a") == (116, 4)

    run(test)


def test_prompts_of_equal_sums_and_swapped_pages_are_never_taken_for_each_other() -> None:
    """GHSA-rm76-4mrf-v9r8: keys that could be made to collide."""
    first = prompt_of(6 * PAGE)
    swapped = [*first[PAGE : 2 * PAGE], *first[:PAGE], *first[2 * PAGE :]]
    shifted = [*first[1:], first[0]]
    negative = [first[0] - 1, first[1] + 1, *first[2:]]

    async def test() -> None:
        runner = MemoryRunner(PAGE)
        async with engine_over(runner) as engine:
            for prompt in (first, swapped, shifted, negative):
                assert (await prompt_work(engine, runner, prompt, "a"))[0] == 0

    run(test)


def test_twenty_thousand_distinct_prompts_keep_no_more_memory_than_some() -> None:
    """vllm#28726: host memory grew with each prompt while the cache was on."""
    runner = FakeRunner()
    runner.before = lambda plan: runner.plans.clear()
    build: Any = fake_build(runner, settings(seats=TOGETHER, pages=8 * TOGETHER, step_tokens=512))
    engine = Engine("fake", tokenizer=FakeTokenizer(), build_worker=build)  # type: ignore[arg-type]
    last = SamplingParams(temperature=0, max_tokens=1)

    def answer(numbers: range) -> int:
        """Memory blocks in use when each number had its prompt."""
        for first in numbers[::TOGETHER]:
            engine.generate([f"{number:05} and more" for number in range(first, first + TOGETHER)], last)
        gc.collect()
        return sys.getallocatedblocks()

    before = answer(range(SETTLED))
    after = answer(range(SETTLED, PROMPTS))
    engine.check()
    assert after - before < 3_000, f"blocks kept after {PROMPTS - SETTLED} more prompts"


def test_a_cache_that_is_full_goes_on_serving_everyone() -> None:
    """vllm#28726: the same prompts through the asynchronous engine; nothing is held at the end."""

    async def test() -> None:
        async with engine_over(MemoryRunner(PAGE), pages=64) as engine:
            for first in range(0, 200, 8):
                prompts = [prompt_of(20, seed=first + n) for n in range(8)]
                answers = await asyncio.gather(*(engine.generate(prompt, GREEDY) for prompt in prompts))
                assert [answer.text for answer in answers] == [text_alone(prompt, 6) for prompt in prompts]
            await until_idle(engine)

    run(test)
