"""The numbers a step loop works under, frozen. Knows no model and no machine."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSettings:
    """step_tokens: most tokens a step; seats: most running sequences; pages: page ids 1..pages are usable (0 is the
    null page). chunk: most prompt tokens of one sequence a step; under `deterministic` prompts are cut exactly at its
    multiples. inter_token_target: seconds, None for the scheduler's auto_target. context: longest sequence.
    rope_edge: the length from which rotary scaling depends on the length; 0: it never does. rope_switches: past the
    edge all positions of a sequence change, so one that outgrows it is computed anew (longrope); else each position
    keeps the scaling it was computed with (dynamic).
    static: newcomers are seated only when nothing runs, so that a batch stays as it is until all of it has ended.
    padded: static, and every sequence of a batch is computed as long as the longest: see padding.py.
    ahead: so many steps are planned and launched while an earlier one runs: 0 (the plain loop) or 1 (the overlapped).
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
    rope_edge: int = 0
    rope_switches: bool = False
    static: bool = False
    padded: bool = False
    ahead: int = 0

    @property
    def pool_tokens(self) -> int:
        """Most tokens one sequence can ever have in the pool."""
        return self.pages * self.page_size
