"""Virtual token counters (Sheng et al., OSDI 2024): whoever was served least goes next.

A tenant that comes back is lifted to the least counter of those waiting, or to that of the last one that left, so that
idle time earns nothing. Kept beside deficit round robin as what that is compared with.
"""

from .tenant_queue import Key
from .turn_order import TurnOrder
from .turns import MayTenant, anybody

WEIGHTS = 720_720  # divisible by every weight up to 16: counters stay whole


class VirtualTokenCounters:
    """Turns by counter, each charge divided by the tenant's weight. One owner: a tier's room."""

    def __init__(self) -> None:
        self._counters: dict[str, int] = {}
        self._weights: dict[str, int] = {}
        self._order: TurnOrder[int] = TurnOrder()
        self._last_left = 0

    def enter(self, tenant: str, weight: int) -> None:
        """A tenant has somebody waiting now: it is lifted."""
        assert tenant not in self._order, f"{tenant} waits already"
        self._weights[tenant] = weight
        self._counters[tenant] = max(self._counters.get(tenant, 0), self._least())
        self._order.set(tenant, self._counters[tenant])

    def leave(self, tenant: str) -> None:
        """A tenant has nobody waiting any more."""
        self._order.drop(tenant)
        self._last_left = self._counters[tenant]

    def weigh(self, tenant: str, weight: int) -> None:
        """Charges are divided by another weight from now on."""
        self._weights[tenant] = weight

    def head(self, tenant: str, key: Key) -> None:
        """Urgency doesn't count between tenants."""

    def first(self, may: MayTenant, within: MayTenant = anybody) -> str | None:
        """The tenant with the least counter; shares don't count."""
        return self._order.first(may)

    def start(self, tenant: str) -> None:
        """There are no rounds to go on to."""
        assert tenant in self._order, f"{tenant} does not wait"

    def charge(self, tenant: str, units: int) -> None:
        """Add to a tenant's counter; one that was forgotten starts from the least."""
        counter = self._counters.get(tenant)
        counter = self._least() if counter is None else counter
        self._counters[tenant] = counter + units * WEIGHTS // self._weights.setdefault(tenant, 1)
        if tenant in self._order:
            self._order.set(tenant, self._counters[tenant])

    def debt(self, tenant: str) -> int:
        """How far its counter is above the least one, in units of its own."""
        counter = self._counters.get(tenant)
        return 0 if counter is None else (counter - self._least()) * self._weights[tenant] // WEIGHTS

    def forget(self, tenant: str) -> bool:
        """A tenant that would be lifted as a new one would be is as good as new."""
        if tenant not in self._order and self._counters.get(tenant, 0) <= self._least():
            self._counters.pop(tenant, None)
            self._weights.pop(tenant, None)
        return tenant not in self._counters

    def copy(self) -> "VirtualTokenCounters":
        """Another one in the same state, to be played with."""
        other = VirtualTokenCounters()
        other._counters, other._weights = dict(self._counters), dict(self._weights)
        other._order, other._last_left = self._order.copy(), self._last_left
        return other

    def check(self) -> None:
        """Assert that turns and counters agree."""
        self._order.check()
        assert self._counters.keys() == self._weights.keys(), "a counter has no weight"
        waiting = [name for name in self._counters if name in self._order]
        assert len(waiting) == len(self._order), "a waiting tenant has no counter"
        assert all(self._order.key(name) == self._counters[name] for name in waiting), "a turn is out of date"

    def _least(self) -> int:
        """What a new tenant starts with."""
        first = self._order.first(anybody)
        return self._last_left if first is None else self._counters[first]
