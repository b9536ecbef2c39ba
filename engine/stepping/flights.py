"""Steps between their plan and their commit, the oldest first: one at most, or two in the overlapped loop.

Knows no tokens. What a step's sequences hold stays theirs until the last step that computes them has landed, so that no
page and no seat is used anew while a step under way may still touch it.
"""

from collections import Counter, deque
from dataclasses import dataclass

from ..door import Coefficients, SliceRecord, StepRecord
from .cost import Features
from .plan import StepPlan
from .sequence import Sequence


@dataclass(frozen=True, slots=True)
class Flight:
    """A planned step, its slices' sequences in the same order, and what its cost was modelled with."""

    plan: StepPlan
    sequences: list[Sequence]
    features: Features
    coefficients: Coefficients

    def record(self, run_seconds: float, plan_seconds: float, dropped: int) -> StepRecord:
        """dropped: as in StepRecord."""
        plan = self.plan
        filled = sum([len(piece.tokens) for piece in plan.padding if not piece.decode])
        return StepRecord(
            number=plan.number,
            slices=tuple([SliceRecord(s.seq, s.attempt, s.start, len(s.tokens), s.decode) for s in plan.slices]),
            prompt_tokens=self.features.prompt - filled,
            decode_tokens=sum([piece.decode for piece in plan.slices]),
            modelled=plan.modelled,
            decode_only=plan.decode_only,
            target=plan.target,
            coefficients=self.coefficients,
            plan_seconds=plan_seconds,
            run_seconds=run_seconds,
            padding=sum([len(piece.tokens) for piece in plan.padding]),
            dropped=dropped,
        )


class Flights:
    """First planned, first landed. ahead: how many may be under way beside the oldest."""

    def __init__(self, ahead: int) -> None:
        self.ahead = ahead
        self._under_way: deque[Flight] = deque()

    def __len__(self) -> int:
        return len(self._under_way)

    @property
    def can_begin(self) -> bool:
        return len(self._under_way) <= self.ahead

    @property
    def newest(self) -> Flight:
        """The last that was begun; there must be one."""
        return self._under_way[-1]

    def begin(self, flight: Flight) -> None:
        assert self.can_begin, "the step before was not committed"
        for sequence, piece in zip(flight.sequences, flight.plan.slices, strict=True):
            sequence.depart(piece)
        self._under_way.append(flight)

    def land(self, plan: StepPlan) -> Flight:
        """The oldest is over: its sequences are free of it."""
        assert self._under_way and self._under_way[0].plan is plan, "this plan is not in flight, or not the oldest"
        flight = self._under_way.popleft()
        for sequence, piece in zip(flight.sequences, plan.slices, strict=True):
            sequence.land(piece)
        return flight

    def call_back(self, plan: StepPlan) -> Flight:
        """The newest was not launched: its tokens are pending again."""
        assert self._under_way and self._under_way[-1].plan is plan, "this plan is not in flight, or not the newest"
        flight = self._under_way.pop()
        for sequence, piece in zip(flight.sequences, plan.slices, strict=True):
            sequence.call_back(piece)
        return flight

    def check(self, sequences: list[Sequence]) -> None:
        """Assert that `sequences`, all there are, count what is under way of them."""
        steps = Counter(id(sequence) for flight in self._under_way for sequence in flight.sequences)
        counted = {id(sequence): sequence.in_flight for sequence in sequences if sequence.in_flight}
        assert counted == steps, "sequences and flights disagree"
