"""Stop strings in a stream of text: a partial match is held back, a whole one ends the text before it (or after it).

Knows no tokens. One automaton a stop string, character by character (Knuth, Morris, Pratt 1977), so that the outcome
does not depend on where the pieces of text are cut. The first stop string to be completed wins; of those completed
by the same character, the longest, whose beginning is cut too. Each character costs a few steps a stop string
however much is held back.
"""


class StopMatcher:
    """Finds the first completed stop string. `held` is text that may still turn out to be one.

    include: a completed stop string stays in the text, as its end; nothing need be held back then.
    """

    def __init__(self, stops: tuple[str, ...], *, include: bool = False) -> None:
        self._include = include
        self._stops = tuple(sorted(dict.fromkeys(stops), key=len, reverse=True))
        self._borders = tuple(_borders(stop) for stop in self._stops)
        self._matched = [0] * len(self._stops)
        self._first = frozenset(stop[0] for stop in self._stops)
        self._done = False
        self.held = ""

    def push(self, text: str) -> tuple[str, str | None]:
        """The text that is safe to show, and the stop string that has been completed, if one has.

        After a match nothing is ever returned again.
        """
        if self._done:
            return "", None
        if not any(self._matched) and self._first.isdisjoint(text):
            return text, None
        text, start = self.held + text, len(self.held)
        for end in range(start, len(text)):
            stop = self._advance(text[end])
            if stop is not None:
                self._done, self.held = True, ""
                return text[: end + 1 if self._include else end + 1 - len(stop)], stop
        safe = len(text) if self._include else len(text) - max(self._matched)
        self.held = text[safe:]
        return text[:safe], None

    def flush(self) -> str:
        """What is held back, at the end of the text: no stop string was completed."""
        held, self.held, self._done = self.held, "", True
        return held

    def _advance(self, char: str) -> str | None:
        """Take one character; the longest stop string that it completes."""
        for i, stop in enumerate(self._stops):
            matched, borders = self._matched[i], self._borders[i]
            while matched and stop[matched] != char:
                matched = borders[matched - 1]
            if stop[matched] == char:
                matched += 1
                if matched == len(stop):
                    return stop
            self._matched[i] = matched
        return None


def _borders(stop: str) -> list[int]:
    """For each prefix, the length of its longest proper prefix that is also its suffix."""
    borders = [0] * len(stop)
    length = 0
    for i in range(1, len(stop)):
        while length and stop[i] != stop[length]:
            length = borders[length - 1]
        length += stop[i] == stop[length]
        borders[i] = length
    return borders
