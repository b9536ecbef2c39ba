"""The waiting room's interface: who is next. It knows no pages and no tokens; whether it fits is not its question.

Every policy (fcfs here; drr, vtc beside it) answers the same four calls.
"""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Ticket:
    """A sequence that waits. `order` rises with arrival and is kept when a sequence comes back, so it sorts first.

    tier: the lowest is served first. weight: the tenant's part of its tier. again: it ran before and gave its seat
    back. prompt_tokens, max_tokens: what it may cost.
    """

    seq: int
    order: int
    tenant: str = "anonymous"
    priority: int = 0  # lower is sooner
    deadline: float | None = None
    tier: int = 0
    weight: int = 1
    prompt_tokens: int = 0
    max_tokens: int = 0
    again: bool = False


class WaitingRoom(Protocol):
    """Holds tickets; names the next."""

    def __len__(self) -> int: ...

    def add(self, ticket: Ticket) -> None:
        """Let a sequence wait. It must not wait already."""

    def head(self) -> Ticket | None:
        """The next one, without taking it."""

    def take(self) -> Ticket:
        """Take the head out. There must be one."""

    def remove(self, seq: int) -> bool:
        """Take a sequence out wherever it stands; False if it does not wait here."""

    def check(self) -> None:
        """Assert the room's own invariants."""
