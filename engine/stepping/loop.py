"""The step loop behind the door: Orders in, a plan out, its output back in, a Report out. Runs nothing itself.

It owns the sequences held here, by seq, and joins scheduler, pages, prefix cache and step model.
"""

from typing import Literal

from msgspec.structs import replace

from ..door import (
    Admit,
    Gauges,
    Headroom,
    Orders,
    Outcome,
    Report,
    Result,
    StepRecord,
    TokenLogprobs,
)
from .bisection import Bisection
from .cost import StepModel
from .flights import Flight, Flights
from .pages import PagePool
from .plan import Slice, StepOutput, StepPlan
from .prefix import PrefixCache
from .rope_lengths import RopeLengths
from .scheduler import Scheduler
from .sequence import Leaving, Sequence
from .settings import StepSettings
from .telling import BROKEN, NOTHING, Drawn, drawn_by, prompt_logprobs_of, told_of


class StepLoop:
    """plan() and commit() in turn, apply() at any time. One thread.

    With StepSettings.ahead a plan may be made before the last one is committed. It counts on every sequence to go on
    that is not known to end; whoever ends all the same has its later slice dropped.
    """

    def __init__(self, settings: StepSettings, model: StepModel) -> None:
        self._context = min(settings.context, settings.pool_tokens)
        self._seats = settings.seats
        self._model = model
        self._pool = PagePool(settings.pages, settings.page_size)
        self._rope = RopeLengths(settings.rope_edge, settings.rope_switches)
        self._cache = PrefixCache(self._pool, enabled=settings.prefix_cache, rope=self._rope)
        self._scheduler = Scheduler(settings, model, self._pool, self._cache)
        self._bisection = Bisection(model, self._rope)
        self._held: dict[int, Sequence] = {}
        self._results: list[Result] = []
        self._flights = Flights(settings.ahead)
        self._steps = self._orders = self._preemptions = self._stale = self._reports = 0

    @property
    def has_work(self) -> bool:
        """Whether a sequence is running or waiting here: then plan() has slices, if no step is under way."""
        return bool(self._scheduler.running or self._scheduler.waiting)

    @property
    def can_plan(self) -> bool:
        """Whether no step, or none too many, is under way."""
        return self._flights.can_begin and not (self._bisection.is_active and len(self._flights))

    def apply(self, orders: Orders) -> None:
        """Cancel, give back, admit, in this order; also while a step is in flight.

        What is in flight keeps its seat and pages until the commit and its token is dropped then. Orders that do not
        fit what is held (an unknown sequence, another attempt), or that came before, are counted and ignored.
        """
        if orders.number <= self._orders:
            self._stale += 1
            return
        for seq, attempt in orders.cancel:
            self._leave(seq, attempt, "cancelled")
        for seq, attempt in orders.give_back:
            self._leave(seq, attempt, "yielded")
        for admit in orders.admit:
            self._admit(admit)
        self._orders = orders.number

    def plan(self) -> StepPlan:
        """The next step; without slices when nothing can run, and then no commit follows."""
        assert self.can_plan, "the step before was not committed"
        draft = self._bisection.draft() or self._scheduler.plan()
        for victim in draft.preempted:
            del self._held[victim.seq]
            self._results.append(replace(told_of(victim), outcome="preempted"))
        self._preemptions += len(draft.preempted)
        if not draft.slices:
            return StepPlan(self._steps, ())
        self._steps += 1
        costs = draft.modelled, draft.decode_only, draft.target
        plan = StepPlan(self._steps, tuple(draft.slices), *costs, tuple(draft.padding))
        self._flights.begin(Flight(plan, draft.sequences, draft.features, self._model.coefficients))
        return plan

    def commit(self, plan: StepPlan, output: StepOutput, *, run_seconds: float, plan_seconds: float = 0.0) -> Report:
        """Take in the oldest step's tokens: append them, end sequences, name full pages, learn the step's time."""
        flight = self._flights.land(plan)
        drawn, prompt_logprobs = drawn_by(plan, output), prompt_logprobs_of(plan, output)
        dropped = 0
        for sequence, piece, its, prompt in zip(flight.sequences, plan.slices, drawn, prompt_logprobs, strict=True):
            if sequence.state == "ended":
                dropped += len(piece.tokens)
                self._scheduler.remove(sequence)
            else:
                self._commit_slice(sequence, piece, its, prompt)
        self._bisection.ran()
        self._model.observe(flight.features, run_seconds)
        return self._report(flight.record(run_seconds, plan_seconds, dropped))

    def run_again(self, plan: StepPlan, *, run_seconds: float = 0.0) -> Report | None:
        """The one step under way could not be computed: nothing of it is taken in, and its halves are planned next.

        None: there is nothing to part any more, and it is to fail().
        """
        flight = self._flights.newest
        going_on = [sequence for sequence in flight.sequences if sequence.state != "ended" and not sequence.leaving]
        if not self._bisection.split(plan, going_on):
            return None
        self.abandon(plan)
        return self._report(flight.record(run_seconds, 0.0, 0))

    def fail(self, plan: StepPlan, message: str, *, run_seconds: float = 0.0) -> Report:
        """Instead of commit: the step could not be computed. Its sequences end in error, and no others."""
        flight = self._flights.land(plan)
        for sequence in flight.sequences:
            told = replace(told_of(sequence), isolated=self._bisection.is_culprit(sequence))
            self._end(told, sequence, sequence.leaving or "error", message)
        return self._report(flight.record(run_seconds, 0.0, 0))

    def abandon(self, plan: StepPlan) -> None:
        """Forget the newest step: it was not computed. Its tokens stay pending; who was leaving leaves."""
        for sequence in self._flights.call_back(plan).sequences:
            if sequence.in_flight:
                continue
            if sequence.state == "ended":
                self._scheduler.remove(sequence)
            elif sequence.leaving:
                self._end(told_of(sequence), sequence, sequence.leaving)

    def report(self) -> Report:
        """The state now, and results that no step carried."""
        return self._report(None)

    def check(self) -> None:
        """Assert every owner's rules; for tests and idle moments."""
        self._scheduler.check()
        here = [*self._scheduler.running, *self._scheduler.waiting]
        self._flights.check(here)
        for sequence in here:
            asked_for = self._held.get(sequence.seq) is sequence or sequence.leaving
            assert asked_for or sequence.state == "ended", f"sequence {sequence.seq} is here and nobody asks for it"
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

    def _leave(self, seq: int, attempt: int, outcome: Literal["cancelled", "yielded"]) -> None:
        sequence = self._held.get(seq)
        if sequence is None or sequence.attempt != attempt or sequence.leaving in ("cancelled", outcome):
            self._stale += 1
        elif sequence.in_flight:
            sequence.leaving = outcome
        else:
            self._end(told_of(sequence), sequence, outcome)

    def _commit_slice(self, sequence: Sequence, piece: Slice, drawn: Drawn, prompt: tuple[TokenLogprobs, ...]) -> None:
        sequence.computed = piece.end
        broken = drawn[0] == BROKEN
        if broken or sequence.leaving in ("cancelled", "yielded"):
            drawn = NOTHING
        told = told_of(sequence, piece, drawn, prompt)
        if broken:
            self._pool.forget(sequence.pages)
            message = f"the model's output at position {piece.end} was not finite"
            self._end(told, sequence, sequence.leaving or "error", message)
            return
        self._cache.register(sequence)
        if told.tokens:
            self._take(told, sequence)
        elif sequence.leaving:
            self._end(told, sequence, sequence.leaving)
        elif sequence.computed < len(sequence.tokens):
            self._results.append(told)
        else:
            self._end(told, sequence, "length")  # it draws nothing

    def _take(self, told: Result, sequence: Sequence) -> None:
        """Append a drawn token, and end the sequence if that ends it, or if its keys are to be turned anew."""
        outcome = sequence.take(told.tokens[0], self._context)
        if outcome is not None:
            self._end(told, sequence, outcome)
        elif sequence.leaving or self._rope.outgrown(sequence, len(sequence.tokens)):
            self._end(told, sequence, "preempted")
        else:
            self._results.append(told)

    def _end(self, told: Result, sequence: Sequence, outcome: Outcome | Leaving, error: str | None = None) -> None:
        """Take a sequence out of every book; say so, with what is told of it, unless cancelled or said before."""
        told_before = sequence.state == "ended"
        self._scheduler.remove(sequence)
        if told_before:
            return
        self._preemptions += outcome == "preempted"
        if self._held.get(sequence.seq) is sequence:
            del self._held[sequence.seq]
        if outcome != "cancelled":
            stop_id = told.tokens[-1] if outcome == "stop" else None
            error = error if outcome == "error" else None
            self._results.append(replace(told, outcome=outcome, stop_id=stop_id, error=error))

    def _report(self, step: StepRecord | None) -> Report:
        results, self._results = tuple(self._results), []
        self._reports += 1
        return Report(
            orders=self._orders,
            results=results,
            headroom=self._headroom(),
            gauges=self._gauges(),
            coefficients=self._model.coefficients,
            step=step,
            number=self._reports,
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
