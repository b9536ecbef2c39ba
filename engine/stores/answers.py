"""Answers kept by idempotency key: the interface, what is kept, and the plain store in memory.

Every store forgets an answer after a day, and earlier only when it is full: then the oldest of the tenant that has most
in it. It never puts another answer in the place of one that it still has.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Protocol

MIB = 1024**2
KEPT_SECONDS = 24 * 3600.0
ROW_BYTES = 200  # what an answer takes beside its body
NEARLY_FULL = 0.9  # how full a full store is left


@dataclass(frozen=True, slots=True)
class Answer:
    """A reply of status `status` as it was told. fingerprint: of what was asked."""

    fingerprint: bytes
    status: int
    media_type: str
    body: bytes

    @property
    def size(self) -> int:
        return len(self.body) + ROW_BYTES


class AnswerStore(Protocol):
    """Answers by scope, a digest of whose key it is and where it was used. now: Unix seconds. Raises StoreFailed."""

    def find(self, scope: bytes, now: float) -> Answer | None:
        """The answer that is kept, if it is not too old."""

    def save(self, scope: bytes, tenant: str, answer: Answer, now: float) -> None:
        """Keep an answer; it is kept when this returns. Nothing happens where one is kept already."""


class Holdings:
    """How many bytes each tenant has in a store that may hold `most`."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.of: Counter[str] = Counter()

    @property
    def total(self) -> int:
        return self.of.total()

    def add(self, tenant: str, size: int) -> None:
        self.of[tenant] += size

    def remove(self, tenant: str, size: int) -> None:
        self.of[tenant] -= size
        if not self.of[tenant]:
            del self.of[tenant]

    def loser(self, coming: int, *, begun: bool) -> str | None:
        """Whose oldest answer has to go before so many bytes come; None: there is room.

        begun: some had to go already, so that more go than must.
        """
        most = int(self.most * NEARLY_FULL) if begun else self.most
        if not self.of or self.total + coming <= most:
            return None
        return max(self.of, key=lambda tenant: (self.of[tenant], tenant))


class MemoryAnswers:
    """An AnswerStore of at most so many bytes that forgets all when the process ends."""

    def __init__(self, most_bytes: int = 64 * MIB) -> None:
        self._holdings = Holdings(most_bytes)
        self._kept: dict[bytes, tuple[str, Answer, float]] = {}  # the oldest first

    def find(self, scope: bytes, now: float) -> Answer | None:
        _, answer, saved = self._kept.get(scope, ("", None, 0.0))
        return answer if answer is not None and now < saved + KEPT_SECONDS else None

    def save(self, scope: bytes, tenant: str, answer: Answer, now: float) -> None:
        if self.find(scope, now) is not None:
            return
        for old in [each for each, (_, _, saved) in self._kept.items() if now >= saved + KEPT_SECONDS]:
            self._forget(old)
        begun = False
        while (loser := self._holdings.loser(answer.size, begun=begun)) is not None:
            self._forget(next(each for each, (owner, _, _) in self._kept.items() if owner == loser))
            begun = True
        self._kept[scope] = tenant, answer, now
        self._holdings.add(tenant, answer.size)

    def check(self) -> None:
        """Assert that bytes are counted right."""
        held: Counter[str] = Counter()
        for tenant, answer, _ in self._kept.values():
            held[tenant] += answer.size
        assert held == self._holdings.of, "bytes of answers are miscounted"
        assert self._holdings.total <= self._holdings.most or len(self._kept) == 1, "the store is too full"

    def _forget(self, scope: bytes) -> None:
        tenant, answer, _ = self._kept.pop(scope)
        self._holdings.remove(tenant, answer.size)
