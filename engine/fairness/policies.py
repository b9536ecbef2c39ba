"""The waiting rooms there are, by name: one place that knows how each is put together."""

from collections.abc import Callable, Mapping
from typing import Literal

from .arrivals import Arrivals
from .billing import Billing
from .drr import DeficitRoundRobin
from .fair_room import FairRoom
from .pricing import UNIT, CostModel
from .tenant_queue import by_arrival, by_urgency
from .tiers import Tiers
from .turns import Turns
from .vtc import VirtualTokenCounters

Policy = Literal["fcfs", "vtc", "vtc-ema", "drr"]
POLICIES: tuple[Policy, ...] = ("fcfs", "vtc", "vtc-ema", "drr")
QUANTUM_TOKENS = 1000  # about one median request: 300 tokens of prompt and 350 of answer, at two each


def default_quantum(cost: CostModel) -> int:
    """Units a round for streaming answers: about one request's cost."""
    return UNIT if cost.kind == "requests" else QUANTUM_TOKENS * cost.prompt


def make_room(
    policy: Policy,
    cost: CostModel | None = None,
    *,
    quantum: int | None = None,
    least: Mapping[int, int] | None = None,
    expects: bool | None = None,
) -> FairRoom:
    """A waiting room. quantum: units a round (drr only). least: minimum shares of lower tiers, in thousandths.

    expects: charge expected outputs in advance; by default all do but `vtc`, which is the paper's plain form.
    """
    cost = cost or CostModel()
    quantum = quantum or default_quantum(cost)
    turns: dict[Policy, Callable[[], Turns]] = {
        "fcfs": Arrivals,
        "vtc": VirtualTokenCounters,
        "vtc-ema": VirtualTokenCounters,
        "drr": lambda: DeficitRoundRobin(quantum),
    }
    billing = Billing(cost, expects=policy != "vtc" if expects is None else expects)
    key = by_arrival if policy == "fcfs" else by_urgency
    return FairRoom(turns[policy], billing, Tiers(least or {}, quantum), quantum=quantum, key=key)
