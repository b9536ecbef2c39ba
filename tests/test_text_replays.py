"""Public reports about tokens and text, replayed on a SentencePiece model and on byte-level BPE without a model.

Each test names the report it replays. What a server adds to them (SSE, status codes) is tested where that is made.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from fairstep.text.sentencepiece_codec import SentencePieceCodec
from fairstep.text.stream import TextStream
from fairstep.text.tokenizer import Tokenizer
from replay_tokens import both, byte_ids, fast, sentencepiece
from trained_vocabularies import exact

WRITES_BOS = "{{ bos_token }}{% for m in messages %}{{ m['content'] }}{% endfor %}"
HELLO = [{"role": "user", "content": "hello"}]


def stream(tokenizer: Tokenizer, ids: list[int], prompt: list[int] | None = None, *, skip: bool = True) -> list[str]:
    text = TextStream(tokenizer.detokenizer(prompt or [], skip_special=skip))
    return [*(text.push([token]).text for token in ids), text.finish().text]


@both
def test_llama_cpp_4036_characters_of_several_tokens_come_whole(make: Callable[[], Tokenizer]) -> None:
    tokenizer = make()
    for text in ("a🫠b龜c", "Repeat exactly: 🫠🥹龜é"):
        deltas = stream(tokenizer, tokenizer.encode(text, add_special=False))
        assert "".join(deltas) == text
        assert all("\ufffd" not in delta and delta.encode() for delta in deltas if delta)


@both
def test_llama_cpp_9195_lone_continuation_bytes_are_marks(make: Callable[[], Tokenizer]) -> None:
    tokenizer = make()
    ids = byte_ids(tokenizer, bytes(0x80 + i % 20 for i in range(64)))
    assert "".join(stream(tokenizer, ids)) == tokenizer.decode(ids) == "\ufffd" * 64


@both
def test_llama_cpp_27543_a_stray_byte_does_not_end_the_text(make: Callable[[], Tokenizer]) -> None:
    tokenizer = make()
    ids = [*tokenizer.encode("ok ✅", add_special=False), *byte_ids(tokenizer, b"\x85 done")]
    assert "".join(stream(tokenizer, ids)) == tokenizer.decode(ids) == "ok ✅\ufffd done"


@both
@pytest.mark.parametrize("answer", [b"\x8c\xb6 hot", b" plain", b""])
def test_vllm_48853_a_prompt_that_ends_inside_a_character_does_not_leak(
    make: Callable[[], Tokenizer], answer: bytes
) -> None:
    tokenizer = make()
    prompt = [*tokenizer.encode("Hello world ", add_special=False), *byte_ids(tokenizer, "🌶".encode()[:2])]
    ids = byte_ids(tokenizer, answer)
    assert "".join(stream(tokenizer, ids, prompt)) == answer.lstrip(b"\x8c\xb6").decode()
    whole = b"".join(map(tokenizer.token_bytes, prompt + ids)).decode(errors="replace")
    assert whole.endswith("".join(stream(tokenizer, ids, prompt)))


def test_mlx_lm_1754_only_the_first_space_of_a_sentencepiece_text_is_taken() -> None:
    tokenizer = sentencepiece()
    codec = SentencePieceCodec(exact("bpe"))
    ids = [codec.id_of(piece) for piece in ("▁", "▁the", "▁a")]
    known = [token for token in ids if token is not None]
    assert len(known) == 3
    assert "".join(stream(tokenizer, known)) == " the a"
    assert "".join(stream(tokenizer, known[1:], known[:1])) == " the a"


def test_mlx_lm_1754_a_byte_level_answer_keeps_its_space() -> None:
    tokenizer = fast()
    ids = tokenizer.encode(" the cat", add_special=False)
    assert "".join(stream(tokenizer, ids)) == "".join(stream(tokenizer, ids, [0])) == " the cat"


@both
def test_mlx_vlm_1076_eight_streams_at_once_are_as_one(make: Callable[[], Tokenizer]) -> None:
    tokenizer, together = make(), Barrier(8)
    text = "Repeat exactly: 🫠🥹龜é " * 20

    def run(_: int) -> list[str]:
        together.wait(timeout=60)
        return stream(tokenizer, tokenizer.encode(text, add_special=False))

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(run, range(8)))
    assert answers == [stream(tokenizer, tokenizer.encode(text, add_special=False))] * 8


@both
def test_dynamo_8780_special_tokens_are_hidden_in_streams_and_whole_texts_unless_asked_for(
    make: Callable[[], Tokenizer],
) -> None:
    tokenizer = make()
    assert tokenizer.bos_id is not None
    cat = tokenizer.encode("cat", add_special=False)
    ids = [*cat, tokenizer.bos_id, *byte_ids(tokenizer, b"s")]
    bos = tokenizer.token_text(tokenizer.bos_id)
    assert "".join(stream(tokenizer, ids)) == tokenizer.decode(ids) == "cats"
    shown = "".join(stream(tokenizer, ids, skip=False))
    assert shown == tokenizer.decode(ids, skip_special=False) == f"cat{bos}s"


@both
def test_vllm_27515_a_chat_has_exactly_one_bos(make: Callable[[str], Tokenizer]) -> None:
    for template in (WRITES_BOS, WRITES_BOS.removeprefix("{{ bos_token }}")):
        tokenizer = make(template)
        ids = tokenizer.encode_chat(HELLO)
        assert (ids[0], ids.count(ids[0])) == (tokenizer.bos_id, 1)


@both
def test_vllm_27515_a_completion_that_writes_bos_gets_a_second_unless_told(make: Callable[[str], Tokenizer]) -> None:
    tokenizer = make(WRITES_BOS)
    text = tokenizer.render(HELLO)
    assert tokenizer.encode(text).count(tokenizer.bos_id or 0) == 2
    assert tokenizer.encode(text, add_special=False) == tokenizer.encode_chat(HELLO)
