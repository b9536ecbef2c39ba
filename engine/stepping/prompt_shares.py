"""How a step's prompt tokens are parted: tier by tier, in a tier by weight between tenants, without a ledger. Pure.

Max-min fair in integers: who wants less than its part leaves the rest to the others.
"""

from collections.abc import Iterable
from dataclasses import dataclass

Key = tuple[int, str]  # tier and tenant


@dataclass(frozen=True, slots=True)
class Want:
    """Prompt tokens that a sequence could compute now."""

    tier: int
    tenant: str
    weight: int
    tokens: int


def part_tokens(whole: int, wants: Iterable[Want]) -> dict[Key, int]:
    """The most that each tenant gets of `whole` tokens; what is left over by rounding goes to the first wants."""
    asked: dict[Key, int] = {}
    weights: dict[Key, int] = {}
    for want in wants:
        key = want.tier, want.tenant
        asked[key] = asked.get(key, 0) + want.tokens
        weights[key] = want.weight
    parts: dict[Key, int] = {}
    for tier in sorted({tier for tier, _ in asked}):
        given = _part(whole, {key: asked[key] for key in asked if key[0] == tier}, weights)
        parts |= given
        whole -= sum(given.values())
    return parts


def _part(whole: int, asked: dict[Key, int], weights: dict[Key, int]) -> dict[Key, int]:
    """One tier's. Those who want least for their weight come first, so that what they leave is known to the next."""
    parts = {}
    left = sum(weights[key] for key in asked)
    for key in sorted(asked, key=lambda key: asked[key] / weights[key]):
        parts[key] = min(asked[key], -(-whole * weights[key] // left))
        whole -= parts[key]
        left -= weights[key]
    return parts
