"""Token ids to text, a few at a time: never half a character, and the joined text is that of all ids at once.

The text begins where the prompt's text ends. A character that the prompt's last bytes began belongs to the prompt.
Bytes that are not UTF-8 become U+FFFD and the text goes on; at most three bytes are ever held back. One rule
differs from the `tokenizers` library's decoder of byte tokens: that one turns a whole run of them to U+FFFD if one is
wrong, which nobody can know while the run goes on; here the good characters of a run stay, as in sentencepiece itself.
"""

from codecs import utf_8_decode
from collections.abc import Sequence

from .pieces import Pieces

LONGEST_CHARACTER = 4  # bytes, in UTF-8
UNDECODABLE = {0xDC00 + byte: "\ufffd" for byte in range(0x80, 0x100)}  # surrogateescape's names for single bytes


class Detokenizer:
    """The text of the ids that follow a prompt. Costs the same for each token, however long the text is."""

    def __init__(self, pieces: Pieces, prompt_ids: Sequence[int], *, skip_special: bool = True) -> None:
        self._pieces = pieces
        self._skip_special = skip_special
        self._strip_left = pieces.strip_most
        self._strip_beginning(prompt_ids)
        self._errors = "surrogateescape" if pieces.mark_each_byte else "replace"
        self._held = b""  # of an unfinished character
        self._decode(self._tail(prompt_ids))
        self._prompt_marks = len(self._held.decode("utf-8", self._errors))  # what the prompt's text shows for them

    @property
    def pending(self) -> bool:
        """Whether bytes of an unfinished character are held back."""
        return bool(self._held)

    def push(self, ids: Sequence[int]) -> str:
        """The text that these ids add, as far as its characters are complete."""
        data = self._bytes(ids[0]) if len(ids) == 1 else b"".join([self._bytes(token) for token in ids])
        return self._own(self._decode(data))

    def finish(self) -> str:
        """What is held back, as U+FFFD."""
        return self._own(self._decode(b"", final=True))

    def _decode(self, data: bytes, *, final: bool = False) -> str:
        """The characters that are complete with `data`, or all of them."""
        data = self._held + data
        text, used = utf_8_decode(data, self._errors, final)
        self._held = data[used:]
        return text

    def _own(self, text: str) -> str:
        """Less what belongs to the prompt; U+FFFD for undecodable bytes."""
        mark_each_byte = self._pieces.mark_each_byte
        if self._prompt_marks and text:
            broken = ord(text[0]) in UNDECODABLE if mark_each_byte else text[0] == "\ufffd"
            text = text[self._prompt_marks if broken else 1 :]
            self._prompt_marks = 0
        return text.translate(UNDECODABLE) if mark_each_byte else text

    def _bytes(self, token: int) -> bytes:
        data = self._pieces.of(token, skip_special=self._skip_special)
        return self._strip(token, data) if self._strip_left and data else data

    def _strip(self, token: int, data: bytes) -> bytes:
        """Take off what a text does not begin with, until it has begun."""
        count = min(self._strip_left, self._pieces.leading(token))
        data = data[count * len(self._pieces.strip) :]
        self._strip_left = 0 if data else self._strip_left - count
        return data

    def _strip_beginning(self, prompt_ids: Sequence[int]) -> None:
        for token in prompt_ids:
            if not self._strip_left:
                return
            self._bytes(token)

    def _tail(self, prompt_ids: Sequence[int]) -> bytes:
        """The prompt's last bytes, enough to tell whether it ends inside a character."""
        tail = b""
        for token in reversed(prompt_ids):
            tail = self._pieces.of(token, skip_special=self._skip_special) + tail
            if len(tail) >= LONGEST_CHARACTER:
                break
        return tail
