"""Who waits, and for what: what a waiting room knows of a sequence. No pages, and no tokens but how many."""

from dataclasses import dataclass


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
