"""`fairstep tenants`: a key for a tenant, and what a tenants file means as tables."""

import secrets
from collections import Counter
from collections.abc import Sequence

from ..errors import ConfigError
from ..tenants import Tenants, TenantTerms, TierTerms, digest_of
from .tenants_schema import NAME_RULE, TENANT_NAME

KEY_BEGINS = "fs-"  # so that a key that leaked somewhere is known for one
KEY_BYTES = 32
TIERS = ("tier", "first token", "between tokens", "whole answer", "at least")
TENANTS = (
    "tenant",
    "keys",
    "tier",
    "batch tier",
    "weight",
    "of its tier",
    "at once",
    "running",
    "of the queue",
    "limits",
)


def key_text(name: str) -> str:
    """A new key of 256 random bits, its digest, and where each belongs. Raises ConfigError for what is no name."""
    if not TENANT_NAME.fullmatch(name):
        raise ConfigError(f"NAME {NAME_RULE}, not {name!r}")
    key = KEY_BEGINS + secrets.token_urlsafe(KEY_BYTES)
    return f"""\
The key of {name}. It is shown only now: give it to the tenant, and keep it nowhere here.

  {key}

The tenants file gets its SHA-256 (several keys are separated by commas):

  [[tenants]]
  name = "{name}"
  keys = ["{digest_of(key)}"]

Clients send the key as OpenAI's do (OPENAI_API_KEY, or the header Authorization: Bearer KEY), or in x-api-key."""


def book_text(book: Tenants) -> str:
    """Tiers, tenants and who else is let in."""
    shown = [*book.tenants, *([book.anonymous] if book.anonymous else [])]
    weights = Counter[int]()
    for each in shown:
        weights[each.tier] += each.weight
    keys = Counter((terms.name, terms.tier) for terms in book.keys.values())
    tenants = [
        _tenant_row(each, book.tiers, _keys_cell(each, keys), each.weight / weights[each.tier]) for each in shown
    ]
    return "\n".join(
        [*_aligned(TIERS, [_tier_row(tier) for tier in book.tiers]), "", *_aligned(TENANTS, tenants), "", *_notes(book)]
    )


def _tier_row(tier: TierTerms) -> tuple[str, ...]:
    targets = (tier.ttft_ms, tier.itl_ms, tier.e2e_ms)
    return (tier.name, *("-" if each is None else f"{each:g} ms" for each in targets), f"{tier.min_share:.0%}")


def _tenant_row(terms: TenantTerms, tiers: Sequence[TierTerms], keys: str, share: float) -> tuple[str, ...]:
    return (
        terms.name,
        keys,
        tiers[terms.tier].name,
        tiers[terms.as_batch().tier].name,
        str(terms.weight),
        f"{share:.0%}",
        _or_dash(terms.max_concurrent),
        _or_dash(terms.max_running),
        "-" if terms.queue_share is None else f"{terms.queue_share:.0%}",
        "; ".join(str(limit) for limit in terms.limits) or "-",
    )


def _keys_cell(terms: TenantTerms, keys: Counter[tuple[str, int]]) -> str:
    """How many keys, those of class batch apart."""
    batch = terms.as_batch().tier
    apart = f" + {keys[terms.name, batch]} batch" if batch != terms.tier and keys[terms.name, batch] else ""
    return f"{keys[terms.name, terms.tier]}{apart}"


def _notes(book: Tenants) -> list[str]:
    """What the tables do not say."""
    notes = [
        "Tiers are served from the top; within one, tenants share by weight ('of its tier': when all ask at once)."
    ]
    if book.anonymous is None:
        notes.append("Requests without a key are refused.")
    if book.proxy is not None:
        networks = ", ".join(str(each) for each in book.proxy.networks)
        notes.append(f"Connections from {networks} may name the tenant in {book.proxy.header}.")
    return notes


def _aligned(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    wide = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, wide, strict=True)).rstrip() for row in (head, *rows)
    ]


def _or_dash(value: int | None) -> str:
    return "-" if value is None else str(value)
