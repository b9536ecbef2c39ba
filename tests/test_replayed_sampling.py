"""Reports about determinism and sampling, replayed on a tiny random model in float32 with the real sampler."""

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from fairstep import Engine, SamplingParams
from fakes_serving import events_of
from live_server import LiveServer
from replay_http import TEXT, Json, chunks_of, text_of
from replay_tiny import EOS, SEATS, SECOND_EOS, tiny_config, tiny_directory, tiny_server

PROMPT = "the cat sat on the mat"
SEEDED = SamplingParams(temperature=0.8, seed=42, max_tokens=24, ignore_eos=True)
GREEDY = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True)
LONE_BYTES = [bytes([byte]) for byte in range(0x80, 0xC0)]
NEIGHBOURS = [  # unseeded, seeded and greedy ones
    SamplingParams(temperature=1.5, max_tokens=30, ignore_eos=True),
    SamplingParams(temperature=0.8, seed=42, top_p=0.5, max_tokens=20, ignore_eos=True),
    SamplingParams(temperature=0, max_tokens=25, ignore_eos=True),
    SamplingParams(temperature=1, seed=7, top_k=3, repetition_penalty=1.5, max_tokens=30, ignore_eos=True),
    SamplingParams(temperature=0.3, min_p=0.2, presence_penalty=1, max_tokens=22, ignore_eos=True),
    SamplingParams(temperature=2, logit_bias={5: 20}, max_tokens=12, ignore_eos=True),
    SamplingParams(temperature=1, bad_words=["the"], max_tokens=28, ignore_eos=True),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with tiny_server(tmp_path_factory.mktemp("server")) as server:
        yield server


@pytest.fixture(scope="module")
def client(server: LiveServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=60) as client:
        yield client


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    directory: Path = tiny_directory(tmp_path_factory.mktemp("engine"))
    with Engine(str(directory), tiny_config()) as engine:
        yield engine


def complete(client: httpx.Client, **fields: Any) -> Json:
    reply = client.post(TEXT, json={"prompt": PROMPT, "max_tokens": 24, **fields})
    assert reply.status_code == 200, reply.text
    answer: Json = reply.json()
    return answer


def text(client: httpx.Client, **fields: Any) -> str:
    return text_of(complete(client, **fields)["choices"][0])


def ids_of(engine: Engine, asks: Sequence[tuple[str, SamplingParams]]) -> list[tuple[int, ...]]:
    """All of them together, in this order."""
    prompts, params = [prompt for prompt, _ in asks], [own for _, own in asks]
    return [answer.token_ids for answer in engine.generate(prompts, params)]


def test_a_seeded_answer_is_the_same_with_any_neighbours_at_any_place(engine: Engine) -> None:
    """vllm#51226."""
    (control,) = ids_of(engine, [(PROMPT, SEEDED)])
    others = [(f"{place} hello there", params) for place, params in enumerate(NEIGHBOURS)]
    for _ in range(4):
        assert ids_of(engine, [(PROMPT, SEEDED)]) == [control]
    for place in range(8):
        answers = ids_of(engine, [*others[:place], (PROMPT, SEEDED), *others[place:]])
        assert answers[place] == control
    assert ids_of(engine, [(PROMPT, SEEDED)] * 8) == [control] * 8
    assert any(len(step.slices) == 8 for step in engine.steps), "they never ran together"


def answers_at(engine: Engine, prompts: Sequence[str], at_once: int) -> list[tuple[int, ...]]:
    """Greedy answers with so many under way at a time: each that ends makes room for the next to arrive."""
    ids: dict[str, int] = {}
    answers: list[tuple[int, ...]] = [()] * len(prompts)
    waiting = list(range(len(prompts)))
    while waiting or engine.has_requests:
        if waiting and len(ids) < at_once:
            place = waiting.pop(0)
            ids[engine.submit(prompts[place], SamplingParams(temperature=0, max_tokens=8, ignore_eos=True))] = place
        for delta in engine.step():
            answers[ids[delta.request_id]] += delta.token_ids
            if delta.finish_reason is not None:
                del ids[delta.request_id]
    return answers


def test_greedy_answers_do_not_depend_on_how_many_run(engine: Engine) -> None:
    """vllm#11658, vllm#5898, vllm#23138, omlx#3476."""
    chance = random.Random(6)
    prompts = ["".join(chance.choices("abc the cat", k=chance.randint(1, 60))) for _ in range(SEATS)]
    alone = answers_at(engine, prompts, 1)
    for at_once in (8, SEATS):
        assert answers_at(engine, prompts, at_once) == alone
    burst = [(prompt, SamplingParams(temperature=0, max_tokens=8, ignore_eos=True)) for prompt in prompts]
    assert ids_of(engine, burst) == alone
    assert max(len(step.slices) for step in engine.steps) > 16, "they never ran together"


@pytest.mark.parametrize(
    "narrow",
    [{"temperature": 1, "top_k": 1}, {"temperature": 1, "top_p": 1e-9}, {"temperature": 1e-12}, {"temperature": 1e-5}],
    ids=str,
)
def test_the_narrowest_draws_are_greedy(client: httpx.Client, narrow: dict[str, Any]) -> None:
    """vllm#5404, lmms-eval#1265, vllm#1623, vllm#2937, TensorRT-LLM#15715."""
    for prompt in ("a", "the dog", "hello there, how"):
        greedy = text(client, prompt=prompt, temperature=0, ignore_eos=True)
        assert greedy and text(client, prompt=prompt, ignore_eos=True, **narrow) == greedy


@pytest.mark.parametrize("temperature", [1e-12, 1e-3, 2, 100, None])
def test_no_temperature_gives_what_is_no_number(client: httpx.Client, temperature: float | None) -> None:
    """vllm#1623."""
    reply = complete(client, temperature=temperature, logprobs=3, ignore_eos=True)
    values = reply["choices"][0]["logprobs"]["token_logprobs"]
    assert len(values) == 24 and all(-9999 <= value <= 0 for value in values)


@pytest.mark.parametrize(
    "penalty", [{"repetition_penalty": 1.8}, {"presence_penalty": 2}, {"frequency_penalty": 2}, {"logit_bias": {7: 5}}]
)
def test_a_penalty_beside_a_plain_request_in_both_orders(engine: Engine, penalty: dict[str, Any]) -> None:
    """vllm#5639, vllm#5607."""
    asked = PROMPT, SamplingParams(temperature=0, max_tokens=24, ignore_eos=True, **penalty)
    plain = PROMPT, GREEDY
    control = [*ids_of(engine, [asked]), *ids_of(engine, [plain])]
    assert control[0] != control[1], "the penalty changed nothing"
    assert ids_of(engine, [asked, plain]) == control
    assert ids_of(engine, [plain, asked]) == control[::-1]


@pytest.mark.parametrize("eos", [EOS, SECOND_EOS])
def test_each_id_of_the_models_list_ends_an_answer(client: httpx.Client, eos: int) -> None:
    """vllm#4180, vllm#4182: an eos_token_id of generation_config.json that is a list was not honoured."""
    (choice,) = complete(client, logit_bias={str(eos): 100}, return_token_ids=True)["choices"]
    assert (choice["finish_reason"], choice["text"], choice["token_ids"]) == ("stop", "", [eos])


def test_an_end_that_is_ignored_is_ignored_wherever_it_comes_from(engine: Engine) -> None:
    """vllm#4589, tenstorrent/vllm#349."""
    asks = [SamplingParams(max_tokens=200, ignore_eos=True, logit_bias={eos: 100}) for eos in (EOS, SECOND_EOS)]
    for eos, answer in zip((EOS, SECOND_EOS), engine.generate([PROMPT] * 2, asks), strict=True):
        assert (answer.token_ids, answer.finish_reason, answer.text) == ((eos,) * 200, "length", "")


def test_drawn_bytes_that_are_no_text_are_marks(client: httpx.Client, server: LiveServer) -> None:
    """llama.cpp#9195, llama.cpp#11738: with the real sampler."""
    tokenizer = server.engine.tokenizer
    lone = [token for token in range(tokenizer.vocab_size) if tokenizer.token_bytes(token) in LONE_BYTES][:20]
    fields = {"allowed_token_ids": lone, "temperature": 1.5, "top_k": 100, "max_tokens": 64}
    assert len(lone) == 20 and text(client, **fields) == "\ufffd" * 64
    reply = client.post(TEXT, json={"prompt": PROMPT, "stream": True, **fields})
    assert chunks_of(events_of(reply.content.decode())).text() == "\ufffd" * 64
    assert text(client, temperature=0)
