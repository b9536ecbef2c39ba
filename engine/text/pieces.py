"""What each token id stands for, in bytes. Knows no streams and no library.

In every vocabulary that is understood here a text is the joined bytes of its tokens, and only its beginning is
special; that is what lets a stream be decoded token by token at constant cost.
"""

from collections.abc import Callable


class Pieces:
    """The bytes of each token.

    special: ids that are marks, not text.
    strip, strip_most: up to strip_most copies of `strip` are taken off the beginning of a text.
    mark_each_byte: an undecodable run of bytes becomes one U+FFFD a byte, not one a broken character.
    """

    def __init__(
        self,
        spell: Callable[[int], bytes],
        special: frozenset[int],
        *,
        strip: bytes = b"",
        strip_most: int = 0,
        mark_each_byte: bool = False,
    ) -> None:
        self._spell = spell
        self._known: dict[int, bytes] = {}
        self.special = special
        self.strip = strip
        self.strip_most = strip_most
        self.mark_each_byte = mark_each_byte

    def of(self, token: int, *, skip_special: bool) -> bytes:
        """A token's bytes; none for an id that is not in the vocabulary, or a special one that is skipped."""
        if skip_special and token in self.special:
            return b""
        piece = self._known.get(token)
        if piece is None:
            piece = self._known[token] = self._spell(token)
        return piece

    def leading(self, token: int) -> int:
        """How many copies of `strip` may be taken off a token that begins a text."""
        data, count = self.of(token, skip_special=False), 0
        while data.startswith(self.strip, count * len(self.strip)):
            count += 1
        return count
