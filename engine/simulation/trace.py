"""What comes in during a simulation: requests with their instants and lengths, and their tenants' terms. Values."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from operator import attrgetter

from ..tenants import ANONYMOUS, Tenants

NO_BOOK = Tenants()  # everybody on the same terms


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A request, at so many seconds from the beginning.

    outputs: tokens that the model draws before it ends by itself, unless max_tokens (None: outputs) comes first.
    shared: so many of its first prompt tokens are the same for all requests of its tenant. deadline, ttft_deadline:
    seconds from arrival in which all of the answer, or its first token, must have come. cancel: seconds from arrival
    after which its client goes away. number: its place in the trace, which Trace sets.
    """

    at: float
    tenant: str = ANONYMOUS
    prompt_tokens: int
    outputs: int
    max_tokens: int | None = None
    priority: int = 0
    shared: int = 0
    deadline: float | None = None
    ttft_deadline: float | None = None
    cancel: float | None = None
    number: int = 0

    def __post_init__(self) -> None:
        assert self.at >= 0 and self.prompt_tokens >= 1 and self.outputs >= 1, f"no request: {self}"
        assert 0 <= self.shared <= self.prompt_tokens, f"more shared than there is: {self}"

    @property
    def answer(self) -> int:
        """Tokens of the whole answer."""
        return self.outputs if self.max_tokens is None else min(self.outputs, self.max_tokens)


@dataclass(frozen=True, slots=True)
class Trace:
    """Arrivals in order of time. until: when the simulation ends, whatever is under way; None: when all have ended.

    book: the terms of its tenants and tiers.
    """

    name: str
    arrivals: tuple[Arrival, ...]
    until: float | None = None
    book: Tenants = NO_BOOK

    @classmethod
    def of(
        cls,
        name: str,
        arrivals: Iterable[Arrival],
        until: float | None = None,
        book: Tenants = NO_BOOK,
    ) -> "Trace":
        """Arrivals in any order, put in order and numbered."""
        ordered = sorted(arrivals, key=attrgetter("at"))
        numbered = tuple(replace(each, number=number) for number, each in enumerate(ordered))
        return cls(name, numbered, until, book)

    @property
    def names(self) -> tuple[str, ...]:
        """All tenants, in alphabetical order."""
        return tuple(sorted({each.tenant for each in self.arrivals} | {each.name for each in self.book.tenants}))

    @property
    def span(self) -> float:
        """Seconds that are measured: up to the end, or to the last arrival."""
        return self.until if self.until is not None else max((each.at for each in self.arrivals), default=0.0)

    def scaled(self, *, lengths: float = 1.0, time: float = 1.0) -> "Trace":
        """The same with tokens divided by `lengths` (one at least stays) and instants by `time`: above 1 is faster."""
        arrivals = tuple(
            replace(
                each,
                at=each.at / time,
                prompt_tokens=max(1, round(each.prompt_tokens / lengths)),
                outputs=max(1, round(each.outputs / lengths)),
                max_tokens=None if each.max_tokens is None else max(1, round(each.max_tokens / lengths)),
                shared=int(each.shared / lengths),
            )
            for each in self.arrivals
        )
        until = None if self.until is None else self.until / time
        return replace(self, arrivals=arrivals, until=until)
