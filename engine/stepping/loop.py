"""The step loop behind the door: Orders in, a plan out, its output back in, a Report out. Runs nothing itself.

It owns the sequences held here, by seq, and joins scheduler, pages, prefix cache and step model.
"""

from dataclasses import dataclass
from typing import Literal

from msgspec.structs import replace

from ..door import (
    Admit,
    Coefficients,
    Gauges,
    Headroom,
    Orders,
    Outcome,
    Report,
    Result,
    SliceRecord,
    StepRecord,
    TokenLogprobs,
)
from .cost import Features, StepModel
from .pages import PagePool
from .plan import Slice, StepOutput, StepPlan
from .prefix import PrefixCache
from .rope_lengths import RopeLengths
from .scheduler import Scheduler
from .sequence import Sequence
from .settings import StepSettings
from .telling import BROKEN, NOTHING, Drawn, drawn_by, prompt_logprobs_of, told_of

Leaving = Literal["cancelled", "yielded"]


@dataclass(frozen=True, slots=True)
class _Flight:
    """A step between plan and commit."""

    plan: StepPlan
    sequences: list[Sequence]
    features: Features
    coefficients: Coefficients


class StepLoop:
    """plan() and commit() in turn, apply() at any time. One thread."""

    def __init__(self, settings: StepSettings, model: StepModel) -> None:
        self._context = min(settings.context, settings.pool_tokens)
        self._seats = settings.seats
        self._model = model
        self._pool = PagePool(settings.pages, settings.page_size)
        self._rope = RopeLengths(settings.rope_edge, settings.rope_switches)
        self._cache = PrefixCache(self._pool, enabled=settings.prefix_cache, rope=self._rope)
        self._scheduler = Scheduler(settings, model, self._pool, self._cache)
        self._held: dict[int, Sequence] = {}
        self._results: list[Result] = []
        self._flight: _Flight | None = None
        self._steps = self._orders = self._preemptions = self._stale = 0

    @property
    def has_work(self) -> bool:
        """Whether a sequence is running or waiting here: then plan() has slices."""
        return bool(self._scheduler.running or self._scheduler.waiting)

    def apply(self, orders: Orders) -> None:
        """Cancel, give back, admit, in this order; also while a step is in flight.

        What is in flight keeps its seat and pages until the commit and its token is dropped then. Orders that do not
        fit what is held (an unknown sequence, another attempt) are counted and ignored.
        """
        for seq, attempt in orders.cancel:
            self._leave(seq, attempt, "cancelled")
        for seq, attempt in orders.give_back:
            self._leave(seq, attempt, "yielded")
        for admit in orders.admit:
            self._admit(admit)
        self._orders = orders.number

    def plan(self) -> StepPlan:
        """The next step; without slices when nothing can run, and then no commit follows."""
        assert self._flight is None, "the step before was not committed"
        draft = self._scheduler.plan()
        for victim in draft.preempted:
            del self._held[victim.seq]
            self._results.append(replace(told_of(victim), outcome="preempted"))
        self._preemptions += len(draft.preempted)
        if not draft.slices:
            return StepPlan(self._steps, ())
        self._steps += 1
        costs = draft.modelled, draft.decode_only, draft.target
        plan = StepPlan(self._steps, tuple(draft.slices), *costs, tuple(draft.padding))
        self._flight = _Flight(plan, draft.sequences, draft.features, self._model.coefficients)
        return plan

    def commit(self, plan: StepPlan, output: StepOutput, *, run_seconds: float, plan_seconds: float = 0.0) -> Report:
        """Take in a step's tokens: append them, end sequences, name full pages, learn the step's time."""
        flight = self._land(plan)
        drawn, prompt_logprobs = drawn_by(plan, output), prompt_logprobs_of(plan, output)
        for told in zip(flight.sequences, plan.slices, drawn, prompt_logprobs, strict=True):
            self._commit_slice(*told)
        self._model.observe(flight.features, run_seconds)
        return self._report(_record(flight, run_seconds, plan_seconds))

    def fail(self, plan: StepPlan, message: str, *, run_seconds: float = 0.0) -> Report:
        """Instead of commit: the step could not be computed. Its sequences end in error, and no others."""
        flight = self._land(plan)
        for sequence in flight.sequences:
            self._end(told_of(sequence), sequence, sequence.leaving or "error", message)
        return self._report(_record(flight, run_seconds, 0.0))

    def abandon(self, plan: StepPlan) -> None:
        """Instead of commit: forget that the step was planned. Its tokens stay pending; who was leaving leaves."""
        for sequence in self._land(plan).sequences:
            if sequence.leaving:
                self._end(told_of(sequence), sequence, sequence.leaving)

    def report(self) -> Report:
        """The state now, and results that no step carried."""
        return self._report(None)

    def check(self) -> None:
        """Assert every owner's rules; for tests and idle moments."""
        self._scheduler.check()
        here = [*self._scheduler.running, *self._scheduler.waiting]
        flying = self._flight.sequences if self._flight else []
        assert [s for s in here if s.in_flight] == sorted(flying, key=lambda s: s.age), "flags and flight disagree"
        for sequence in here:
            held = self._held.get(sequence.seq) is sequence
            assert held or sequence.leaving, f"sequence {sequence.seq} is here and nobody asks for it"
            assert sequence.in_flight or not sequence.leaving, f"sequence {sequence.seq} should have left"
        assert all(s.state != "gone" for s in self._held.values()), "a sequence is held and not here"

    def _admit(self, admit: Admit) -> None:
        older = self._held.get(admit.seq)
        if older is not None:
            if older.attempt >= admit.attempt:
                self._stale += 1
                return
            self._leave(older.seq, older.attempt, "cancelled")
        refusal = self._refusal(admit)
        if refusal:
            self._results.append(Result(admit.seq, admit.attempt, outcome="error", error=refusal))
            return
        sequence = self._held[admit.seq] = Sequence(admit)
        self._scheduler.add(sequence)

    def _refusal(self, admit: Admit) -> str | None:
        """Why a sequence could never run. The front refuses such requests at submit; here they must stall nobody."""
        known, outputs = len(admit.tokens), len(admit.tokens) - admit.prompt_len
        if known >= self._context:
            return f"{known} tokens leave no room for another in a context of {self._context}"
        if admit.prompt_len < 1 or not 0 <= outputs < max(1, admit.sampling.max_tokens):
            return (
                f"nothing to draw: {known} tokens known, {admit.prompt_len} of them the prompt, "
                f"{admit.sampling.max_tokens} outputs at most"
            )
        return None

    def _leave(self, seq: int, attempt: int, outcome: Leaving) -> None:
        sequence = self._held.get(seq)
        if sequence is None or sequence.attempt != attempt or sequence.leaving in ("cancelled", outcome):
            self._stale += 1
        elif sequence.in_flight:
            sequence.leaving = outcome
        else:
            self._end(told_of(sequence), sequence, outcome)

    def _land(self, plan: StepPlan) -> _Flight:
        flight = self._flight
        assert flight is not None and flight.plan is plan, "this plan is not in flight"
        self._flight = None
        for sequence in flight.sequences:
            sequence.in_flight = False
        return flight

    def _commit_slice(self, sequence: Sequence, piece: Slice, drawn: Drawn, prompt: tuple[TokenLogprobs, ...]) -> None:
        sequence.computed = piece.end
        broken = drawn[0] == BROKEN
        if broken or sequence.leaving:
            drawn = NOTHING
        told = told_of(sequence, piece, drawn, prompt)
        if broken:
            self._pool.forget(sequence.pages)
            message = f"the model's output at position {piece.end} was not finite"
            self._end(told, sequence, sequence.leaving or "error", message)
            return
        self._cache.register(sequence)
        if sequence.leaving:
            self._end(told, sequence, sequence.leaving)
        elif told.tokens:
            self._take(told, sequence)
        elif sequence.pending:
            self._results.append(told)
        else:
            self._end(told, sequence, "length")  # it draws nothing

    def _take(self, told: Result, sequence: Sequence) -> None:
        """Append a drawn token, and end the sequence if that ends it, or if its keys are to be turned anew."""
        outcome = sequence.take(told.tokens[0], self._context)
        if outcome is not None:
            self._end(told, sequence, outcome)
        elif self._rope.outgrown(sequence):
            self._preemptions += 1
            self._end(told, sequence, "preempted")
        else:
            self._results.append(told)

    def _end(self, told: Result, sequence: Sequence, outcome: Outcome | Leaving, error: str | None = None) -> None:
        """Take a sequence out of every book; say so, with what is told of it, unless it was cancelled."""
        self._scheduler.remove(sequence)
        if self._held.get(sequence.seq) is sequence:
            del self._held[sequence.seq]
        if outcome != "cancelled":
            stop_id = told.tokens[-1] if outcome == "stop" else None
            error = error if outcome == "error" else None
            self._results.append(replace(told, outcome=outcome, stop_id=stop_id, error=error))

    def _report(self, step: StepRecord | None) -> Report:
        results, self._results = tuple(self._results), []
        return Report(
            orders=self._orders,
            results=results,
            headroom=self._headroom(),
            gauges=self._gauges(),
            coefficients=self._model.coefficients,
            step=step,
        )

    def _headroom(self) -> Headroom:
        waiting = self._scheduler.waiting
        return Headroom(
            seats=self._seats - len(self._scheduler.running) - len(waiting),
            pages=self._pool.available - sum(map(self._scheduler.need, waiting)),
            queued=len(waiting),
        )

    def _gauges(self) -> Gauges:
        return Gauges(
            running=len(self._scheduler.running),
            waiting=len(self._scheduler.waiting),
            pages_total=self._pool.pages,
            pages_used=self._pool.held,
            pages_cached=self._pool.cached,
            preemptions=self._preemptions,
            prefix_queries=self._cache.queries,
            prefix_hits=self._cache.hits,
            stale_orders=self._stale,
        )


def _record(flight: _Flight, run_seconds: float, plan_seconds: float) -> StepRecord:
    plan = flight.plan
    filled = sum([len(piece.tokens) for piece in plan.padding if not piece.decode])
    return StepRecord(
        number=plan.number,
        slices=tuple([SliceRecord(s.seq, s.attempt, s.start, len(s.tokens), s.decode) for s in plan.slices]),
        prompt_tokens=flight.features.prompt - filled,
        decode_tokens=sum([piece.decode for piece in plan.slices]),
        modelled=plan.modelled,
        decode_only=plan.decode_only,
        target=plan.target,
        coefficients=flight.coefficients,
        plan_seconds=plan_seconds,
        run_seconds=run_seconds,
        padding=sum([len(piece.tokens) for piece in plan.padding]),
    )
