"""Reports about stop strings, replayed through the whole path."""

import random
from typing import Any

import pytest

from fairstep.text.stream import TextStream
from fakes_serving import run
from fakes_text import EOS, TURN, FakeTokenizer
from replay_engine import ReplayRunner
from replay_http import CHAT, TEXT, asked_both_ways, client_over, streamed, text_of, whole

paths = pytest.mark.parametrize("path", [CHAT, TEXT])
LETTERS = "abé🫠 \n"  # few letters: every short string comes back somewhere
OUTPUTS = 100


def random_outputs(seed: int, count: int = OUTPUTS) -> list[list[int]]:
    """Ids of texts whose characters are of one to four tokens."""
    draw = random.Random(seed)
    return [list("".join(draw.choices(LETTERS, k=draw.randint(4, 30))).encode()) for _ in range(count)]


def substrings(text: str) -> set[str]:
    return {text[start : start + size] for size in range(2, 13) for start in range(len(text) - size + 1)}


def tokens_until(text: str, stop: str) -> int:
    """How many one-byte tokens were drawn when a text's first `stop` was complete."""
    return len(text[: text.index(stop) + len(stop)].encode())


@paths
def test_no_part_of_a_stop_string_of_plain_characters_is_sent(path: str) -> None:
    """text-generation-inference#1254: <|im_end|> split over two chunks was shown."""
    stop, script = "<|im_end|>", list(b"Bye <|im_end|> tail")

    async def test() -> None:
        async with client_over(ReplayRunner([script])) as client:
            choice, stream = await asked_both_ways(client, path, stop=[stop], max_tokens=len(script))
        assert text_of(choice) == "Bye " and choice["finish_reason"] == "stop" and choice["stop_reason"] == stop
        assert not any("<" in text_of(piece) for piece in stream.choices)

    run(test)


def test_every_substring_of_random_outputs_cuts_where_find_does() -> None:
    """vllm#3672, vllm#3574, vllm#3572, vllm#2577, vllm#3026."""
    tried = 0
    for ids in random_outputs(seed=1):
        text = bytes(ids).decode()
        for stop in substrings(text):
            own = TextStream(FakeTokenizer().detokenizer(()), (stop,))
            pieces = [own.push([token]) for token in ids]
            assert "".join(piece.text for piece in pieces) == text[: text.find(stop)]
            assert own.count == tokens_until(text, stop)
            tried += 1
    assert tried > 5_000


@pytest.mark.parametrize("include", [False, True])
def test_a_cut_answer_is_the_same_both_ways_and_counts_what_was_drawn(include: bool) -> None:
    """vllm#3672, vllm#3574, vllm#3572, vllm#2577, vllm#3026: the same through HTTP, a stop string an output."""
    outputs, draw = random_outputs(seed=2, count=OUTPUTS // 2), random.Random(3)

    async def one(ids: list[int]) -> None:
        text = bytes(ids).decode()
        stop = draw.choice(sorted(substrings(text)))
        fields: dict[str, Any] = {"stop": stop, "max_tokens": len(ids), "return_token_ids": True}
        async with client_over(ReplayRunner([ids])) as client:
            fields["include_stop_str_in_output"] = include
            choice, stream = await asked_both_ways(client, **fields)
            usage = (await streamed(client, **fields, stream_options={"include_usage": True})).chunks[-1]["usage"]
        assert text_of(choice) == text[: text.find(stop)] + (stop if include else "")
        assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", stop)
        assert usage["completion_tokens"] == tokens_until(text, stop)
        assert choice["token_ids"] == stream.joined("token_ids") == ids[: tokens_until(text, stop)]

    async def test() -> None:
        for ids in outputs:
            await one(ids)

    run(test)


@paths
def test_a_stop_id_that_is_a_special_token_cuts_nothing_else(path: str) -> None:
    """vllm#3672: the text before a special stop token was truncated as if that token had text."""

    async def test() -> None:
        script = [*b"whole", TURN, *b"never"]
        async with client_over(ReplayRunner([script])) as client:
            for fields, text in (
                ({}, "whole"),
                ({"include_stop_str_in_output": True, "skip_special_tokens": False}, "whole<turn>"),
            ):
                choice, _ = await asked_both_ways(client, path, stop_token_ids=[TURN], **fields)
                assert (text_of(choice), choice["stop_reason"]) == (text, TURN)
            assert (await whole(client, path, stop_token_ids=[TURN]))["usage"]["completion_tokens"] == 6

    run(test)


def test_text_ids_and_log_probabilities_belong_together_beside_a_stop_string() -> None:
    """vllm#11089, vllm#31135: empty deltas, and chunks whose ids were not those of their text."""
    script = [*"ZZé🫠ZZZ".encode(), *b"ZZZZ end ZZ"]  # held back, released, held back until the end

    async def test() -> None:
        fields = {"stop": ["ZZZZZZZZ"], "logprobs": 0, "return_token_ids": True, "max_tokens": len(script)}
        async with client_over(ReplayRunner([script])) as client:
            choice, stream = await asked_both_ways(client, **fields)
        assert text_of(choice) == bytes(script).decode() and stream.joined("token_ids") == script
        for piece in stream.choices[:-1]:
            assert piece["token_ids"] and piece["text"], "an empty delta"
        for piece in stream.choices:
            ids, tokens = piece["token_ids"], (piece["logprobs"] or {"tokens": []})["tokens"]
            assert bytes(ids).decode() == piece["text"] == "".join(tokens) and len(ids) == len(tokens)

    run(test)


def test_text_ids_and_log_probabilities_of_a_chat_belong_together() -> None:
    """vllm#11089, vllm#31135."""
    script = [*"ZZé".encode(), *b"ZZZZ end ZZ"]

    async def test() -> None:
        fields = {"stop": ["ZZZZZZZZ"], "logprobs": True, "return_token_ids": True, "max_tokens": len(script)}
        async with client_over(ReplayRunner([script])) as client:
            _, stream = await asked_both_ways(client, CHAT, **fields)
        for piece in stream.choices[1:]:
            entries = (piece["logprobs"] or {"content": []})["content"]
            assert bytes(piece["token_ids"]).decode() == text_of(piece)
            assert bytes(byte for entry in entries for byte in entry["bytes"]).decode() == text_of(piece)

    run(test)


@paths
def test_a_stop_string_waits_for_min_tokens(path: str) -> None:
    """vllm#21987."""
    script = list(b"ab\n" * 40)

    async def test() -> None:
        fields = {"stop": ["\n"], "min_tokens": 50, "ignore_eos": True, "max_tokens": len(script)}
        async with client_over(ReplayRunner([script])) as client:
            choice, _ = await asked_both_ways(client, path, **fields)
            usage = (await whole(client, path, **fields))["usage"]
        assert usage["completion_tokens"] == 51 and choice["finish_reason"] == "stop"
        assert text_of(choice) == "ab\n" * 16 + "ab"

    run(test)


@paths
@pytest.mark.parametrize("ignore_eos", [False, True])
def test_a_stop_string_that_is_a_special_token_stops(path: str, ignore_eos: bool) -> None:
    """vllm#792."""
    for text, token in (("<eos>", EOS), ("<turn>", TURN)):
        script = [*b"clean", token, *b"never"]

        async def test(text: str = text, script: list[int] = script) -> None:
            async with client_over(ReplayRunner([script])) as client:
                choice, _ = await asked_both_ways(client, path, stop=[text], ignore_eos=ignore_eos)
            assert text_of(choice) == "clean" and choice["finish_reason"] == "stop" and choice["stop_reason"] == text

        run(test)
