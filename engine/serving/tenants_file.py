"""The TOML file of `--tenants`: its tables checked against one another and made into one book of tenants.

Knows no HTTP. Keys are in the file as SHA-256 only.
"""

from collections.abc import Sequence
from pathlib import Path

from ..admission.deadlines import LatencyTarget
from ..admission.limits import Limit
from ..errors import ConfigError
from ..tenants import ANONYMOUS, Tenants, TenantTerms, TierTerms, TrustedProxy, digest_of
from .settings_file import near, read_toml
from .tenants_schema import (
    AnonymousEntry,
    LimitEntry,
    TargetEntry,
    TenantEntry,
    TenantsEntry,
    TermsEntry,
    TierEntry,
    checked,
)

ONE_TIER = TierEntry(name="standard")
EMPTY = digest_of("")
LimitTable = dict[tuple[str, ...], Limit | None]  # None: unlimited


def read_tenants(path: Path) -> Tenants:
    """The book in a file. Raises ConfigError naming the file, the place in it and what to do."""
    values = read_toml(path, "tenants file")
    try:
        return book_of(checked(values))
    except ValueError as problem:
        raise ConfigError(f"{path}: {problem}") from None


def book_of(entry: TenantsEntry) -> Tenants:
    """The book that a file's tables mean. Raises ValueError naming the place of a contradiction."""
    tiers = entry.tiers or [ONE_TIER]
    _check_names("tenants", [tenant.name for tenant in entry.tenants])
    _check_tiers(tiers)
    fill = _Fill([tier.name for tier in tiers], entry.defaults, _limits("limits", entry.limits))
    terms = [fill.terms(f"tenants[{index}]", tenant.name, tenant) for index, tenant in enumerate(entry.tenants)]
    proxy = entry.trusted_proxy
    book = Tenants(
        tiers=[TierTerms(number, **tier.model_dump()) for number, tier in enumerate(tiers)],
        tenants=terms,
        keys=_keys(entry.tenants, terms),
        defaults=fill.terms("defaults", ANONYMOUS, entry.defaults),
        anonymous=None if entry.anonymous is None else fill.terms("anonymous", ANONYMOUS, entry.anonymous),
        proxy=None if proxy is None else TrustedProxy(tuple(proxy.networks), proxy.header),
        latency=[fill.target(f"targets[{index}]", each) for index, each in enumerate(entry.targets)],
    )
    if not book.keys and book.anonymous is None and book.proxy is None:
        raise ValueError("lets nobody in: give a tenant keys, or write [anonymous] to serve requests without a key")
    return book


class _Fill:
    """Fills tenants' tables from the defaults and from the limits for all."""

    def __init__(self, tiers: Sequence[str], defaults: TermsEntry, limits: LimitTable) -> None:
        self._tiers = tiers
        self._defaults = defaults.model_dump(exclude_none=True)
        self._limits = limits
        if len(tiers) > 1 and defaults.tier is None:
            raise ValueError(f"defaults.tier is missing: of {len(tiers)} tiers, say which one tenants are in")
        self._defaults.setdefault("tier", tiers[0])
        self._defaults.setdefault("weight", 1)

    def terms(self, place: str, name: str, own: TermsEntry) -> TenantTerms:
        """A tenant's terms; `place` is where the file has them."""
        given = {**self._defaults, **own.model_dump(exclude_none=True)}
        limits = _limits(f"{place}.limits", own.limits) if isinstance(own, AnonymousEntry) else {}
        tier = self._number(f"{place}.tier", given["tier"])
        return TenantTerms(
            name=name,
            tier=tier,
            batch_tier=self._batch_tier(
                f"{place}.batch_tier", given.get("batch_tier"), tier, own.batch_tier is not None
            ),
            weight=given["weight"],
            prefix_group=given.get("prefix_group"),
            limits=tuple(limit for limit in {**self._limits, **limits}.values() if limit),
            max_concurrent=given.get("max_concurrent"),
            max_running=given.get("max_running"),
            queue_share=given.get("queue_share"),
        )

    def target(self, place: str, own: TargetEntry) -> LatencyTarget:
        """A target of the file; `place` is where it stands."""
        if own.ttft_ms is None and own.e2e_ms is None:
            raise ValueError(f"{place} names no target: give it ttft_ms, e2e_ms or both")
        return LatencyTarget(
            first=None if own.ttft_ms is None else own.ttft_ms / 1000,
            whole=None if own.e2e_ms is None else own.e2e_ms / 1000,
            tier=None if own.tier is None else self._number(f"{place}.tier", own.tier),
            endpoint=own.endpoint,
            model=own.model,
        )

    def _number(self, place: str, name: str) -> int:
        if name not in self._tiers:
            raise ValueError(f"{place}: there is no tier {name!r}; {near(name, self._tiers)}")
        return self._tiers.index(name)

    def _batch_tier(self, place: str, name: str | None, tier: int, is_own: bool) -> int | None:
        """Never before the tenant's tier: a client may say that its request is batch work."""
        if name is None:
            return None
        number = self._number(place, name)
        if is_own and number < tier:
            raise ValueError(
                f"{place} must not be served before the tenant's tier, {self._tiers[tier]!r}, as {name!r} is"
            )
        return max(number, tier)


def _limits(place: str, entries: Sequence[LimitEntry]) -> LimitTable:
    """By what they count and where, since a tenant's own limit replaces the one for all."""
    table: LimitTable = {}
    for index, each in enumerate(entries):
        counted = (each.what, each.per, each.endpoint, each.model)
        if counted in table:
            raise ValueError(f"{place}[{index}] counts what an earlier one counts: {each.what} per {each.per}")
        table[counted] = None if each.amount is None else Limit(**each.model_dump())
    return table


def _keys(tenants: Sequence[TenantEntry], terms: Sequence[TenantTerms]) -> dict[str, TenantTerms]:
    """Digests to the terms of what comes with them; a digest of class batch to those of batch work."""
    keys: dict[str, TenantTerms] = {}
    for index, (tenant, its) in enumerate(zip(tenants, terms, strict=True)):
        for number, key in enumerate(tenant.keys):
            place = f"tenants[{index}].keys[{number}]"
            if key.sha256 == EMPTY:
                raise ValueError(f"{place} is the SHA-256 of an empty text, which is no key")
            if key.sha256 in keys:
                raise ValueError(f"{place} (tenant {its.name}) is a key of tenant {keys[key.sha256].name} already")
            keys[key.sha256] = its.as_batch() if key.work == "batch" else its
    return keys


def _check_tiers(tiers: Sequence[TierEntry]) -> None:
    _check_names("tiers", [tier.name for tier in tiers])
    if sum(tier.min_share for tier in tiers) >= 1:
        raise ValueError("tiers: the min_share of all tiers together must be below 1")


def _check_names(table: str, names: Sequence[str]) -> None:
    first: dict[str, int] = {}
    for index, name in enumerate(names):
        if first.setdefault(name, index) != index:
            raise ValueError(f"{table}[{index}].name is {name!r}, as that of {table}[{first[name]}]")
        if table == "tenants" and name == ANONYMOUS:
            raise ValueError(f"tenants[{index}].name: {name!r} is for requests without a key; write [anonymous]")
