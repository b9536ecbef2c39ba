"""One answer's text as it grows: detokenizer and stop strings together. Knows no engine and no HTTP."""

from collections import deque
from collections.abc import Mapping, Sequence

import msgspec

from .detokenizer import Detokenizer
from .stops import StopMatcher


class Piece(msgspec.Struct, frozen=True, gc=False):  # made for every token, for which a dataclass takes too long
    """Text that can be shown and the ids that belong to it. `stopped`: the stop string that ended the answer."""

    text: str
    token_ids: tuple[int, ...]
    stopped: str | None = None


class TextStream:
    """Text and ids of one answer. An id leaves with the last of its text; a text that is held back holds its ids.

    A stop string must lie wholly in text that came with token number `min_tokens` or a later one: earlier text is
    shown at once and takes no part in a match. The ids end with the token that completed the stop string.
    `count` is the number of tokens taken; tokens after a stop string are neither shown nor counted.
    include_stop: the stop string, or the text of the stop token, stays. special_stops: stop strings that are special
    tokens, by id: their text may be one that the detokenizer hides.
    """

    def __init__(
        self,
        detokenizer: Detokenizer,
        stops: tuple[str, ...] = (),
        min_tokens: int = 0,
        *,
        include_stop: bool = False,
        special_stops: Mapping[int, str] | None = None,
    ) -> None:
        self._detokenizer = detokenizer
        self._has_stops = bool(stops)
        self._matcher = StopMatcher(stops, include=include_stop)
        self._min_tokens = min_tokens
        self._include_stop = include_stop
        self._special_stops = special_stops or {}
        self._waiting: deque[tuple[int, int]] = deque()  # (id, characters of text up to its end)
        self._decoded = 0  # characters made so far
        self._ended = False
        self.count = 0

    @property
    def held(self) -> int:
        """How many ids wait for their text."""
        return len(self._waiting)

    def push(self, ids: Sequence[int], stop_id: int | None = None) -> Piece:
        """Take new tokens. `stop_id`: the last of `ids` ended the answer; without include_stop it has no text."""
        if len(ids) == 1 and stop_id is None and not (self._has_stops or self._waiting or self._ended):
            return self._push_plain(ids[0])
        shown = ""
        last = len(ids) - 1
        for place, token in enumerate(ids):
            if self._ended:
                break
            self.count += 1
            ends = stop_id is not None and place == last
            safe, stopped = self._match(self._last_text(token) if ends else self._detokenizer.push((token,)))
            shown += safe
            self._waiting.append((token, self._decoded + self._detokenizer.pending))
            if stopped is not None:
                self._ended = True
                return Piece(shown, self._leave_all(), stopped)
        return Piece(shown, self._leave())

    def _push_plain(self, token: int) -> Piece:
        """Most tokens: nothing is held back and no stop string looked for. As push(), in half the time."""
        self.count += 1
        text = self._detokenizer.push((token,))
        self._decoded += len(text)
        if not self._detokenizer.pending:
            return Piece(text, (token,))
        self._waiting.append((token, self._decoded + 1))
        return Piece(text, ())

    def finish(self) -> Piece:
        """What is still held back, at the end of the answer."""
        if self._ended:
            return Piece("", ())
        self._ended = True
        text, stopped = self._match(self._detokenizer.finish())
        return Piece(text + self._matcher.flush(), self._leave_all(), stopped)

    def _last_text(self, token: int) -> str:
        """The text of the stop token."""
        if not self._include_stop:
            return ""
        if token in self._special_stops:
            return self._detokenizer.finish() + self._special_stops[token]
        return self._detokenizer.push((token,))

    def _match(self, text: str) -> tuple[str, str | None]:
        self._decoded += len(text)
        if not self._has_stops or self.count < self._min_tokens:
            return text, None
        return self._matcher.push(text)

    def _leave(self) -> tuple[int, ...]:
        """Ids whose text has all been shown."""
        shown = self._decoded - len(self._matcher.held)
        ids: list[int] = []
        while self._waiting and self._waiting[0][1] <= shown:
            ids.append(self._waiting.popleft()[0])
        return tuple(ids)

    def _leave_all(self) -> tuple[int, ...]:
        ids = tuple([token for token, _ in self._waiting])
        self._waiting.clear()
        return ids
