"""Sampling through a whole Engine on a tiny random model: what a request asks is kept over preemptions, restarts, page
edges and whoever else is there."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from fairstep import Completion, Delta, Engine, EngineConfig, SamplingParams
from fairstep.door import TokenLogprobs
from fairstep.request import SEED_STEP
from three_engines import AsyncFace, SyncFace, engine_of
from tiny_models import tiny_llama

PAGE = 8
ROOMY = EngineConfig(
    dtype="float32",
    kv_memory="8MiB",
    page_size=PAGE,
    max_seats=8,
    step_tokens=64,
    chunk=32,
    threads=1,
    inter_token_target_ms=3_600_000.0,  # no plan hangs on how fast this machine is
)
# 8 usable pages for four sequences that grow to more than four pages each
TINY = replace(ROOMY, kv_memory=9 * PAGE * 2 * 2 * 2 * 16 * 4, max_seats=4, step_tokens=32)
EVERYTHING = SamplingParams(
    temperature=0.9,
    top_p=0.95,
    seed=11,
    max_tokens=30,
    ignore_eos=True,
    repetition_penalty=1.3,
    presence_penalty=0.4,
    frequency_penalty=0.6,
    logit_bias={40: 2.0, 41: -100.0},
    bad_words=["a", "the"],
    logprobs=2,
)
PROMPTS = [[20 + n, 30, 40, 50] for n in range(4)]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tiny_llama(tmp_path_factory.mktemp("tiny-llama")))


@pytest.fixture(scope="module")
def roomy(model: str) -> Iterator[Engine]:
    with Engine(model, ROOMY) as engine:
        yield engine


def close(left: Sequence[TokenLogprobs | None], right: Sequence[TokenLogprobs | None]) -> bool:
    """The same ids with the same values, but for rounding, which may also swap two ranks."""
    return len(left) == len(right) and all(
        one == other
        or (
            one is not None
            and other is not None
            and one.ids == other.ids
            and abs(one.rank - other.rank) <= 1
            and all(math.isclose(a, b, abs_tol=1e-4) for a, b in zip(one.values, other.values, strict=True))
        )
        for one, other in zip(left, right, strict=True)
    )


def counter(engine: Engine, name: str) -> float:
    (line,) = [x for x in engine.render_metrics().decode().splitlines() if x.startswith(f"fairstep:{name}{{")]
    return float(line.split()[-1])


def test_a_seeded_request_is_the_same_after_a_restart_and_across_preemption(model: str, roomy: Engine) -> None:
    alone = [roomy.generate([prompt], EVERYTHING)[0] for prompt in PROMPTS]
    with Engine(model, TINY) as tiny:
        together = tiny.generate(PROMPTS, EVERYTHING)
        assert counter(tiny, "num_preemptions_total") > 0
        tiny.check()
    with Engine(model, ROOMY) as again:
        after = again.generate(PROMPTS, EVERYTHING)
    for control, crowded, restarted in zip(alone, together, after, strict=True):
        assert control.token_ids == crowded.token_ids == restarted.token_ids
        assert control.text == crowded.text == restarted.text
        assert len(control.logprobs) == 30
        assert close(control.logprobs, crowded.logprobs) and close(control.logprobs, restarted.logprobs)


def test_penalties_count_what_was_drawn_before_a_preemption(model: str, roomy: Engine) -> None:
    """So strong that no token comes twice, unless an attempt forgets what came before."""
    params = SamplingParams(temperature=0, max_tokens=30, ignore_eos=True, presence_penalty=2, logit_bias={}, seed=1)
    strong = replace(params, repetition_penalty=100.0)
    with Engine(model, TINY) as tiny:
        answers = tiny.generate(PROMPTS, strong)
        assert counter(tiny, "num_preemptions_total") > 0
    assert [answer.token_ids for answer in answers] == [
        roomy.generate([prompt], strong)[0].token_ids for prompt in PROMPTS
    ]
    assert all(len(set(answer.token_ids)) == 30 for answer in answers)


@pytest.mark.parametrize("length", [1, PAGE - 1, PAGE, PAGE + 1, 2 * PAGE, 5 * PAGE])
def test_echoed_prompts_have_the_same_log_probabilities_when_their_pages_are_cached(model: str, length: int) -> None:
    prompt = [11 + 7 * n % 200 for n in range(length)]
    params = SamplingParams(temperature=0, max_tokens=4, ignore_eos=True, logprobs=2, prompt_logprobs=2)
    with Engine(model, ROOMY) as engine:
        once, again = (engine.generate([prompt], params)[0] for _ in range(2))
        plain = engine.generate([prompt], replace(params, prompt_logprobs=None))[0]
    assert once.prompt_logprobs[0] is None and len(once.prompt_logprobs) == length
    assert [item.ids[0] for item in once.prompt_logprobs[1:] if item] == prompt[1:]
    assert replace(once, request_id="") == replace(again, request_id="")
    assert again.usage.cached_tokens == 0
    assert plain.token_ids == once.token_ids and plain.usage.cached_tokens == (length - 1) // PAGE * PAGE


def scored(engine: Engine, tokens: Sequence[int]) -> Completion:
    return engine.generate([tokens], SamplingParams(max_tokens=0, prompt_logprobs=1))[0]


def test_what_was_drawn_and_the_same_text_as_a_prompt_have_the_same_log_probabilities(roomy: Engine) -> None:
    prompt = PROMPTS[0]
    drawn = roomy.generate([prompt], SamplingParams(temperature=1, seed=3, max_tokens=20, ignore_eos=True, logprobs=1))[
        0
    ]
    score = scored(roomy, [*prompt, *drawn.token_ids])
    assert close(score.prompt_logprobs[len(prompt) :], drawn.logprobs)
    assert (score.finish_reason, score.token_ids, score.usage.completion_tokens) == ("length", (), 0)


def test_a_prompt_is_scored_the_same_in_chunks_and_across_preemption(model: str, roomy: Engine) -> None:
    long = [[11 + (7 * n + m) % 200 for n in range(30)] for m in range(4)]
    alone = [scored(roomy, prompt) for prompt in long]
    params = SamplingParams(temperature=0, max_tokens=25, ignore_eos=True, prompt_logprobs=1)
    with Engine(model, replace(TINY, step_tokens=8, chunk=5)) as tiny:
        together = tiny.generate(long, params)
        assert counter(tiny, "num_preemptions_total") > 0
    assert all(close(a.prompt_logprobs, b.prompt_logprobs) for a, b in zip(alone, together, strict=True))


@pytest.mark.parametrize("chunk", [PAGE, 2 * PAGE, 5 * PAGE])
def test_prompts_around_page_edges_answer_the_same_when_cached(model: str, roomy: Engine, chunk: int) -> None:
    params = SamplingParams(temperature=0, max_tokens=6, ignore_eos=True)
    with Engine(model, replace(ROOMY, chunk=chunk, step_tokens=max(64, chunk + 8))) as engine:
        for length in [k * PAGE + more for k in range(1, 5) for more in (-1, 0, 1)]:
            prompt = [(length * 13 + n * 7) % 200 for n in range(length)]
            once, again = (engine.generate([prompt], params)[0] for _ in range(2))
            control = roomy.generate([prompt], replace(params, prompt_logprobs=0))[0]
            assert once.token_ids == again.token_ids == control.token_ids, length
            assert (once.usage.cached_tokens, again.usage.cached_tokens) == (0, (length - 1) // PAGE * PAGE)
            engine.check()


def group(face: SyncFace | AsyncFace, prompt: Sequence[int], params: SamplingParams, n: int) -> list[Completion]:
    if isinstance(face, SyncFace):
        return group_of(face.engine, prompt, params, n)
    own = face.engine

    async def together() -> list[Completion]:
        return [await stream.completion() for stream in own.submit_group(prompt, params, n)]

    return face.run(together())


def group_of(engine: Engine, prompt: Sequence[int], params: SamplingParams, n: int) -> list[Completion]:
    parts: dict[str, list[Delta]] = {request_id: [] for request_id in engine.submit_group(prompt, params, n)}
    while engine.has_requests:
        for delta in engine.step():
            parts[delta.request_id].append(delta)
        engine.check()
    return [Completion.join(deltas) for deltas in parts.values()]


@pytest.mark.parametrize(
    ("kind", "prefix_cache"), [("engine", True), ("engine", False), ("thread", True), ("process", False)]
)
def test_siblings_share_their_prompt_and_draw_as_they_would_alone(
    model: str, roomy: Engine, kind: str, prefix_cache: bool
) -> None:
    prompt = [11 + 3 * n % 200 for n in range(3 * PAGE + 2)]
    params = SamplingParams(temperature=1, seed=5, max_tokens=12, ignore_eos=True)
    with engine_of(kind, model, replace(ROOMY, prefix_cache=prefix_cache)) as face:
        answers = group(face, prompt, params, 4)
    alone = [roomy.generate([prompt], replace(params, seed=(5 + n * SEED_STEP) % 2**64))[0].token_ids for n in range(4)]
    assert [answer.token_ids for answer in answers] == alone and len(set(alone)) == 4
    assert [answer.usage.cached_tokens for answer in answers] == [0, 3 * PAGE, 3 * PAGE, 3 * PAGE]
    assert {answer.usage.prompt_tokens for answer in answers} == {len(prompt)}


@pytest.mark.parametrize("kind", ["engine", "thread"])
def test_no_tokens_asked_for_ends_at_once(model: str, kind: str) -> None:
    with engine_of(kind, model, ROOMY) as face:
        answers = group(face, [5, 6], SamplingParams(max_tokens=0), 2)
        assert [(a.text, a.finish_reason, a.usage.prompt_tokens) for a in answers] == [("", "length", 2)] * 2
        (scored_one,) = group(face, [5, 6], SamplingParams(max_tokens=0, prompt_logprobs=0), 1)
        assert [item and item.ids for item in scored_one.prompt_logprobs] == [None, (6,)]


def test_siblings_survive_a_pool_that_is_too_small_for_all(model: str, roomy: Engine) -> None:
    params = replace(EVERYTHING, logprobs=None)
    with Engine(model, TINY) as tiny:
        answers = group_of(tiny, PROMPTS[0], params, 6)
        assert counter(tiny, "num_preemptions_total") > 0
    seeds = [(11 + n * SEED_STEP) % 2**64 for n in range(6)]
    assert [answer.token_ids for answer in answers] == [
        roomy.generate([PROMPTS[0]], replace(params, seed=seed))[0].token_ids for seed in seeds
    ]
