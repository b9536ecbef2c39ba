"""Reports about preemption and scheduling, replayed on a model whose answers hang on what it reads through pages."""

import asyncio
from collections import Counter
from dataclasses import replace

import pytest

from fairstep import Engine, SamplingParams
from fakes_serving import run
from fakes_text import FakeTokenizer
from fakes_worker import fake_build, settings
from replay_http import engine_over
from replay_memory import MemoryRunner, text_alone

PAGE = 4
LONG = SamplingParams(temperature=0, max_tokens=40, ignore_eos=True)


def engine_of(runner: MemoryRunner, **changes: int) -> Engine:
    build = fake_build(runner, settings(page_size=PAGE, **changes))  # type: ignore[arg-type]
    return Engine("fake", tokenizer=FakeTokenizer(), build_worker=build)  # type: ignore[arg-type]


@pytest.mark.parametrize("prefix", [True, False])
@pytest.mark.parametrize("seats", [2, 4, 8])
def test_a_pool_too_small_for_all_gets_on_in_each_step_and_preempts_no_one_for_ever(seats: int, prefix: bool) -> None:
    """vllm#25538: sequences were preempted and resumed in each step."""
    runner = MemoryRunner(PAGE)
    prompts = [list(f"prompt number {n}".encode()) for n in range(8)]
    with engine_of(runner, seats=seats, pages=20, context=60, prefix_cache=prefix) as engine:
        answers = engine.generate(prompts, LONG)
        engine.check()
        steps = engine.steps
    assert [answer.text for answer in answers] == [text_alone(prompt, 40) for prompt in prompts]
    attempts: Counter[int] = Counter()
    for step in steps:
        assert step.slices, "a step computed nothing"
        for piece in step.slices:
            attempts[piece.seq] = max(attempts[piece.seq], piece.attempt)
    assert 1 < max(attempts.values()) <= 8, "nobody was preempted, or somebody again and again"
    drawn = sum(piece.samples for plan in runner.plans for piece in plan.slices)
    assert drawn == 8 * 40, "a token was drawn twice"
    computed = sum(len(piece.tokens) for plan in runner.plans for piece in plan.slices)
    assert computed < 3 * sum(len(prompt) + 40 for prompt in prompts), "most work was done again"


def test_a_long_prompt_waits_for_a_pool_that_decodes_have_filled() -> None:
    """sglang#30743: chunks of a prompt took more pages than there were, and the server ended."""
    runner = MemoryRunner(PAGE)
    prompts = [list(f"decode {n}".encode()) for n in range(3)] + [[97 + place % 26 for place in range(60)]]
    texts, ends = [""] * 4, []
    with engine_of(runner, pages=36, chunk=8, context=120) as engine:
        places = {engine.submit(prompt, LONG): place for place, prompt in enumerate(prompts[:3])}
        while engine.has_requests:
            for delta in engine.step():
                texts[places[delta.request_id]] += delta.text
                if delta.finish_reason is not None:
                    ends.append((places[delta.request_id], delta.finish_reason))
            engine.check()
            if len(engine.steps) == 24:
                places[engine.submit(prompts[3], replace(LONG, max_tokens=10))] = 3
        first_of_long = next(n for n, step in enumerate(engine.steps) if any(piece.seq == 4 for piece in step.slices))
    assert first_of_long > 25, "there was room for it at once"
    assert [reason for _, reason in ends] == ["length"] * 4 and ends[-1][0] == 3
    assert texts == [text_alone(prompt, 40) for prompt in prompts[:3]] + [text_alone(prompts[3], 10)]


@pytest.mark.parametrize("chunk", [8, 64])
def test_a_stream_gets_a_token_in_each_step_of_a_long_prompt(chunk: int) -> None:
    """vllm#7537, qwen3.8-Flash-DGX#9: one long prompt stalled all decodes for seconds."""
    runner = MemoryRunner(PAGE)
    prompt, long = list(b"stream"), [97 + place % 26 for place in range(2_000)]

    async def test() -> None:
        async with engine_over(runner, pages=1_000, context=3_000, chunk=chunk) as engine:
            stream = engine.submit(prompt, replace(LONG, max_tokens=2_500))
            text = (await anext(stream)).text
            answer = await engine.generate(long, replace(LONG, max_tokens=3))
            stream.cancel()
            text += "".join([delta.text async for delta in stream])
        assert answer.text == text_alone(long, 3) and text == text_alone(prompt, len(text))

    run(test)
    reading = [plan for plan in runner.plans if any(not piece.decode and piece.seq == 2 for piece in plan.slices)]
    assert len(reading) >= 2_000 // 64
    for plan in reading:
        assert [piece.seq for piece in plan.slices if piece.decode] == [1], "the stream was left out of a step"
        assert sum(len(piece.tokens) for piece in plan.slices if not piece.decode) <= chunk


def test_many_arrivals_on_a_small_pool_all_get_the_answer_of_an_idle_engine() -> None:
    """vllm#25538, sglang#30743: together, with arrivals at any time."""
    prompts = [[97 + (n * place) % 26 for place in range(5 + 7 * n % 40)] for n in range(40)]

    async def test() -> None:
        async with engine_over(MemoryRunner(PAGE), pages=24, context=90, chunk=8) as engine:

            async def late(place: int) -> str:
                for _ in range(place * 3):
                    await asyncio.sleep(0)
                return (await engine.generate(prompts[place], LONG)).text

            texts = await asyncio.gather(*map(late, range(len(prompts))))
        assert texts == [text_alone(prompt, 40) for prompt in prompts]

    run(test)
