"""First come, first served between tenants: whoever has the most urgent sequence of all goes next.

The plain policy that the fair ones are compared with, in the same room and with the same books. Charges change no turn.
"""

from .tenant_queue import Key
from .turn_order import TurnOrder
from .turns import MayTenant, anybody


class Arrivals:
    """Turns by the key of each tenant's next sequence. One owner: a tier's room."""

    def __init__(self) -> None:
        self._order: TurnOrder[Key] = TurnOrder()

    def enter(self, tenant: str, weight: int) -> None:
        """A tenant has somebody waiting now; head() says who."""
        assert tenant not in self._order, f"{tenant} waits already"
        self._order.set(tenant, ())

    def leave(self, tenant: str) -> None:
        """A tenant has nobody waiting any more."""
        self._order.drop(tenant)

    def weigh(self, tenant: str, weight: int) -> None:
        """Weights don't count."""

    def head(self, tenant: str, key: Key) -> None:
        """A waiting tenant's next sequence is another one."""
        assert tenant in self._order, f"{tenant} does not wait"
        self._order.set(tenant, key)

    def first(self, may: MayTenant, within: MayTenant = anybody) -> str | None:
        """The tenant with the most urgent sequence; shares don't count."""
        return self._order.first(may)

    def start(self, tenant: str) -> None:
        """There are no rounds to go on to."""
        assert tenant in self._order, f"{tenant} does not wait"

    def charge(self, tenant: str, units: int) -> None:
        """Charges don't count."""

    def debt(self, tenant: str) -> int:
        """Nobody owes."""
        return 0

    def forget(self, tenant: str) -> bool:
        """Nothing is kept of a tenant that doesn't wait."""
        return tenant not in self._order

    def copy(self) -> "Arrivals":
        """Another one in the same state, to be played with."""
        other = Arrivals()
        other._order = self._order.copy()
        return other

    def check(self) -> None:
        """Assert that every waiting tenant has shown its next sequence."""
        self._order.check()
