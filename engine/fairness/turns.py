"""Whose turn it is among the tenants of one tier: what deficit round robin, VTC and first come first served answer.

Knows tenants by name, weights and charges; no tickets, no pages.
"""

from collections.abc import Callable
from typing import Protocol

from .tenant_queue import Key

MayTenant = Callable[[str], bool]


def anybody(tenant: str) -> bool:
    """For callers that hold nobody back."""
    return True


class Turns(Protocol):
    """Chooses between tenants that have somebody waiting."""

    def enter(self, tenant: str, weight: int) -> None:
        """A tenant has somebody waiting now, and had nobody."""

    def leave(self, tenant: str) -> None:
        """A tenant has nobody waiting any more."""

    def weigh(self, tenant: str, weight: int) -> None:
        """A waiting tenant's weight is another one from now on."""

    def head(self, tenant: str, key: Key) -> None:
        """A waiting tenant's next sequence is another one; the smallest key of all is the most urgent."""

    def first(self, may: MayTenant, within: MayTenant = anybody) -> str | None:
        """Whose turn it is, of those that wait and may now; asking changes nothing.

        within: its share. Who isn't is passed over for a while, where the policy knows shares.
        """

    def start(self, tenant: str) -> None:
        """The tenant that first() named is served now: its turn has come."""

    def charge(self, tenant: str, units: int) -> None:
        """Bill a tenant, waiting or not; negative gives back."""

    def debt(self, tenant: str) -> int:
        """Units a tenant owes (negative: has left) by this policy's book; 0 for one it doesn't know."""

    def forget(self, tenant: str) -> bool:
        """Drop what is kept of a tenant that doesn't wait, if that changes no turn; whether nothing is kept now."""

    def copy(self) -> "Turns":
        """Another one in the same state: what is played with it changes nothing here."""

    def check(self) -> None:
        """Assert the policy's own invariants."""
