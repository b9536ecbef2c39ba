"""What each sequence was charged and what it turns out to cost: all of it when it is admitted, then only differences.

Pure. Outputs are charged in advance, as many as the tenant's answers had of late; more of them cost as they come, fewer
are given back at the end. When a sequence has ended, charges less refunds are exactly what it took.
"""

from dataclasses import dataclass

from .averages import SCALE, Averages
from .pricing import FACTOR_ONE, CostModel, Prices
from .ticket import Ticket


@dataclass(slots=True)
class _Bill:
    """One sequence. expected: outputs charged in advance. charged: units so far, less what was given back.

    cached: prompt tokens that were found when it began, None before that. done: prompt tokens found or computed.
    """

    tenant: str
    prompt_tokens: int
    expected: int
    prices: Prices
    charged: int = 0
    cached: int | None = None
    done: int = 0
    outputs: int = 0
    micros: int = 0

    @property
    def due(self) -> int:
        """What it should have been charged by now: all of its prompt, and outputs expected or drawn."""
        cached = self.cached or 0
        outputs = max(self.expected, self.outputs)
        return self.prices.cost(uncached=self.prompt_tokens - cached, cached=cached, outputs=outputs)

    def took(self, prices: Prices) -> int:
        """What was done for it; nothing where nothing was."""
        cached = self.cached or 0
        if not self.done:
            return 0
        return prices.cost(uncached=self.done - cached, cached=cached, outputs=self.outputs)


class Billing:
    """Bills of sequences that were admitted, and what each tenant's answers usually are.

    expects: charge expected outputs in advance. recomputed: tokens computed again after a yield, a preemption or a
    failure of ours. Nobody's fault but ours: they are on no tenant's bill.
    """

    def __init__(self, cost: CostModel, *, expects: bool = True) -> None:
        self.cost = cost
        self.recomputed = 0
        self._expects = expects
        self._bills: dict[int, _Bill] = {}
        self._outputs = Averages()
        self._micros, self._units = Averages(), Averages()  # of a sequence, for `adaptive`

    @property
    def system_units(self) -> int:
        """The system's own ledger: what recomputing would have cost."""
        return self.recomputed * self.cost.prompt

    def __contains__(self, seq: int) -> bool:
        return seq in self._bills

    def expected(self, tenant: str, max_tokens: int) -> int:
        """Outputs to expect of a tenant's next request; of an unknown tenant what all of them had."""
        return min(max_tokens, self._outputs.of(tenant) // SCALE) if self._expects else 0

    def factor(self, tenant: str) -> int:
        """Thousandths: how long the tenant's work takes for its units, by how long everybody's does."""
        ours = self._micros.of(tenant) * self._units.of_all
        all_of_them = self._micros.of_all * self._units.of(tenant)
        return ours * FACTOR_ONE // all_of_them if self.cost.kind == "adaptive" and all_of_them else FACTOR_ONE

    def price(self, ticket: Ticket) -> int:
        """What admitting it would charge now; a sequence that comes back has paid."""
        return 0 if ticket.seq in self._bills else self._new_bill(ticket).due

    def admit(self, ticket: Ticket) -> int:
        """Open a bill; the units to charge."""
        if ticket.seq in self._bills:
            return 0
        bill = self._bills[ticket.seq] = self._new_bill(ticket)
        return _settle(bill, bill.due)

    def spent(
        self, seq: int, *, cached: int = 0, computed: int = 0, recomputed: int = 0, outputs: int = 0, micros: int = 0
    ) -> int:
        """What a Report tells of a sequence; the units to charge beside what was charged (negative: to give back).

        cached: counts once, with the first Report of anything done: what a later attempt finds is its own work.
        computed, recomputed: tokens of prompt and outputs, as in a Result. micros: modelled microseconds of the steps,
        its part of them.
        """
        bill = self._bills[seq]
        if bill.cached is None and (cached or computed or outputs):  # else it was called back before it began
            bill.cached = bill.done = min(cached, bill.prompt_tokens)
        bill.outputs += outputs
        bill.micros += micros
        # Whoever has outputs has a computed prompt, also where a later attempt found a part of it.
        done = bill.prompt_tokens if bill.outputs else bill.done + computed + recomputed
        bill.done = min(bill.prompt_tokens, done)
        self.recomputed += recomputed
        return _settle(bill, bill.due)

    def end(self, seq: int, *, natural: bool) -> int:
        """Close a bill; the units to charge (negative: to give back).

        natural: the answer ended by itself, so that its length tells something of the next one's.
        """
        bill = self._bills.pop(seq)
        if natural:
            self._outputs.add(bill.tenant, bill.outputs)
        if bill.micros and (units := bill.took(self.cost.prices())):
            self._micros.add(bill.tenant, bill.micros)
            self._units.add(bill.tenant, units)
        return _settle(bill, bill.took(bill.prices))

    def check(self) -> None:
        """Assert that no running sequence's bill has fallen behind, and the bounds on memory."""
        assert all(bill.charged == bill.due for bill in self._bills.values()), "a bill is not settled"
        for averages in (self._outputs, self._micros, self._units):
            averages.check()

    def _new_bill(self, ticket: Ticket) -> _Bill:
        expected = self.expected(ticket.tenant, ticket.max_tokens)
        return _Bill(ticket.tenant, ticket.prompt_tokens, expected, self.cost.prices(self.factor(ticket.tenant)))


def _settle(bill: _Bill, due: int) -> int:
    units, bill.charged = due - bill.charged, due
    return units
