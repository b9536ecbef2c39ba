"""Who may ask, and on what terms: tenants, tiers and keys as one frozen book. Knows no file, HTTP or clock.

A key is known by its SHA-256 alone; whoever made the book has checked it.
"""

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Network, IPv6Network, ip_address
from types import MappingProxyType

from .admission.deadlines import LatencyTarget
from .admission.limits import Limit

ANONYMOUS = "anonymous"
GROUP_MARK = "\x1f"  # no tenant's name holds it, so that no tenant can share a group's pages by its name
INDEX_DIGITS = 4  # of a digest: they find its candidates, and tell nothing about the key


@dataclass(frozen=True, slots=True)
class TierTerms:
    """A performance tier: 0 is served first.

    ttft_ms, itl_ms, e2e_ms: the latency its requests should see; None: no target. min_share: the part of the machine,
    in [0, 1), that it gets whatever waits in the tiers before it.
    """

    number: int
    name: str
    ttft_ms: float | None = None
    itl_ms: float | None = None
    e2e_ms: float | None = None
    min_share: float = 0.0

    @property
    def target(self) -> LatencyTarget:
        """What its requests are judged by when they come without a deadline."""
        return LatencyTarget(first=_seconds(self.ttft_ms), whole=_seconds(self.e2e_ms), tier=self.number)


@dataclass(frozen=True, slots=True)
class TenantTerms:
    """What a tenant may have.

    tier: number of the tier its work is in. batch_tier: the same for work of the class `batch`, never before `tier`.
    weight: its part beside the others of its tier. prefix_group: tenants of one group find each other's prompt pages.
    limits: quantities a minute or a month, a bucket each. max_concurrent: most requests in the server, the next is
    refused. max_running: most sequences running, the next waits. queue_share: the part of the bounded queue, in (0, 1],
    that it may fill. None: no such limit.
    """

    name: str
    tier: int = 0
    weight: int = 1
    prefix_group: str | None = None
    limits: tuple[Limit, ...] = ()
    max_concurrent: int | None = None
    max_running: int | None = None
    queue_share: float | None = None
    batch_tier: int | None = None

    def as_batch(self) -> "TenantTerms":
        """The same tenant's terms for work of the class `batch`."""
        return self if self.batch_tier is None else replace(self, tier=self.batch_tier)

    @property
    def salt(self) -> str:
        """What separates prefix caches: the group's mark, or the tenant's own name."""
        return self.name if self.prefix_group is None else GROUP_MARK + self.prefix_group


@dataclass(frozen=True, slots=True)
class TrustedProxy:
    """Who may say a tenant's name, by address, and in which header (lower case)."""

    networks: tuple[IPv4Network | IPv6Network, ...]
    header: str

    def includes(self, peer: str | None) -> bool:
        """Whether a connection from `peer`, an IP address, comes from one of the networks."""
        try:
            address = ip_address(peer or "")
        except ValueError:  # a UNIX socket, or a test client's name
            return False
        address = getattr(address, "ipv4_mapped", None) or address
        return any(address in network for network in self.networks)


@dataclass(frozen=True, kw_only=True, repr=False)
class Tenants:
    """The book. `Tenants()` is the one without a file: everybody is anonymous, and keys are not asked for.

    tiers: by number. keys: SHA-256 in lower-case hex to the terms of what comes with that key. defaults: the terms of
    names that are not in the book. anonymous: the terms of requests without a key; None: they are refused. latency:
    targets beside those of the tiers.
    """

    tiers: Sequence[TierTerms] = (TierTerms(0, "standard"),)
    tenants: Sequence[TenantTerms] = ()
    keys: Mapping[str, TenantTerms] = field(default_factory=dict)
    defaults: TenantTerms = TenantTerms(ANONYMOUS)
    anonymous: TenantTerms | None = TenantTerms(ANONYMOUS)
    proxy: TrustedProxy | None = None
    latency: Sequence[LatencyTarget] = ()
    _names: Mapping[str, TenantTerms] = field(init=False, compare=False)
    _targets: tuple[LatencyTarget, ...] = field(init=False, compare=False)
    _near: Mapping[str, Sequence[str]] = field(init=False, compare=False)  # digests by their first digits

    def __post_init__(self) -> None:
        near: dict[str, list[str]] = {}
        for digest in self.keys:
            near.setdefault(digest[:INDEX_DIGITS], []).append(digest)
        kept = {
            "tiers": tuple(self.tiers),
            "tenants": tuple(self.tenants),
            "latency": tuple(self.latency),
            "_targets": (*(tier.target for tier in self.tiers if tier.ttft_ms or tier.e2e_ms), *self.latency),
            "keys": MappingProxyType(dict(self.keys)),
            "_names": {each.name: each for each in (self.anonymous, *self.tenants) if each},
            "_near": near,
        }
        for name, value in kept.items():
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        return f"Tenants({len(self.tenants)} tenants, {len(self.tiers)} tiers, {len(self.keys)} keys)"

    @property
    def targets(self) -> tuple[LatencyTarget, ...]:
        """What requests without a deadline are judged by when they come."""
        return self._targets

    def of(self, name: str) -> TenantTerms:
        """A tenant's terms; an unknown name gets the defaults under its own name."""
        return self._names.get(name) or replace(self.defaults, name=name)

    def by_key(self, key: str) -> TenantTerms | None:
        """The terms of what comes with a key, or None. Digests are compared in constant time."""
        asked = digest_of(key)
        found = None
        for digest in self._near.get(asked[:INDEX_DIGITS], ()):
            if hmac.compare_digest(digest, asked):
                found = self.keys[digest]
        return found


def _seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000


def digest_of(key: str) -> str:
    """What stands in a book for a key: SHA-256 of its UTF-8 bytes, in hex."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()
