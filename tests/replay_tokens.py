"""Real tokenizers for replays of public reports: a SentencePiece model and byte-level BPE, trained in memory."""

from collections.abc import Callable

import pytest

from fairstep.text.fast_codec import FastCodec
from fairstep.text.sentencepiece_codec import SentencePieceCodec
from fairstep.text.tokenizer import Tokenizer
from trained_vocabularies import byte_level, exact

Make = Callable[..., Tokenizer]
TEMPLATE = "{{ bos_token }}{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant: "


def sentencepiece(template: str | None = None) -> Tokenizer:
    codec = SentencePieceCodec(exact("bpe"))
    return Tokenizer(codec, codec.named, template)


def fast(template: str | None = None) -> Tokenizer:
    return Tokenizer(FastCodec(byte_level()), {"bos_token": "<bos>", "eos_token": "<eos>"}, template)


both = pytest.mark.parametrize("make", [sentencepiece, fast])


def byte_ids(tokenizer: Tokenizer, data: bytes) -> list[int]:
    """One token a byte, whatever merges there are."""
    single = {tokenizer.token_bytes(token): token for token in reversed(range(tokenizer.vocab_size))}
    return [single[bytes([byte])] for byte in data]


def plain_ids(tokenizer: Tokenizer, text: str) -> list[int]:
    """A text as a model would write it after a line's end: no special tokens, no space that a prompt would get."""
    line_end, ids = tokenizer.encode("\n", add_special=False), tokenizer.encode("\n" + text, add_special=False)
    assert ids[: len(line_end)] == line_end
    return ids[len(line_end) :]
