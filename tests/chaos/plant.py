"""A front and several workers on fake runners, in virtual time, with everything that can go wrong on call.

Faults are those of a seeded Random. Nothing sleeps and no process is started: a worker is killed by forgetting it.
"""

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from fairstep.clock import ManualClock
from fairstep.door import Orders, Ready, Report
from fairstep.errors import RequestQuarantined
from fairstep.fairness.policies import make_room
from fairstep.front import Front
from fairstep.metrics import Metrics
from fairstep.request import Delta, Request, SamplingParams
from fairstep.stepping.cost import StepModel
from fairstep.stepping.loop import StepLoop
from fairstep.stepping.plan import NOT_FINITE, StepOutput, StepPlan
from fairstep.stepping.settings import StepSettings
from fairstep.worker import Worker
from fakes_text import FakeTokenizer
from fakes_worker import FakeRunner, letter, ready

KILLS, RAISES, BREAKS = 101, 102, 103  # first prompt tokens of requests that do so, at their third output token
FATAL_POSITION = 2
SILENCE = 100.0  # seconds after which a hung worker is ended


class Killed(BaseException):
    """The process is gone, whatever it was about to do."""


@dataclass
class FaultyRunner(FakeRunner):
    """Says a, b, c, ...; a culprit's third token kills the process, raises, or is not finite."""

    runs: int = 0
    culprits: dict[int, int] = field(default_factory=dict)  # by sequence, what it does
    doomed: bool = False  # the next step is the last

    def launch(self, plan: StepPlan) -> "Said":
        self.runs += 1
        if self.doomed:
            raise Killed
        deeds = {self._deed(piece.seq) for piece in plan.slices if piece.samples and piece.position >= FATAL_POSITION}
        if KILLS in deeds:
            raise Killed
        if RAISES in deeds:
            raise RuntimeError("out of luck")
        broken = [self._deed(s.seq) == BREAKS and s.position >= FATAL_POSITION for s in plan.slices if s.samples]
        said = super().launch(plan).result()
        tokens = tuple(NOT_FINITE if bad else token for bad, token in zip(broken, said.tokens, strict=True))
        return Said(StepOutput(tokens, said.logprobs, said.prompt_logprobs))

    def _deed(self, seq: int) -> int:
        return self.culprits.get(seq, 0)


@dataclass(frozen=True)
class Said:
    output: StepOutput

    def result(self) -> StepOutput:
        return self.output


@dataclass
class Hand:
    """A worker, and what is on its way to it and from it."""

    worker: Worker
    loop: StepLoop
    runner: FaultyRunner
    inbox: deque[Orders] = field(default_factory=deque)
    ordered: list[Orders] = field(default_factory=list)  # what it has been told, and may be told once more
    outbox: deque[Report] = field(default_factory=deque)
    hangs_since: float | None = None


