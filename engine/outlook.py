"""What the front knows of the time that things take: work that waits and runs, and speeds as measured. Pure.

It learns from what enters, begins, is reported and ends, and says what to expect of one more request, tenants taking
turns as they do. Units are the ledger's.
"""

from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from math import inf

from .admission.answer_lengths import AnswerLengths
from .admission.deadlines import Deadlines
from .admission.demand import NO_HURRY, Demand
from .admission.forecast import IDLE, NOTHING, Forecast, Prospect, Running, Speed, forecast, least
from .admission.limits import Need
from .admission.rehearsal import Contender, End, Rehearsal, Stage
from .admission.service_rate import ServiceRate
from .admission.step_times import StepTimes
from .admission.work_line import NO_WORK, Key, Work, WorkLine
from .door import Coefficients, Ready, Report, Result
from .fairness.arrivals import Arrivals
from .fairness.averages import SCALE, Averages
from .fairness.fair_room import FairRoom
from .fairness.shares import CAP, THOUSAND, Room
from .fairness.tenant_queue import by_arrival
from .fairness.ticket import Ticket
from .fairness.tier_room import Standing
from .tenants import TenantTerms

LAST = 2**62  # the order of one who has not come yet
NOWHERE = -1  # a tier that nobody is in
EVERYBODY = ""  # whose queue it is where tenants take no turns
CHUNK = 512  # most prompt tokens of a step, before a longer slice was seen

Queue = tuple[int, str]  # tier and tenant


@dataclass(slots=True)
class _Sequence:
    """One that waits or runs. known: tokens of prompt and outputs. done: those that this attempt has computed.

    left: seconds to its deadline when it came. again: it has run.
    """

    ticket: Ticket
    known: int
    key: Key
    queue: Queue
    runs: bool = False
    done: int = 0
    outputs: int = 0
    left: float = NO_HURRY
    again: bool = False


