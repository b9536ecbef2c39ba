"""A language of two tokens, for a front that must have one: each answer is dots, and an end."""

from collections.abc import Sequence

from ..text.detokenizer import Detokenizer
from ..text.pieces import Pieces

DOT, END = 0, 1
FIRST_PROMPT_ID = 2
VOCABULARY = 2**31  # each request's prompt has ids of its own


def _spell(token: int) -> bytes:
    return b"." if token == DOT else b""


class DotSpeech:
    """What the front needs of a tokenizer (front.Speech)."""

    def __init__(self) -> None:
        self._pieces = Pieces(_spell, frozenset())

    def special_id(self, text: str) -> int | None:
        return None

    def bad_word_ids(self, word: str) -> tuple[tuple[int, ...], ...]:
        return ()

    def detokenizer(self, prompt_ids: Sequence[int], *, skip_special: bool) -> Detokenizer:
        return Detokenizer(self._pieces, prompt_ids[-1:])


def prompt_of(number: int, tokens: int, shared: int, tenant: int) -> tuple[int, ...]:
    """The prompt of request `number`: first what all requests of its tenant share, then what no other has."""
    return (FIRST_PROMPT_ID + 2 * tenant,) * shared + (FIRST_PROMPT_ID + 2 * number + 1,) * (tokens - shared)