class Plant:
    """count: workers. Each restart takes some steps of the whole plant's time."""

    def __init__(self, own: StepSettings, count: int = 1, *, pick: Random | None = None, **front: object) -> None:
        self.own = own
        self.pick = pick or Random(0)
        self.clock = ManualClock()
        self.metrics = Metrics(warns=False)
        self.front = Front(
            self.info,
            FakeTokenizer(),
            make_room("drr"),
            self.metrics,
            lambda: 7,
            shared=True,
            **front,  # type: ignore[arg-type]
        )
        self.hands: dict[int, Hand] = {0: self._hand()}
        self.culprits: dict[int, int] = {}
        self.told: dict[str, list[Delta]] = {}
        self.counts: Counter[str] = Counter()
        self.late: list[tuple[int, Report]] = []  # what dead workers, or the door, may say once more
        self._lives = 1
        self._restarts = 0
        for _ in range(count - 1):
            self.start()

    @property
    def info(self) -> Ready:
        return ready(self.own)

    def _hand(self) -> Hand:
        runner = FaultyRunner()
        loop = StepLoop(self.own, StepModel())
        return Hand(Worker(loop, runner, self.clock), loop, runner)

    # --- what the world does

    def submit(
        self, first: int, params: SamplingParams, length: int = 3, *, siblings: int = 1, **place: object
    ) -> str | None:
        """A request, or several siblings, whose prompt begins with `first`; None if it is refused."""
        name = f"r{len(self.told)}"
        prompt = (first, *(97 + self.pick.randrange(3) for _ in range(length - 1)))
        asked = Request(id=name, prompt_ids=prompt, params=params, arrival=self.clock.now(), **place)  # type: ignore[arg-type]
        requests = asked.siblings(siblings)
        try:
            ended = self.front.submit(*requests, now=self.clock.now())
        except RequestQuarantined:
            self.counts["quarantined at the door"] += 1
            return None
        for request in requests:
            self.told[request.id] = []
            if (seq := self.front.seq_of(request.id)) is not None and first in (KILLS, RAISES, BREAKS):
                self.culprits[seq] = first
        self.hear(ended)
        return name

    def cancel(self, name: str) -> None:
        self.hear([delta for delta in [self.front.cancel(name, self.clock.now())] if delta])

    def start(self) -> None:
        """A worker is ready."""
        number, self._lives = self._lives, self._lives + 1
        self.hands[number] = self._hand()
        self._restarts = max(0, self._restarts - 1)
        self._expect()
        self.front.join(number, self.info)

    @property
    def restarts_due(self) -> int:
        return self._restarts

    def resize(self, count: int) -> None:
        """So many workers are to stay: some may be about to go, or one more is started."""
        missing = self.front.resize(count) - self._restarts
        for _ in range(missing):
            self.start()

    def kill(self, number: int, reason: str = "the worker process was ended by SIGKILL") -> None:
        """A worker is gone, and the front hears of it after what it said."""
        hand = self.hands.pop(number)
        while hand.outbox and self.pick.random() < 0.5:  # the rest never left
            self.hear(self.front.receive(hand.outbox.popleft(), self.clock.now(), number))
        self.late += [(number, report) for report in hand.outbox]
        self._restarts += 1
        self._expect()
        self.counts["deaths"] += 1
        self.hear(self.front.lose(number, reason, self.clock.now()))

    def tick(self, number: int) -> None:
        """One turn of a worker: Orders in, a step, its Report on the way."""
        hand = self.hands[number]
        if hand.hangs_since is not None:
            if self.clock.now() - hand.hangs_since >= SILENCE:
                self.kill(number, "the worker gave no sign of life, and was ended")
            return
        hand.runner.culprits = self.culprits
        while hand.inbox:
            hand.ordered.append(hand.inbox.popleft())
            hand.worker.apply(hand.ordered[-1])
        try:
            hand.outbox.append(hand.worker.step())
        except Killed:
            self.kill(number)

    def deliver(self, number: int) -> None:
        """The oldest Report on its way arrives."""
        hand = self.hands[number]
        if hand.outbox:
            report = hand.outbox.popleft()
            self.late.append((number, report))
            self.hear(self.front.receive(report, self.clock.now(), number))
            for gone in self.front.vacated():
                left = self.hands.pop(gone)
                assert not any(orders.admit for orders in left.inbox), "work was sent to a worker that was to go"
                left.worker.check()
                assert not left.loop._held and left.loop._pool.held == 0, "pages were lost"
                self.late += [(gone, report) for report in left.outbox]
                self.counts["let go"] += 1

    def repeat(self) -> None:
        """A Report arrives that has been delivered before, or whose worker is dead."""
        if self.late:
            number, report = self.pick.choice(self.late)
            before = self.metrics.steps.stats().stale_results
            self.hear(self.front.receive(report, self.clock.now(), number))
            self.counts["stale"] += self.metrics.steps.stats().stale_results - before

    def order_again(self, number: int) -> None:
        """Orders arrive that a worker has had before."""
        hand = self.hands[number]
        if hand.ordered:
            hand.worker.apply(self.pick.choice(hand.ordered))
            self.counts["duplicates dropped"] += 1

    def order(self) -> None:
        """The front's turn."""
        self.hear(self.front.expire(self.clock.now()))
        for number, orders in self.front.dispatch(self.clock.now()).items():
            self.hands[number].inbox.append(orders)

    def turn(self) -> None:
        """Everybody does what there is to do, once."""
        self.order()
        for number in list(self.hands):
            self.tick(number)
        for number in list(self.hands):
            if number in self.hands:
                self.deliver(number)
        self.clock.jump(1.0)

    def settle(self, turns: int = 5000, on_turn: Callable[[], None] = lambda: None) -> None:
        """Go on without new faults until all have ended; a dead worker is started again at the next turn."""
        for _ in range(turns):
            if not self.front.has_requests and not any(hand.hangs_since for hand in self.hands.values()):
                break
            while self._restarts:
                self.start()
            self.turn()
            on_turn()
        assert not self.front.has_requests, "somebody waits for ever"
        for _ in range(3):  # the last cancels arrive
            self.turn()
        for number, hand in list(self.hands.items()):
            while hand.outbox and number in self.hands:
                self.deliver(number)

    # --- what comes of it

    def hear(self, deltas: list[Delta]) -> None:
        for delta in deltas:
            told = self.told.setdefault(delta.request_id, [])
            assert not told or told[-1].finish_reason is None, f"{delta.request_id} was answered twice"
            told.append(delta)
            if delta.finish_reason is not None:
                self.counts[delta.code or delta.finish_reason] += 1

    def tokens(self, name: str) -> list[int]:
        return [token for delta in self.told[name] for token in delta.token_ids]

    def judge(self) -> None:
        """All ended once, in words where not as asked; what was told is the control's; nothing is left behind."""
        for name, deltas in self.told.items():
            last = deltas[-1]
            assert last.finish_reason is not None, f"{name} has no end"
            assert last.finish_reason != "error" or last.error, f"{name} was refused without a word"
            told = self.tokens(name)
            assert told == [letter(place) for place in range(len(told))], f"{name}: a token was lost or repeated"
        self.front.check()
        assert not any(each.waiting or each.running or each.queued for each in self.front._seats.room.standings())
        live = self.front.live()
        assert (live.running, live.waiting) == (0, 0)
        for station in self.front._workers.stations:
            assert not station.seqs and not station.reserved, "a lease is held for nobody"
            assert station.left.free.seats == self.own.seats, "a seat was lost"
        recovery = self.front._workers.recovery
        assert not len(recovery.suspects) and not recovery._paid and not recovery._spent
        for hand in self.hands.values():
            hand.worker.check()
            assert not hand.loop._held and hand.loop._pool.held == 0, "pages were lost"

    def _expect(self) -> None:
        self.front.expect([self.clock.now()] * self._restarts)
