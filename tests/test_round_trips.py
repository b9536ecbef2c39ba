"""Ten thousand random strings of many scripts: they come back, and streams show them whole, wherever they are cut."""

import random
from collections.abc import Callable

import pytest
from sentencepiece import SentencePieceProcessor

from fairstep.text.fast_codec import FastCodec
from fairstep.text.sentencepiece_codec import SentencePieceCodec
from fairstep.text.tokenizer import Tokenizer
from trained_vocabularies import byte_level, exact, normalizing, random_strings

COUNT = 10_000
Decode = Callable[[list[int]], str]


def sentencepiece(serialized: bytes) -> Tokenizer:
    codec = SentencePieceCodec(serialized)
    return Tokenizer(codec, codec.named, None)


def fast() -> Tokenizer:
    return Tokenizer(FastCodec(byte_level()), {"bos_token": "<bos>", "eos_token": "<eos>"}, None)


def shown(tokenizer: Tokenizer, prompt: list[int], groups: list[list[int]]) -> list[str]:
    """What a stream shows after each group of ids, and at its end."""
    detokenizer = tokenizer.detokenizer(prompt)
    return [*(detokenizer.push(group) for group in groups), detokenizer.finish()]


def random_groups(ids: list[int], draw: random.Random) -> list[list[int]]:
    cuts = sorted(draw.sample(range(len(ids) + 1), min(3, len(ids) + 1)))
    return [ids[start:end] for start, end in zip([0, *cuts], [*cuts, len(ids)], strict=True)]


def check_streams(tokenizer: Tokenizer, ids: list[int], text: str, draw: random.Random) -> None:
    """Token by token and in random groups: the same text, in whole characters."""
    one_by_one = shown(tokenizer, [], [[token] for token in ids])
    assert "".join(one_by_one) == text == tokenizer.decode(ids)
    assert "\ufffd" not in "".join(one_by_one)
    assert "".join(shown(tokenizer, [], random_groups(ids, draw))) == text


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_a_sentencepiece_model_that_normalizes_nothing_gives_every_string_back(kind: str) -> None:
    tokenizer, own = sentencepiece(exact(kind)), SentencePieceProcessor(model_proto=exact(kind))
    draw = random.Random(1)
    for text in random_strings(COUNT, seed=2):
        ids = tokenizer.encode(text, add_special=False)
        assert ids == own.encode(text)
        check_streams(tokenizer, ids, text, draw)


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_a_sentencepiece_model_that_normalizes_streams_what_it_decodes_itself(kind: str) -> None:
    tokenizer, own = sentencepiece(normalizing(kind)), SentencePieceProcessor(model_proto=normalizing(kind))
    draw = random.Random(3)
    for text in random_strings(2_000, seed=4):
        ids = tokenizer.encode(text, add_special=False)
        assert ids == own.encode(text)
        check_streams(tokenizer, ids, own.decode(ids), draw)


def test_byte_level_bpe_gives_every_string_back() -> None:
    tokenizer, draw = fast(), random.Random(5)
    for text in random_strings(COUNT, seed=6):
        check_streams(tokenizer, tokenizer.encode(text, add_special=False), text, draw)


def check_random_ids(tokenizer: Tokenizer, decode: Decode, marks: frozenset[int], seed: int) -> None:
    """Ids that no text gives: streams are the library's own decode of all ids after its decode of the prompt's."""
    draw = random.Random(seed)
    usual = [token for token in range(tokenizer.vocab_size) if token not in marks]
    for _ in range(COUNT):
        ids = draw.choices(usual, k=draw.randint(0, 12))
        whole = decode(ids)
        assert "".join(shown(tokenizer, [], [[token] for token in ids])) == whole
        assert "".join(shown(tokenizer, [], random_groups(ids, draw))) == whole


@pytest.mark.parametrize("make", [exact, normalizing])
@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_random_ids_of_a_sentencepiece_model_stream_as_it_decodes_them(kind: str, make: Callable[[str], bytes]) -> None:
    tokenizer, own = sentencepiece(make(kind)), SentencePieceProcessor(model_proto=make(kind))
    check_random_ids(tokenizer, own.decode, frozenset([0, 1, 2]), seed=7)


def test_random_ids_of_byte_level_bpe_stream_as_the_library_decodes_them() -> None:
    check_random_ids(fast(), byte_level().decode, frozenset([0, 1]), seed=8)


def test_no_cut_of_a_string_shows_half_a_character() -> None:
    """Every cut into prompt and answer: the answer begins with the first character whose first byte is its own."""
    for tokenizer in (sentencepiece(exact("bpe")), fast()):
        for text in random_strings(100, seed=9):
            ids = tokenizer.encode(text, add_special=False)
            assert "".join(shown(tokenizer, [], [[token] for token in ids])) == text
            for cut in range(1, len(ids) + 1):
                rest = b"".join(tokenizer.token_bytes(token) for token in ids[cut:])
                own = rest.lstrip(bytes(range(0x80, 0xC0))).decode()
                assert "".join(shown(tokenizer, ids[:cut], [[token] for token in ids[cut:]])) == own
