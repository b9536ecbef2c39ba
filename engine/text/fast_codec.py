"""A vocabulary held by the `tokenizers` library, and its decoder taken apart into the bytes of each token.

Two kinds of decoders are understood: byte-level BPE (GPT-2, Llama 3, SmolLM), where a token's characters spell its
bytes, and those made from SentencePiece, with or without byte tokens, where a text begins with one space too many.
"""

import json
from typing import Any

from tokenizers import Tokenizer as Backend

from ..errors import ModelError
from .codec import NORMALIZED
from .pieces import Pieces

BYTE_TOKENS = {f"<0x{byte:02X}>": bytes([byte]) for byte in range(256)}


class FastCodec:
    """A Codec over a tokenizers.Tokenizer, whose truncation and padding are taken off."""

    def __init__(self, backend: Backend) -> None:
        backend.no_truncation()
        backend.no_padding()
        self._backend = backend
        vocabulary: dict[str, int] = backend.get_vocab()
        self.size = max(vocabulary.values()) + 1
        longest = max(map(len, vocabulary))
        # where a normalizer may shorten texts, a text can be longer than its tokens
        self.longest = longest if backend.normalizer is None else NORMALIZED * longest
        self.pieces = backend_pieces(backend)

    def encode(self, text: str, *, add_special: bool) -> list[int]:
        # of the backend's methods only the batched ones release the GIL
        ids: list[int] = self._backend.encode_batch_fast([text], add_special_tokens=add_special)[0].ids
        return ids

    def id_of(self, token: str) -> int | None:
        found: int | None = self._backend.token_to_id(token)
        return found


def backend_pieces(backend: Backend) -> Pieces:
    """The bytes of a backend's tokens. Raises ModelError for a decoder that looks beyond single tokens."""
    decoder = _Decoder(_steps(backend))

    def spell(token: int) -> bytes:
        text = backend.id_to_token(token) if 0 <= token < 2**32 else None
        return b"" if text is None else decoder.spell(text)

    special = frozenset(i for i, token in backend.get_added_tokens_decoder().items() if token.special)
    return Pieces(
        spell,
        special,
        strip=decoder.strip,
        strip_most=decoder.strip_most,
        mark_each_byte=decoder.byte_tokens,
    )


class _Decoder:
    """A decoder's steps in the order Replace, ByteFallback, Fuse, Strip; or ByteLevel alone; or none."""

    def __init__(self, steps: list[dict[str, Any]]) -> None:
        self._alphabet: dict[str, int] = {}
        self._replace: list[tuple[str, str]] = []
        self._before = ""
        self.strip, self.strip_most = b"", 0
        self.byte_tokens = False
        kinds = [step["type"] for step in steps]
        if not steps:  # tokens are joined by spaces
            self._before, self.strip, self.strip_most = " ", b" ", 1
        elif kinds == ["ByteLevel"]:
            self._alphabet = byte_alphabet()
        else:
            self._take(steps, kinds)

    def spell(self, text: str) -> bytes:
        """The bytes of a token by its spelling in the vocabulary."""
        if self._alphabet and all(char in self._alphabet for char in text):
            return bytes(self._alphabet[char] for char in text)
        if self.byte_tokens and text in BYTE_TOKENS:
            return BYTE_TOKENS[text]
        for old, new in self._replace:
            text = text.replace(old, new)
        return (self._before + text).encode()

    def _take(self, steps: list[dict[str, Any]], kinds: list[str]) -> None:
        order = ["Replace", "ByteFallback", "Fuse", "Strip"]
        if not set(kinds) <= set(order) or kinds != sorted(kinds, key=order.index):
            raise _unknown(" then ".join(kinds))
        self.byte_tokens = "ByteFallback" in kinds
        for step in steps:
            if step["type"] == "Replace":
                self._replace.append((_literal(step), step["content"]))
            if step["type"] == "Strip":
                self._take_strip(step, kinds)

    def _take_strip(self, step: dict[str, Any], kinds: list[str]) -> None:
        if step["stop"] or "Fuse" not in kinds or self.strip:
            raise _unknown("a Strip of more than the beginning of the text")
        self.strip, self.strip_most = step["content"].encode(), step["start"]


def byte_alphabet() -> dict[str, int]:
    """The character by which byte-level BPE spells each byte (Radford et al. 2019, GPT-2's encoder)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    return {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}


def _steps(backend: Backend) -> list[dict[str, Any]]:
    if backend.decoder is None:
        return []
    decoder = json.loads(backend.decoder.__getstate__())
    steps: list[dict[str, Any]] = decoder["decoders"] if decoder["type"] == "Sequence" else [decoder]
    return steps


def _literal(step: dict[str, Any]) -> str:
    pattern: dict[str, str] = step["pattern"]
    if "String" not in pattern:
        raise _unknown("a Replace by regular expression")
    return pattern["String"]


def _unknown(what: str) -> ModelError:
    return ModelError(f"the tokenizer's decoder is not supported ({what}): byte-level BPE and SentencePiece are")
