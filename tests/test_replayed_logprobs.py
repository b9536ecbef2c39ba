"""Reports about log probabilities, replayed on a tiny random model in float32 through the whole path."""

import json
import math
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import httpx
import pytest

from fakes_serving import events_of
from live_server import LiveServer
from replay_http import CHAT, TEXT, Json, Streamed, chunks_of
from replay_tiny import tiny_server

PROMPT = "the cät sat 🫠"
USER = [{"role": "user", "content": PROMPT}]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with tiny_server(tmp_path_factory.mktemp("tiny")) as server:
        yield server


@pytest.fixture(scope="module")
def client(server: LiveServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=60) as client:
        yield client


def no_constant(name: str) -> None:
    raise AssertionError(f"{name} is no JSON")


def ask(client: httpx.Client, path: str, **fields: Any) -> Json:
    asked = {"prompt": PROMPT} if path == TEXT else {"messages": USER}
    reply = client.post(path, json={**asked, "max_tokens": 8, "ignore_eos": True, **fields})
    assert reply.status_code == 200, reply.text
    choice: Json = json.loads(reply.text, parse_constant=no_constant)["choices"][0]
    return choice


def stream(client: httpx.Client, **fields: Any) -> Streamed:
    reply = client.post(TEXT, json={"prompt": PROMPT, "stream": True, **fields})
    assert reply.status_code == 200, reply.text
    return chunks_of(events_of(reply.content.decode()))


def numbers(value: Any) -> Iterator[float]:
    """All numbers in a JSON value."""
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from numbers(item)
    elif isinstance(value, int | float):
        yield value


@pytest.mark.parametrize(
    "fields",
    [
        {"allowed_token_ids": [50, 60]},
        {"logit_bias": {str(token): -100 for token in range(300)}},
        {"temperature": 1, "top_k": 1},
        {"temperature": 1, "top_p": 1e-9},
    ],
    ids=lambda value: str(value)[:40],
)
def test_every_number_is_finite(client: httpx.Client, fields: dict[str, Any]) -> None:
    """sglang#4097, sglang#5984, vllm#10234: minus infinity gave a 500."""
    asks: list[tuple[str, dict[str, Any]]] = [
        (CHAT, {"logprobs": True, "top_logprobs": 5}),
        (TEXT, {"logprobs": 5}),
        (TEXT, {"logprobs": 1, "echo": True}),
        (TEXT, {"logprobs": 1, "echo": True, "max_tokens": 0}),
    ]
    for path, told in asks:
        choice = ask(client, path, **fields, **told)
        found = list(numbers(choice["logprobs"]))
        assert found and all(math.isfinite(value) for value in found)


@pytest.mark.parametrize("prompt", [PROMPT, list(PROMPT.encode()), "x"])
@pytest.mark.parametrize("echo", [False, True])
def test_offsets_are_the_same_both_ways_and_cut_the_text_into_its_tokens(
    client: httpx.Client, prompt: Any, echo: bool
) -> None:
    """vllm#47815."""
    fields = {"prompt": prompt, "echo": echo, "logprobs": 2, "seed": 3, "temperature": 1.5, "max_tokens": 12}
    choice = ask(client, TEXT, **fields)
    lists = choice["logprobs"]
    parts = [part["logprobs"] for part in stream(client, **fields, ignore_eos=True).choices if part["logprobs"]]
    joined = {name: [item for part in parts for item in part[name]] for name in lists}
    assert [joined[name] for name in ("text_offset", "tokens")] == [lists[name] for name in ("text_offset", "tokens")]
    # without an echo the second finds pages of the first: steps of other shapes, and other last bits
    assert joined["token_logprobs"] == pytest.approx(lists["token_logprobs"], abs=1e-4)
    offsets = [*lists["text_offset"], lists["text_offset"][0] + len("".join(lists["tokens"]))]
    start = 0 if echo else offsets[0]
    assert [choice["text"][a - start : b - start] for a, b in pairwise(offsets)] == lists["tokens"]
    assert "".join(lists["tokens"]) == choice["text"]


def test_the_bytes_of_parts_of_characters_join_to_the_text(client: httpx.Client, server: LiveServer) -> None:
    """vllm#6626: tokens that are parts of characters looked all the same."""
    tokenizer = server.engine.tokenizer
    wanted = {bytes([byte]) for byte in "🫠é".encode()} | {b"a"}
    allowed = [token for token in range(tokenizer.vocab_size) if tokenizer.token_bytes(token) in wanted]
    seen = set()
    for seed in range(4):
        fields = {"allowed_token_ids": allowed, "temperature": 2, "seed": seed, "max_tokens": 40}
        choice = ask(client, CHAT, logprobs=True, top_logprobs=3, **fields)
        entries = choice["logprobs"]["content"]
        data = b"".join(bytes(entry["bytes"]) for entry in entries)
        assert len(entries) == 40 and data.decode(errors="replace") == choice["message"]["content"]
        seen |= {bytes(entry["bytes"]) for entry in entries}
    assert seen == wanted


@pytest.mark.parametrize("length", [15, 16, 17, 32])
def test_an_echo_of_a_cached_prompt_is_that_of_a_fresh_one(client: httpx.Client, length: int) -> None:
    """vllm#3251, vllm#3914, vllm#8268, vllm#5344, vllm#13105: prompts of a page and more, a page being 16 tokens."""
    prompt = [40 + (place * length) % 200 for place in range(length)]
    fields = {"prompt": prompt, "echo": True, "logprobs": 2, "temperature": 0}
    first, second = ask(client, TEXT, **fields), ask(client, TEXT, **fields)
    ask(client, TEXT, prompt=prompt, temperature=0)
    assert first == second == ask(client, TEXT, **fields)
    assert len(first["logprobs"]["token_logprobs"]) == length + 8
    assert [value is None for value in first["logprobs"]["token_logprobs"]] == [True] + [False] * (length + 7)
    scored = ask(client, TEXT, **fields, prompt_logprobs=1)["prompt_logprobs"]
    assert len(scored) == length and scored[0] is None
