"""A front as its settings say: which waiting room, which costs, whose terms. Both engines make theirs here."""

import secrets
from collections.abc import Sequence
from typing import cast

from .config import EngineConfig
from .door import Ready
from .fairness.fair_room import FairRoom
from .fairness.policies import Policy, make_room
from .fairness.pricing import UNIT, CostKind, CostModel
from .front import Front, Speech
from .metrics import Metrics
from .request import SEED_BITS
from .tenants import Tenants, TierTerms

THOUSAND = 1000
SHARED: Policy = "drr"  # the policy under which tenants keep to shares while they run


def draw_seed() -> int:
    """A fresh seed for a request that names none."""
    return secrets.randbits(SEED_BITS)


def make_front(
    config: EngineConfig, info: Ready, tokenizer: Speech, metrics: Metrics, tenants: Tenants | None = None
) -> Front:
    """The front of one worker. tenants: None: everybody is anonymous, on the same terms."""
    tenants = tenants or Tenants()
    room = room_of(config, tenants)
    return Front(info, tokenizer, room, metrics, draw_seed, tenants=tenants, shared=config.fairness == SHARED)


def room_of(config: EngineConfig, tenants: Tenants) -> FairRoom:
    """The waiting room that the settings name, with the minimum shares of the tiers."""
    cost = CostModel(kind=cast(CostKind, config.cost_model))
    quantum = None if config.quantum is None else config.quantum * UNIT
    return make_room(cast(Policy, config.fairness), cost, quantum=quantum, least=least_of(tenants.tiers))


def least_of(tiers: Sequence[TierTerms]) -> dict[int, int]:
    """Minimum shares in thousandths, of tiers that have any."""
    shares = {tier.number: round(tier.min_share * THOUSAND) for tier in tiers}
    return {number: share for number, share in shares.items() if share}
