"""Reports about detokenizing and Unicode, replayed through the whole path: a model that says given ids, HTTP, SSE."""

import asyncio

import pytest

from fairstep.serving.app import create_app
from fairstep.text.sentencepiece_codec import SentencePieceCodec
from fakes_serving import run
from raw_http import serving
from replay_engine import ReplayRunner
from replay_http import CHAT, TEXT, asked_both_ways, client_over, engine_over, over_a_socket, text_of, whole
from replay_tokens import TEMPLATE, Make, both, byte_ids, fast, plain_ids, sentencepiece
from trained_vocabularies import exact

STRINGS = ("a🫠b龜c", "Repeat exactly: 🫠🥹龜é")
paths = pytest.mark.parametrize("path", [CHAT, TEXT])


@both
@paths
@pytest.mark.parametrize("text", STRINGS)
def test_characters_of_several_tokens_arrive_whole(make: Make, path: str, text: str) -> None:
    """llama.cpp#4036, llama.cpp#4446."""
    tokenizer = make(TEMPLATE)
    script = [*plain_ids(tokenizer, text), tokenizer.eos_id]

    async def test() -> None:
        async with engine_over(ReplayRunner([script]), tokenizer) as engine, serving(create_app(engine)) as server:
            stream = await over_a_socket(server, path, return_token_ids=True, max_tokens=99)
        assert "".join(map(text_of, stream.choices)) == tokenizer.decode(script) == text
        assert not any("\ufffd" in text_of(choice) for choice in stream.choices)
        assert stream.joined("token_ids") == script
        async with client_over(ReplayRunner([script]), tokenizer) as client:
            choice, _ = await asked_both_ways(client, path, max_tokens=99)
        assert text_of(choice) == text

    run(test)


@both
@paths
def test_a_stray_byte_is_one_mark_and_the_rest_follows(make: Make, path: str) -> None:
    """llama.cpp#27543, llama.cpp#28724."""
    tokenizer = make(TEMPLATE)
    script = [*plain_ids(tokenizer, "ok ✅"), *byte_ids(tokenizer, b"\x85 done")]

    async def test() -> None:
        async with client_over(ReplayRunner([script]), tokenizer) as client:
            choice, _ = await asked_both_ways(client, path, max_tokens=len(script))
        assert text_of(choice) == "ok ✅\ufffd done"

    run(test)


@both
@paths
def test_lone_continuation_bytes_are_marks_and_the_server_lives(make: Make, path: str) -> None:
    """llama.cpp#9195, llama.cpp#11738."""
    tokenizer = make(TEMPLATE)
    script = byte_ids(tokenizer, bytes(0x80 + place % 20 for place in range(64)))

    async def test() -> None:
        async with client_over(ReplayRunner([script]), tokenizer) as client:
            choice, _ = await asked_both_ways(client, path, max_tokens=64)
            assert text_of(choice) == "\ufffd" * 64
            await asked_both_ways(client, path, max_tokens=1)
            assert (await client.get("/health")).status_code == 200

    run(test)


@both
@pytest.mark.parametrize(("answer", "text"), [(b"\x8c\xb6 hot", " hot"), (b" plain", " plain"), (b"\xf0\x9f", "")])
def test_a_prompt_that_ends_inside_a_character_does_not_leak(make: Make, answer: bytes, text: str) -> None:
    """vllm#48853."""
    tokenizer = make()
    prompt = [*plain_ids(tokenizer, "Hello world "), *byte_ids(tokenizer, "🌶".encode()[:2])]
    script = byte_ids(tokenizer, answer)

    async def test() -> None:
        async with client_over(ReplayRunner([script]), tokenizer) as client:
            choice, stream = await asked_both_ways(client, prompt=prompt, max_tokens=len(script))
        assert text_of(choice).strip("\ufffd") == text
        assert not any("Hello" in text_of(piece) for piece in stream.choices)

    run(test)


def test_an_answer_keeps_the_spaces_it_begins_with() -> None:
    """mlx-lm#1754: the leading space was taken off twice."""
    codec = SentencePieceCodec(exact("bpe"))
    spaced = [token for token in map(codec.id_of, ("▁", "▁the", "▁a")) if token is not None]
    pieces, bytewise = sentencepiece(), fast()
    cases = [(pieces, spaced, "  the a"), (bytewise, plain_ids(bytewise, " the cat"), " the cat")]

    async def test() -> None:
        for tokenizer, script, text in cases:
            prompt = plain_ids(tokenizer, "cat")
            async with client_over(ReplayRunner([script]), tokenizer) as client:
                choice, stream = await asked_both_ways(client, prompt=prompt, max_tokens=len(script))
            assert text_of(choice) == text == tokenizer.decode([*prompt, *script]).removeprefix("cat")
            assert text_of(stream.choices[0]).startswith(text[:1])

    run(test)


@both
def test_eight_streams_at_once_say_what_one_says(make: Make) -> None:
    """mlx-vlm#1076, exo#1691: the batched path decoded tokens singly."""
    tokenizer = make()
    script = [*plain_ids(tokenizer, STRINGS[1]), tokenizer.eos_id]

    async def test() -> None:
        runner = ReplayRunner([script])
        async with engine_over(runner, tokenizer, seats=8) as engine, serving(create_app(engine)) as server:
            alone = await over_a_socket(server, max_tokens=99)
            together = await asyncio.gather(*(over_a_socket(server, max_tokens=99) for _ in range(8)))
        assert max(len(plan.slices) for plan in runner.plans) > 1, "no two ran together"
        for stream in together:
            assert stream.text() == alone.text() == STRINGS[1]
            assert not any("\ufffd" in text_of(choice) for choice in stream.choices)

    run(test)


@both
@paths
def test_special_tokens_are_hidden_both_ways_unless_asked_for(make: Make, path: str) -> None:
    """dynamo#8780, vllm#46224."""
    tokenizer = make(TEMPLATE)
    assert tokenizer.bos_id is not None
    script = [*plain_ids(tokenizer, "cat"), tokenizer.bos_id, *byte_ids(tokenizer, b"s"), tokenizer.eos_id]
    bos = tokenizer.token_text(tokenizer.bos_id)

    async def test() -> None:
        async with client_over(ReplayRunner([script]), tokenizer) as client:
            for fields, text in (
                ({}, "cats"),
                ({"skip_special_tokens": True}, "cats"),
                ({"skip_special_tokens": None}, "cats"),
                ({"skip_special_tokens": False}, f"cat{bos}s"),
            ):
                choice, _ = await asked_both_ways(client, path, **fields)
                assert text_of(choice) == text, fields
            usage = (await whole(client, path))["usage"]
        assert usage["completion_tokens"] == len(script)

    run(test)
