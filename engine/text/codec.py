"""What a Tokenizer needs of a vocabulary, whatever library reads it: text to ids, and the bytes of each id."""

from typing import Protocol

from .pieces import Pieces

UNBOUNDED = 2**40  # characters in a token, where a run of any length can become one
NORMALIZED = 4  # Unicode's composition makes no text shorter than a quarter


class Codec(Protocol):
    """One vocabulary. Safe to call from several threads at once; encode works without the GIL.

    size: ids are below it.
    longest: no token stands for more characters of a text.
    pieces: the bytes of each token.
    """

    size: int
    longest: int
    pieces: Pieces

    def encode(self, text: str, *, add_special: bool) -> list[int]:
        """Token ids of a text without lone surrogates; with add_special, the BOS and EOS the model's rules add."""
        ...

    def id_of(self, token: str) -> int | None:
        """The id of a token by its own spelling."""
        ...
