"""The waiting rooms there are, by name: one place that knows how each is put together."""

from collections.abc import Callable, Mapping
from typing import Literal

from .arrivals import Arrivals
from .billing import Billing
from .drr import DeficitRoundRobin
from .fair_room import FairRoom
from .pricing import UNIT, CostModel
from .quantum import AutoQuantum
from .tenant_queue import by_arrival, by_urgency
from .tiers import Tiers
from .turns import Turns
from .vtc import VirtualTokenCounters

Policy = Literal["fcfs", "vtc", "vtc-ema", "drr"]
POLICIES: tuple[Policy, ...] = ("fcfs", "vtc", "vtc-ema", "drr")
BYPASS = 1  # rounds for which a tenant over its share is passed over
QUANTUM_TOKENS = 500  # about one median chat request: 100 tokens of prompt and 200 of answer, at two each


def default_quantum(cost: CostModel) -> int:
    """Units a round for streaming answers: about one request's cost."""
    return UNIT if cost.kind == "requests" else QUANTUM_TOKENS * cost.prompt


def auto_quantum(cost: CostModel, step_tokens: int, *, batch: int = 1) -> AutoQuantum:
    """A quantum that follows what requests cost, a step's prompt tokens at least. batch: requests of a full batch."""
    least = UNIT if cost.kind == "requests" else step_tokens * cost.prompt
    return AutoQuantum(default_quantum(cost), least, batch=batch)


def make_room(
    policy: Policy,
    cost: CostModel | None = None,
    *,
    quantum: int | AutoQuantum | None = None,
    least: Mapping[int, int] | None = None,
    expects: bool | None = None,
) -> FairRoom:
    """A waiting room. quantum: units a round (drr only), or what chooses them.

    least: minimum shares of lower tiers, in thousandths. expects: charge expected outputs in advance; by default all do
    but `vtc`, the paper's plain form.
    """
    cost = cost or CostModel()
    sizing = quantum if isinstance(quantum, AutoQuantum) and policy == "drr" else None
    units = quantum.units if isinstance(quantum, AutoQuantum) else quantum or default_quantum(cost)
    turns: dict[Policy, Callable[[], Turns]] = {
        "fcfs": Arrivals,
        "vtc": VirtualTokenCounters,
        "vtc-ema": VirtualTokenCounters,
        "drr": lambda: _deficits(sizing, units),
    }
    billing = Billing(cost, expects=policy != "vtc" if expects is None else expects)
    key = by_arrival if policy == "fcfs" else by_urgency
    return FairRoom(turns[policy], billing, Tiers(least or {}, units), quantum=units, key=key, sizing=sizing)


def _deficits(sizing: AutoQuantum | None, units: int) -> DeficitRoundRobin:
    """A tier's turns by deficit."""
    if sizing is None:
        return DeficitRoundRobin(units, BYPASS)
    return sizing.adopt(DeficitRoundRobin(sizing.units, BYPASS))
