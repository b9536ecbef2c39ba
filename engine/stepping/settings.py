"""The numbers a step loop works under, frozen. Knows no model and no machine."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSettings:
    """step_tokens: most tokens a step; seats: most running sequences; pages: page ids 1..pages are usable (0 is the
    null page). chunk: most prompt tokens of one sequence a step; under `deterministic` prompts are cut exactly at its
    multiples. inter_token_target: seconds, None for AUTO_TARGET times the decode-only cost. context: longest sequence.
    """

    step_tokens: int
    seats: int
    pages: int
    page_size: int
    chunk: int
    context: int
    deterministic: bool = False
    inter_token_target: float | None = None
    prefix_cache: bool = True

    @property
    def pool_tokens(self) -> int:
        """Most tokens one sequence can ever have in the pool."""
        return self.pages * self.page_size
