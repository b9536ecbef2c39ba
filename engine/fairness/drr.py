"""Deficit round robin over tenants (Shreedhar and Varghese, SIGCOMM 1995), serving first and paying afterwards.

A tenant is served while its deficit is positive; what a request costs beyond it is carried as debt. Each round gives
every waiting tenant quantum * weight. Nobody is visited for that: a deficit is worked out from the number of rounds
since it was last looked at, and a sorted list holds the round in which each becomes positive, so rounds in which all
are in debt are skipped, and a turn costs O(log tenants). Who holds more than its share plays some rounds behind: it
loses nothing by that but time. docs/fairness.md proves what this promises.
"""

from dataclasses import dataclass, replace

from .tenant_queue import Key
from .turn_order import TurnOrder
from .turns import MayTenant, anybody


@dataclass(slots=True)
class _Account:
    """deficit: as it was in `round`. waits: it has a place in the order of turns."""

    weight: int
    round: int
    deficit: int = 0
    waits: bool = False


class DeficitRoundRobin:
    """Turns by deficit. One owner: a tier's room.

    quantum: units that a tenant of weight 1 gets a round. bypass: rounds for which a tenant over its share is passed
    over; it keeps what they give, and goes first then, share or not.

    Promise: for two tenants that wait and may all through a window, over their share or not, what they were charged in
    it, divided by weight, differs by at most 2 * (1 + bypass) * quantum + (U + R) / weight of the one + (U + R) /
    weight of the other. U: the largest single charge with its overruns, the most that the tenant was ever charged from
    one admission up to its next. R: the largest refund, the most by which its sum of charges ever fell.
    """

    def __init__(self, quantum: int, bypass: int = 0) -> None:
        assert quantum > 0, "a quantum of nothing ends no debt"
        self.quantum = quantum
        self.bypass = bypass
        self.round = 0
        self._accounts: dict[str, _Account] = {}
        self._order: TurnOrder[int] = TurnOrder()  # the round in which each waiting tenant is served

    def enter(self, tenant: str, weight: int) -> None:
        """A tenant has somebody waiting now: it starts with what it owes, or with nothing."""
        account = self._accounts.setdefault(tenant, _Account(weight, self.round))
        assert not account.waits, f"{tenant} waits already"
        self._settle(account)
        account.weight, account.waits = weight, True
        self._order.set(tenant, self._ready(account))

    def leave(self, tenant: str) -> None:
        """A tenant has nobody waiting any more: debt is carried, credit is not."""
        account = self._waiting(tenant)
        self._settle(account)
        account.waits, account.deficit = False, min(account.deficit, 0)
        self._order.drop(tenant)

    def weigh(self, tenant: str, weight: int) -> None:
        """Rounds give another weight's quantum from now on."""
        account = self._waiting(tenant)
        self._settle(account)
        account.weight = weight
        self._place(tenant, account)

    def resize(self, quantum: int) -> None:
        """Rounds give another quantum from now on. The promise holds with the largest of all."""
        assert quantum > 0, "a quantum of nothing ends no debt"
        for account in self._accounts.values():
            self._settle(account)
        self.quantum = quantum
        for tenant, account in self._accounts.items():
            if account.waits:
                self._place(tenant, account)

    def head(self, tenant: str, key: Key) -> None:
        """Urgency doesn't count between tenants."""

    def first(self, may: MayTenant, within: MayTenant = anybody) -> str | None:
        """The tenant whose deficit is positive first; one over its share is taken for `bypass` rounds later."""
        if within is anybody:
            return self._order.first(may)
        over: str | None = None  # the first that is passed over, and the last round for which it is
        latest = 0

        def ends(name: str) -> bool:
            """Whether the search is over: this one goes, or comes too late for anybody to be passed over for it."""
            nonlocal over, latest
            if over is not None and self._order.key(name) > latest:
                return True
            if not may(name):
                return False
            if within(name) or self._is_owed(name):
                return True
            if over is None:
                over, latest = name, self._turn(name) + self.bypass
            return False

        last = self._order.first(ends)
        return over if last is None or (over is not None and self._turn(last) > latest) else last

    def start(self, tenant: str) -> None:
        """Go on to the round in which the tenant is served."""
        account = self._waiting(tenant)
        self.round = self._turn(tenant)
        self._settle(account)

    def charge(self, tenant: str, units: int) -> None:
        """Bill a tenant; one that was forgotten owed nothing and starts an account."""
        account = self._accounts.setdefault(tenant, _Account(1, self.round))
        self._settle(account)
        account.deficit -= units
        if account.waits:
            self._place(tenant, account)
        else:
            account.deficit = min(account.deficit, 0)

    def debt(self, tenant: str) -> int:
        """The deficit's other side."""
        account = self._accounts.get(tenant)
        return -self._deficit(account) if account else 0

    def forget(self, tenant: str) -> bool:
        """A tenant without debt is as good as a new one."""
        account = self._accounts.get(tenant)
        if account is not None and not account.waits and not self._deficit(account):
            del self._accounts[tenant]
        return tenant not in self._accounts

    def copy(self) -> "DeficitRoundRobin":
        """Another one in the same state, to be played with."""
        other = DeficitRoundRobin(self.quantum, self.bypass)
        other.round, other._order = self.round, self._order.copy()
        other._accounts = {name: replace(account) for name, account in self._accounts.items()}
        return other

    def check(self) -> None:
        """Assert that whoever waits has its place at the right round, and that nobody banks credit."""
        self._order.check()
        waiting = {name for name, account in self._accounts.items() if account.waits}
        assert len(waiting) == len(self._order) and all(name in self._order for name in waiting), "turns are missing"
        for name, account in self._accounts.items():
            deficit = self._deficit(account)
            assert account.waits or deficit <= 0, f"{name} banks credit"
            if account.waits:
                assert (deficit > 0) == (self._order.key(name) <= self.round), f"{name} has a wrong turn"

    def _waiting(self, tenant: str) -> _Account:
        account = self._accounts.get(tenant)
        assert account is not None and account.waits, f"{tenant} does not wait"
        return account

    def _deficit(self, account: _Account) -> int:
        """The deficit now. Rounds lift it to 1 + bypass quanta at most, and to nothing where nobody waits."""
        share = self.quantum * account.weight
        earned = account.deficit + share * (self.round - account.round)
        most = (1 + self.bypass) * share if account.waits else 0
        return min(earned, max(account.deficit, most))

    def _is_owed(self, tenant: str) -> bool:
        """Whether it has as much left as `bypass` rounds give: no further round goes by before its turn."""
        account = self._waiting(tenant)
        rounds = self.round - account.round - self.bypass
        return account.deficit + rounds * self.quantum * account.weight > 0

    def _turn(self, tenant: str) -> int:
        """The round in which a waiting tenant is served."""
        return max(self.round, self._order.key(tenant))

    def _settle(self, account: _Account) -> None:
        account.deficit, account.round = self._deficit(account), self.round

    def _ready(self, account: _Account) -> int:
        """The first round in which a deficit that is not positive will be."""
        return account.round + -account.deficit // (self.quantum * account.weight) + 1

    def _place(self, tenant: str, account: _Account) -> None:
        """A turn lasts while the deficit is positive; one that turns positive by a refund goes behind the others."""
        if account.deficit <= 0:
            self._order.set(tenant, self._ready(account))
        elif self._order.key(tenant) > self.round:
            self._order.set(tenant, self.round)
