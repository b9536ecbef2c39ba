"""A front as its settings say: which waiting room, which costs, whose terms. Both engines make theirs here."""

import secrets
from collections.abc import Sequence
from typing import cast

from .batches import Batches
from .config import SEATS, STEP_TOKENS, EngineConfig
from .door import Ready
from .fairness.fair_room import FairRoom
from .fairness.policies import Policy, auto_quantum, default_quantum, make_room
from .fairness.pricing import UNIT, CostKind, CostModel
from .fairness.quantum import AutoQuantum
from .front import Front
from .intake import Speech
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
    shared, batches = config.fairness == SHARED, batches_of(config, info.seats)
    return Front(
        info,
        tokenizer,
        room,
        metrics,
        draw_seed,
        tenants=tenants,
        shared=shared,
        batches=batches,
        attempts=config.max_attempts,
    )


def batches_of(config: EngineConfig, seats: int) -> Batches | None:
    """The static batches that the settings name; None: batching is continuous."""
    if config.batching == "continuous":
        return None
    compute = None if config.batch_compute_ms is None else config.batch_compute_ms / THOUSAND
    return Batches(config.batch_size or seats, config.batch_delay_ms / THOUSAND, compute)


def room_of(config: EngineConfig, tenants: Tenants) -> FairRoom:
    """The waiting room that the settings name, with the minimum shares of the tiers."""
    cost = CostModel(kind=cast(CostKind, config.cost_model))
    quantum = quantum_of(config, cost)
    return make_room(cast(Policy, config.fairness), cost, quantum=quantum, least=least_of(tenants.tiers))


def quantum_of(config: EngineConfig, cost: CostModel) -> int | AutoQuantum:
    """Units a round; by default about one request's cost, where batches are static about one full batch's."""
    batch = 1 if config.batching == "continuous" else config.batch_size or config.max_seats or SEATS
    if config.quantum == "auto":
        return auto_quantum(cost, config.step_tokens or STEP_TOKENS, batch=batch)
    return default_quantum(cost) * batch if config.quantum is None else config.quantum * UNIT


def least_of(tiers: Sequence[TierTerms]) -> dict[int, int]:
    """Minimum shares in thousandths, of tiers that have any."""
    shares = {tier.number: round(tier.min_share * THOUSAND) for tier in tiers}
    return {number: share for number, share in shares.items() if share}
