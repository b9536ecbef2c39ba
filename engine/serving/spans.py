"""Which part of an answer's text each of its tokens brought. Knows no log probabilities and no protocol.

A token of the middle of a character brings nothing: the one that completes it brings all of it.
"""

from dataclasses import dataclass

from ..request import Completion, Delta
from ..text.detokenizer import Detokenizer


@dataclass(frozen=True, slots=True)
class Span:
    """One token's text, beginning at character `offset`. cut: it has text that a stop has kept out of the answer."""

    offset: int
    text: str
    cut: bool = False


class Spans:
    """The tokens of one answer as its deltas bring them, or of the whole at once: the same spans either way.

    detokenizer: a new one that follows the prompt. offset: where the answer begins. shows_stop: the token that ends an
    answer has its text in it.
    """

    def __init__(self, detokenizer: Detokenizer, offset: int, *, shows_stop: bool) -> None:
        self._detokenizer = detokenizer
        self._offset = offset
        self._shows_stop = shows_stop
        self._text = ""  # has come, and belongs to tokens that have not

    def take(self, part: Delta | Completion) -> list[Span]:
        """A span for each of the part's token ids."""
        self._text += part.text
        by_stop, by_string = part.finish_reason == "stop", isinstance(part.stop_reason, str)
        silent = len(part.token_ids) - (by_stop and not by_string and not self._shows_stop)
        spans = [self._span(token, by_stop and by_string) for token in part.token_ids[:silent]]
        if part.finish_reason is not None and spans and self._text:  # what the answer's end has let go
            spans[-1] = Span(spans[-1].offset, spans[-1].text + self._text)
            self._offset, self._text = self._offset + len(self._text), ""
        spans += [Span(self._offset, "") for _ in part.token_ids[silent:]]
        if by_stop and spans and not spans[-1].text:
            spans[-1] = Span(self._offset, "", cut=True)
        return spans

    def _span(self, token: int, may_be_cut: bool) -> Span:
        length = len(self._detokenizer.push((token,)))
        text, rest = self._text[:length], self._text[length:]
        has_text = length > 0 or self._detokenizer.pending
        span = Span(self._offset, text, cut=may_be_cut and has_text and not self._text)
        self._offset, self._text = self._offset + len(text), rest
        return span