class Outlook:
    """Owner of the work in a waiting room and a worker, as far as time is concerned.

    shared: tenants keep to their shares while they run, and yield for each other.
    """

    def __init__(self, room: FairRoom, info: Ready, *, shared: bool) -> None:
        self.lengths = AnswerLengths()
        self._prompts, self._most = Averages(), Averages()  # tokens of prompts, and that answers may have, by tenant
        self._room = room
        self._info = info
        self.whole = self.ready = Room(info.seats, info.pages)  # of workers that are ready; `whole` is never nothing
        self.coming: tuple[float, ...] = ()  # when those that are being started are expected to be ready
        self._shared = shared
        self._takes_turns = room.key is not by_arrival
        self._prices = room.billing.cost.prices()
        self._lines: dict[Queue, WorkLine] = {}
        self._deadlines: dict[Queue, list[float]] = {}  # of those that wait, in order
        self._weights: dict[Queue, int] = {}
        self._sequences: dict[int, _Sequence] = {}
        self._running: dict[int, _Sequence] = {}
        self._rate = ServiceRate()
        self._steps = StepTimes()
        self._demand = Demand()
        self._coefficients: Coefficients | None = None
        self._chunk = CHUNK
        self._room_beside = inf  # prompt tokens that the last step could have had beside its decodes
        self._since: float | None = None  # the last Report, if somebody waited for room then and a step was made

    # --- what happens

    def resize(self, ready: Room) -> None:
        """So much room is ready by now in all workers."""
        self.ready = ready
        self.whole = ready if ready.seats else self.whole

    def wait(self, ticket: Ticket, prompt_tokens: int, now: float) -> None:
        """A sequence waits for the first time."""
        sequence = _Sequence(ticket, prompt_tokens, self._room.key(ticket), self._queue(ticket.tier, ticket.tenant))
        self._sequences[ticket.seq] = sequence
        self._enter(sequence)
        sequence.left = NO_HURRY if ticket.deadline is None else ticket.deadline - now
        self._prompts.add(sequence.queue[1], ticket.prompt_tokens)
        self._most.add(sequence.queue[1], ticket.max_tokens)

    def begin(self, seq: int, now: float) -> None:
        """A sequence is sent to the worker."""
        sequence = self._sequences[seq]
        self._leave(sequence)
        sequence.runs, sequence.done = True, 0
        self._running[seq] = sequence
        if not sequence.again:
            sequence.again = True
            self._demand.add(sequence.queue[1], 1, now, sequence.left)

    def took(self, result: Result) -> None:
        """What a Report tells of a sequence that runs."""
        sequence = self._sequences[result.seq]
        sequence.outputs += len(result.tokens)
        sequence.known += len(result.tokens)
        self.lengths.drawn(sequence.ticket.tenant, sequence.outputs)
        sequence.done += result.cached + result.computed + result.recomputed

    def back(self, ticket: Ticket) -> None:
        """A sequence that ran waits again."""
        sequence = self._sequences[ticket.seq]
        del self._running[ticket.seq]
        sequence.runs, sequence.key = False, self._room.key(replace(ticket, again=True))
        self._enter(sequence)

    def end(self, seq: int, *, natural: bool) -> None:
        """A sequence is over. natural: by itself."""
        sequence = self._sequences.pop(seq, None)
        if sequence is None:
            return
        if self._running.pop(seq, None) is None:
            self._leave(sequence)
        if natural:
            self.lengths.add(sequence.ticket.tenant, sequence.outputs)

    def report(self, report: Report, now: float) -> None:
        """Learn speeds from a step. Call it before what its results do to the sequences."""
        self._coefficients = report.coefficients
        step, waiting = report.step, bool(self._lines)
        if step is None:
            self._since = None
            return
        seconds = step.run_seconds + step.plan_seconds
        self._steps.observe(seconds, step.modelled, busy=waiting)
        if waiting:
            self._rate.observe(self._served(report), seconds if self._since is None else now - self._since)
        self._since = now if waiting else None
        self._chunk = max(self._chunk, *(piece.length for piece in step.slices))
        each = step.coefficients.prompt
        self._room_beside = (step.target - step.decode_only) / each if step.target and each else inf

    # --- what is to be expected

    @property
    def rate(self) -> float | None:
        """Units served a second while others wait; None: not known yet."""
        return self._rate.units

    def queued(self, standing: Standing) -> int:
        """Units that what a tenant has waiting is expected to cost, as long as its answers are by now."""
        if not self._takes_turns:  # its queue is everybody's
            return standing.queued
        line = self._lines.get((standing.tier, standing.tenant))
        return self._units(standing.tenant, line.total) if line else 0

    def prospect(
        self,
        need: Need,
        terms: TenantTerms,
        deadlines: Deadlines,
        now: float,
        *,
        priority: int = 0,
        free: Room,
    ) -> Prospect | None:
        """What to expect of a request that comes now; None before any step was seen. free: the worker's room left."""
        speed = self._speed
        if self._coefficients is None or not speed.least_step:
            return None
        at_least = least(need, speed, cached=self._info.prefix_cache)
        expected = None
        if self.lengths:
            need = replace(need, expected=max(need.least, round(self.lengths.least(terms.name))))
            expected = self._expected(need, terms, deadlines, now, priority, free, speed)
        return Prospect(expected, forecast(need, 0.0, IDLE, speed), at_least)

    def demand(self, workers: int, now: float) -> tuple[float, list[tuple[float, float]]]:
        """Seconds that one of so many workers would take for all that waits; and for each deadline of what waits,
        soonest first, the seconds left and the seconds of work due by then. Nothing before a rate is known.
        """
        if not self._rate.units:
            return 0.0, []
        each = workers / self._rate.units  # seconds of one worker for a unit
        queued = sum(self._units(name, line.total) for (_, name), line in self._lines.items())
        waiting = (one for one in self._sequences.values() if not one.runs and one.ticket.deadline is not None)
        costs = sorted((one.ticket.deadline or 0.0, self._units(one.queue[1], _work_of(one))) for one in waiting)
        sums = accumulate(cost for _, cost in costs)
        due = [(at - now, done * each) for (at, _), done in zip(costs, sums, strict=True)]
        return queued * each, due

    def least(self, prompt_tokens: int, outputs: int = 1) -> Forecast:
        """What a sequence with so many tokens to compute, and so many outputs to draw, takes at the very least."""
        need = Need(prompt_tokens=prompt_tokens, max_tokens=outputs, least=outputs)
        return least(need, self._speed, cached=self._info.prefix_cache)

    def check(self, waiting: set[int], running: set[int]) -> None:
        """Assert that exactly these wait and run, and that sums are right."""
        assert self._sequences.keys() == waiting | running, "the outlook has lost somebody"
        assert self._running.keys() == running, "the outlook is wrong about who runs"
        for queue, line in self._lines.items():
            line.check()
            here = [each for each in self._sequences.values() if not each.runs and each.queue == queue]
            assert len(here) == len(line) > 0, f"the outlook is wrong about who waits of {queue}"
        self.lengths.check()

    # --- inside

    def _expected(
        self,
        need: Need,
        terms: TenantTerms,
        deadlines: Deadlines,
        now: float,
        priority: int,
        free: Room,
        speed: Speed,
    ) -> Forecast:
        queue = self._queue(terms.tier, terms.name)
        ticket = Ticket(LAST, LAST, terms.name, priority, deadlines.sooner, tier=terms.tier, weight=terms.weight)
        line = self._lines.get(queue)
        before = line.before(self._room.key(ticket)) if line else NO_WORK
        left = NO_HURRY if deadlines.sooner is None else deadlines.sooner - now
        others = {each.queue: each.ticket.weight for each in self._running.values()} | self._weights
        others.pop(queue, None)
        wait = Rehearsal(
            self._contender(queue, terms.weight, before, now, speed),
            self._pages(need.prompt_tokens),
            [self._contender(*other, self._waiting(other[0]), now, speed) for other in others.items()],
            self._stage(free, {tier for tier, _ in (queue, *others)}, now),
            lambda wait: self._demand.overtaking(queue[1], left, wait, now),
        ).wait()
        return forecast(need, wait, self._beside(need, terms.name, busy=wait > 0.0), speed)

    def _stage(self, free: Room, tiers: set[int], now: float) -> Stage:
        """The workers as they are; those that are being started have room from when they are ready."""
        step = self._step(busy=True)
        stand = max(0.0, min(self.coming) - now) if self.coming and not self.ready.seats else 0.0  # all that runs does
        running = (self._end(each, stand, step) for each in self._running.values())
        return Stage(
            turns={tier: self._room.turns(tier) if self._takes_turns else Arrivals() for tier in tiers},
            seats=self.whole.seats,
            pages=self.whole.pages,
            free_seats=free.seats,
            free_pages=free.pages,
            running=[*running, *self._rooms_to_come(free, now)],
            cap=CAP / THOUSAND if self._shared else None,
            step=step,
        )

    def _rooms_to_come(self, free: Room, now: float) -> Iterator[End]:
        """Seats of workers that are being started, less those that are kept for whoever lost a worker."""
        kept = max(0, len(self._running) - (self.ready.seats - free.seats))
        seats = [at for at in self.coming for _ in range(self._info.seats)][kept:]
        return ((max(0.0, at - now), self._info.pages / self._info.seats, NOWHERE, EVERYBODY) for at in seats)

    def _contender(self, queue: Queue, weight: int, work: Work, now: float, speed: Speed) -> Contender:
        """A tenant that has so much work waiting, or so much of it before a place in its queue."""
        tier, name = queue
        prompt, most = self._prompts.of(name) / SCALE, self._most.of(name) / SCALE
        if work.sequences:
            prompt, most = work.prompt / work.sequences, work.most / work.sequences
        outputs = min(most, self.lengths.mean(name))
        of = speed.coefficients or NOTHING
        return Contender(
            tenant=name,
            tier=tier,
            weight=weight,
            waiting=work.sequences,
            coming=self._demand.of(name, now),
            gone=partial(self._gone, queue, now, work.sequences),
            cost=round(self._prices.request + self._prices.prompt * prompt + self._prices.output * outputs),
            seconds=(outputs + 1) * self._step(busy=True) + of.prompt * prompt,
            pages=(prompt + outputs / 2) / self._info.page_size,
            in_turn=self._takes_turns and self._room.waits(tier, name),  # siblings wait outside
        )

    def _gone(self, queue: Queue, now: float, most: int, seconds: float) -> float:
        """How many of the first `most` that wait will have given up in so many seconds."""
        return min(most, bisect_right(self._deadlines.get(queue, ()), now + seconds))

    def _beside(self, need: Need, tenant: str, *, busy: bool) -> Running:
        """What runs beside one more request. busy: it will have waited for room."""
        running = self._running.values()
        return Running(
            sequences=len(running),
            context=sum(each.known for each in running),
            prompt_left=self._prompts_before(need.prompt_tokens, tenant),
            step=self._step(busy=busy),
        )

    def _prompts_before(self, prompt_tokens: int, tenant: str) -> int:
        """Tokens of prompts that run, computed before one of so many tokens: tenants share a step's evenly."""
        left: Counter[str] = Counter()
        for each in self._running.values():
            if not each.outputs:
                left[each.ticket.tenant] += max(0, each.ticket.prompt_tokens - each.done)
        mine = left.pop(tenant, 0)
        return mine + sum(min(other, mine + prompt_tokens) for other in left.values())

    def _step(self, *, busy: bool) -> float:
        """Seconds of a step, as they are while others wait or as they all are."""
        return self._steps.busy or self._steps.mean if busy else self._steps.mean

    def _end(self, sequence: _Sequence, stand: float, step: float) -> End:
        return stand + self._left(sequence) * step, self._pages(sequence.known), *sequence.queue

    def _left(self, sequence: _Sequence) -> float:
        """Tokens that a running sequence still draws."""
        most = sequence.ticket.max_tokens - sequence.outputs
        return min(most, self.lengths.left(sequence.ticket.tenant, sequence.outputs))

    def _pages(self, tokens: int) -> int:
        """Pages of so many tokens and one more."""
        return -(-(tokens + 1) // self._info.page_size)

    def _waiting(self, queue: Queue) -> Work:
        return self._lines[queue].total if queue in self._lines else NO_WORK

    @property
    def _speed(self) -> Speed:
        of = self._coefficients
        return Speed(
            coefficients=None if of is None else self._steps.corrected(of),
            chunk=self._chunk,
            beside=self._room_beside,
            least_step=self._steps.least,
        )

    def _served(self, report: Report) -> int:
        """Units that a step served."""
        assert report.step is not None
        recomputed = sum(result.recomputed for result in report.results)
        ended = sum(result.outcome in ("stop", "length") for result in report.results)
        prompt = max(0, report.step.prompt_tokens - recomputed)
        cached = sum(result.cached for result in report.results)
        outputs = sum(len(result.tokens) for result in report.results)
        of = self._prices
        return of.request * ended + of.prompt * prompt + of.cached * cached + of.output * outputs

    def _units(self, tenant: str, work: Work) -> int:
        """What so much work is expected to cost."""
        outputs = min(work.most, round(work.sequences * self.lengths.mean(tenant)))
        of = self._prices
        return of.request * work.sequences + of.prompt * work.prompt + of.output * outputs

    def _queue(self, tier: int, tenant: str) -> Queue:
        return tier, tenant if self._takes_turns else EVERYBODY

    def _enter(self, sequence: _Sequence) -> None:
        line = self._lines.setdefault(sequence.queue, WorkLine())
        line.add(sequence.key, _work_of(sequence))
        if sequence.ticket.deadline is not None:
            insort(self._deadlines.setdefault(sequence.queue, []), sequence.ticket.deadline)
        self._weights[sequence.queue] = sequence.ticket.weight

    def _leave(self, sequence: _Sequence) -> None:
        line = self._lines[sequence.queue]
        line.remove(sequence.key)
        if sequence.ticket.deadline is not None:
            deadlines = self._deadlines[sequence.queue]
            del deadlines[bisect_left(deadlines, sequence.ticket.deadline)]
        if not line:
            del self._lines[sequence.queue], self._weights[sequence.queue]
            self._deadlines.pop(sequence.queue, None)


def _work_of(sequence: _Sequence) -> Work:
    """What it still asks for."""
    return Work(1, sequence.ticket.prompt_tokens, sequence.ticket.max_tokens - sequence.outputs)
