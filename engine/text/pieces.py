"""What each token id stands for, in bytes: a tokenizer's decoder taken apart. Knows no streams.

Two families of decoders are understood: byte-level BPE (GPT-2, Llama 3, SmolLM), where a token's characters spell
its bytes, and SentencePiece with or without byte tokens (Llama 2, Mistral), where text begins with one space that
is not part of it. In both a text is the joined bytes of its tokens, and only its beginning is special; that is what
lets a stream be decoded token by token at constant cost.
"""

import json
from typing import Any

from tokenizers import Tokenizer as Backend

from ..errors import ModelError

BYTE_TOKENS = {f"<0x{byte:02X}>": bytes([byte]) for byte in range(256)}


class Pieces:
    """The bytes of each token.

    special: ids that are marks, not text.
    strip, strip_most: up to strip_most copies of `strip` are taken off the beginning of a text.
    mark_each_byte: an undecodable run of bytes becomes one U+FFFD a byte, not one a broken character.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.special = frozenset(i for i, token in backend.get_added_tokens_decoder().items() if token.special)
        self._known: dict[int, bytes] = {}
        self._alphabet: dict[str, int] = {}
        self._replace: list[tuple[str, str]] = []
        self._before = ""
        self.strip, self.strip_most = b"", 0
        self.mark_each_byte = False
        self._read(_steps(backend))

    def of(self, token: int, *, skip_special: bool) -> bytes:
        """A token's bytes; none for an id that is not in the vocabulary, or a special one that is skipped."""
        if skip_special and token in self.special:
            return b""
        piece = self._known.get(token)
        if piece is None:
            piece = self._known[token] = self._spell(token)
        return piece

    def _spell(self, token: int) -> bytes:
        text = self._backend.id_to_token(token) if 0 <= token < 2**32 else None
        if text is None:
            return b""
        if self._alphabet and all(char in self._alphabet for char in text):
            return bytes(self._alphabet[char] for char in text)
        if self.mark_each_byte and text in BYTE_TOKENS:
            return BYTE_TOKENS[text]
        for old, new in self._replace:
            text = text.replace(old, new)
        return (self._before + text).encode()

    def _read(self, steps: list[dict[str, Any]]) -> None:
        """Take the decoder's steps in the order Replace, ByteFallback, Fuse, Strip; or ByteLevel alone; or none."""
        kinds = [step["type"] for step in steps]
        if not steps:  # tokens are joined by spaces
            self._before, self.strip, self.strip_most = " ", b" ", 1
            return
        if kinds == ["ByteLevel"]:
            self._alphabet = byte_alphabet()
            return
        order = ["Replace", "ByteFallback", "Fuse", "Strip"]
        if not set(kinds) <= set(order) or kinds != sorted(kinds, key=order.index):
            raise _unknown(" then ".join(kinds))
        self.mark_each_byte = "ByteFallback" in kinds
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
