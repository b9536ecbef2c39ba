"""One request's place in the server: what it holds of each limit, from the door to its end. The Admission owns it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Literal, Protocol

from ..errors import DeadlineExceeded, ServerOverloaded
from .deadlines import NO_DEADLINES, Deadlines
from .forecast import Forecast
from .limits import Limit, Need
from .rate_limits import Reservation
from .waiting_time import Waited

Stage = Literal["arrived", "counted", "waiting", "running", "ended"]


class Terms(Protocol):
    """What admission needs to know of a tenant."""

    @property
    def name(self) -> str: ...
    @property
    def tier(self) -> int: ...
    @property
    def weight(self) -> int: ...
    @property
    def limits(self) -> Sequence[Limit]: ...
    @property
    def max_concurrent(self) -> int | None: ...
    @property
    def queue_share(self) -> float | None: ...


class Owner(Protocol):
    """The end of a place, which only its owner can bring about."""

    def release(self, place: "Place", now: float) -> None: ...
    def drained_in(self, now: float) -> float: ...
    def settle(
        self, place: "Place", outputs: int, now: float, *, prompt: int | None = None, natural: bool = False
    ) -> None: ...


@dataclass(slots=True, eq=False)
class Place:
    """key: the caller's name for the request. limits: those that apply to it.

    due: the instant at which its time is up in the stage it is in. waited: the parts of its waiting, once it has begun.
    pushed_out: why it had to go, if it did.
    """

    owner: Owner = field(repr=False)
    number: int
    key: str
    terms: Terms
    endpoint: str
    model: str
    arrived: float
    limits: tuple[Limit, ...] = ()
    idle_then: float = 0.0
    stage: Stage = "arrived"
    need: Need | None = None
    reservation: Reservation | None = None
    deadlines: Deadlines = NO_DEADLINES
    foreseen: Forecast | None = None
    due: float = inf
    judged: float = 0.0
    told: float | None = None
    waited: Waited | None = None
    pushed_out: ServerOverloaded | None = None

    @property
    def tenant(self) -> str:
        return self.terms.name

    def exceeded(self, now: float) -> DeadlineExceeded:
        """What to tell the client whose time is up."""
        spent, again = f"{now - self.arrived:.2f} s after it came", self.owner.drained_in(now)
        if self.waited is None:
            return DeadlineExceeded(f"the request was still waiting {spent}, too late to be answered in time", again)
        return DeadlineExceeded(f"the deadline came {spent}, after {self.waited.total:.2f} s of waiting", again)

    def release(self, now: float) -> None:
        """Give everything back, as if it had never come; nothing if it has ended."""
        self.owner.release(self, now)

    def settle(self, outputs: int, now: float, *, prompt: int | None = None, natural: bool = False) -> None:
        """It has ended, with so many outputs in all; nothing if it had ended before.

        prompt: tokens to count of its prompt, None for all of them. natural: the answer came to its own end.
        """
        self.owner.settle(self, outputs, now, prompt=prompt, natural=natural)
