"""What work costs, in integers: tokens by weight, requests, or tokens by what each tenant's were measured to take.

Pure. A cost is counted in units, UNIT of them a token of prompt, so that weights below one stay exact. Charging prompt
and outputs, each with its weight, follows VTC (Sheng et al., OSDI 2024).
"""

from dataclasses import dataclass
from typing import Literal

UNIT = 1000
CostKind = Literal["tokens", "requests", "adaptive"]
FACTOR_ONE = 1000  # factors are in thousandths
LEAST_FACTOR, MOST_FACTOR = FACTOR_ONE // 8, 8 * FACTOR_ONE


@dataclass(frozen=True, slots=True)
class Prices:
    """Units for one sequence: for the request itself, and for each of its tokens by kind."""

    request: int
    prompt: int
    cached: int
    output: int

    def cost(self, *, uncached: int, cached: int, outputs: int) -> int:
        """What so many prompt tokens (computed, and found in the prefix cache) and outputs cost."""
        return self.request + uncached * self.prompt + cached * self.cached + outputs * self.output


@dataclass(frozen=True, slots=True, kw_only=True)
class CostModel:
    """Units for each kind of token; under `requests` a request costs UNIT, whatever it holds."""

    kind: CostKind = "tokens"
    prompt: int = UNIT
    cached: int = UNIT // 10
    output: int = 2 * UNIT

    def prices(self, factor: int = FACTOR_ONE) -> Prices:
        """A sequence's prices. factor: thousandths by which its tenant's tokens are dearer than their weights say.

        Rounded once, for each token: sums of them are exact, and what was charged can be given back to the unit.
        """
        if self.kind == "requests":
            return Prices(UNIT, 0, 0, 0)
        if self.kind == "tokens":
            return Prices(0, self.prompt, self.cached, self.output)
        factor = min(max(factor, LEAST_FACTOR), MOST_FACTOR)
        return Prices(0, *(weight * factor // FACTOR_ONE for weight in (self.prompt, self.cached, self.output)))
