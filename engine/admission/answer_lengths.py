"""How long each tenant's answers are, from those that ended by themselves. Pure, and bounded in memory."""

from collections import deque
from collections.abc import Iterable

KEPT = 32  # late answers of a tenant
MOST_NAMES = 10_000  # the name that was longest without an answer is forgotten


class AnswerLengths:
    """Owner of late lengths by tenant, in tokens."""

    def __init__(self, most_names: int = MOST_NAMES) -> None:
        self._most_names = most_names
        self._of: dict[str, deque[int]] = {}  # the name that got a value last comes last
        self._all: deque[int] = deque(maxlen=4 * KEPT)
        self._drawn: dict[str, int] = {}  # of tenants none of whose answers has ended

    def add(self, tenant: str, tokens: int) -> None:
        self._drawn.pop(tenant, None)
        late = self._of.pop(tenant, None) or deque(maxlen=KEPT)
        late.append(tokens)
        self._of[tenant] = late
        self._all.append(tokens)
        if len(self._of) > self._most_names:
            del self._of[next(iter(self._of))]

    def drawn(self, tenant: str, tokens: int) -> None:
        """An answer has so many tokens and goes on."""
        if tenant not in self._of and len(self._drawn) < self._most_names:
            self._drawn[tenant] = max(tokens, self._drawn.get(tenant, 0))

    def __contains__(self, tenant: str) -> bool:
        return tenant in self._of

    def __bool__(self) -> bool:
        """Whether any answer is known."""
        return bool(self._all)

    def mean(self, tenant: str) -> float:
        """Of an unknown tenant what all of them had, or as many as it has by now; 0 before any answer."""
        return max(_mean(self._of.get(tenant, self._all)), self._drawn.get(tenant, 0))

    def least(self, tenant: str) -> float:
        """What is certain of a usual answer: of an unknown tenant what it has by now."""
        return self.mean(tenant) if tenant in self._of else self._drawn.get(tenant, 0)

    def left(self, tenant: str, outputs: int) -> float:
        """Tokens that an answer still has, of which so many are drawn, if it is one of the usual ones."""
        longer = [length - outputs for length in self._of.get(tenant, self._all) if length > outputs]
        if longer:
            return _mean(longer)
        return self.mean(tenant) / 4 if tenant in self._of else outputs

    def check(self) -> None:
        """Assert the bound on memory."""
        assert len(self._of) <= self._most_names, "more names than are kept"


def _mean(values: Iterable[int]) -> float:
    values = list(values)
    return sum(values) / len(values) if values else 0.0
