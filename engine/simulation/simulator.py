"""Runs a trace through the front, a waiting room and the step loop in virtual time. Deterministic for a seed.

What comes while a step runs reaches the front at its own instant, and the worker between that step's run and its
commit, as over the real door. The rest happens in no time: only steps take any.
"""

from dataclasses import dataclass, field
from functools import partial
from math import inf
from random import Random

from ..admission.admission import Admission
from ..admission.bounded_queue import QueueBounds
from ..admission.limit_store import MemoryLimits
from ..fairness.fair_room import FairRoom
from ..front import Front
from ..metrics import Metrics
from ..reception import Foresee
from ..stepping.batch_gate import BatchGate
from ..stepping.cost import StepModel
from ..stepping.loop import StepLoop
from ..stepping.settings import StepSettings
from ..worker import Worker
from .agenda import Kind
from .batching import Batching
from .clients import Clients
from .logbook import Logbook
from .oracle import AtMost, foretold
from .runner import SimulatedRunner, ready
from .speech import DotSpeech
from .step_cost import FixedModel, StepCost
from .suite import UNBOUNDED
from .trace import Arrival, Trace
from .virtual_clock import VirtualClock

# room for 10,000 tokens, as in VTC's experiments
SETTINGS = StepSettings(step_tokens=512, seats=32, pages=625, page_size=16, chunk=512, context=8192, prefix_cache=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What is simulated beside the trace and the waiting room.

    cost: what a step takes. believed: what the scheduler takes it for, as a multiple of the truth; None: it learns, as
    a real worker does. bounds: the most that may wait. refuses: what can't be expected to meet its deadline is refused
    on arrival; otherwise it waits until it expires. gate: batches leave by it (with settings.static). slow_door: Orders
    made during a step reach the worker only after its Report. seed: for the noise of steps; traces have their own.
    shared: tenants keep to their shares while they run. knows: deadlines are judged by the true lengths of answers.
    """

    settings: StepSettings = SETTINGS
    cost: StepCost = field(default_factory=StepCost)
    believed: float | None = 1.0
    bounds: QueueBounds = UNBOUNDED
    refuses: bool = False
    gate: BatchGate | None = None
    slow_door: bool = False
    shared: bool = False
    knows: bool = False
    seed: int = 0


def simulate(trace: Trace, room: FairRoom, setup: Setup | None = None) -> Logbook:
    """Run a trace to its end; what happened."""
    return Simulator(trace, room, setup or Setup()).run()


class Simulator:
    """One run. The front and the worker are the real ones."""

    def __init__(self, trace: Trace, room: FairRoom, setup: Setup) -> None:
        self.clock = VirtualClock()
        self.log = Logbook(foretold(trace) if setup.knows else trace)
        self.metrics = Metrics(model_name="simulated", warns=False)
        self._slow_door = setup.slow_door
        self._until = inf if trace.until is None else trace.until
        self._runner = SimulatedRunner(self.clock, setup.cost, setup.seed)
        model = StepModel() if setup.believed is None else FixedModel(setup.cost.coefficients, setup.believed)
        self.worker = Worker(StepLoop(setup.settings, model), self._runner, self.clock)
        draw_seed = partial(Random(setup.seed).getrandbits, 64)
        self.front = Front(
            ready(setup.settings),
            DotSpeech(),
            room,
            self.metrics,
            draw_seed,
            tenants=trace.book,
            shared=setup.shared,
        )
        if setup.knows:
            self.front._outlook.lengths = AtMost()
        self._batching = Batching(setup.gate, self.log.waiting) if setup.gate else None
        self.admission = Admission(setup.bounds, MemoryLimits())
        self._clients = Clients(
            self.front,
            self.log,
            self._lengthen,
            self.admission,
            self._foresee() if setup.refuses else None,
            self._batching,
        )
        self._unanswered = False  # Orders that no Report has followed yet

    def run(self) -> Logbook:
        """Until all requests have ended, or to the trace's own end."""
        while self.clock.now() < self._until:
            self._happen_until(self.clock.now())
            self._happen(self.clock.now())
            if self.worker.has_work or self._unanswered:
                self._step()
                continue
            wake = min(self._clients.next_at, self._batching.wake if self._batching else inf)
            if wake == inf:
                assert not self.front.has_requests, "requests wait, and nothing will ever happen"
                break
            self.clock.reach(wake)
        self.log.ended_at = min(self.clock.now(), self._until)
        return self.log

    def check(self) -> None:
        """Every owner's check()."""
        self.front.check()
        self.worker.check()
        self._clients.check()

    def _foresee(self) -> Foresee:
        """What deadlines are judged by."""
        return self._batching.foresee if self._batching else self.front.prospect

    def _lengthen(self, seq: int, arrival: Arrival) -> None:
        self._runner.outputs[seq] = arrival.outputs

    def _happen_until(self, end: float) -> None:
        """What is due before `end`, each thing at its own instant."""
        while self._clients.next_at < end:
            self._happen(self._clients.next_at)

    def _happen(self, now: float) -> None:
        """What is due at one instant. Who can be sent then is sent before those who can't wait longer expire."""
        self._clients.act(now, Kind.CANCEL)
        self._send(now)
        if self._clients.next_at <= now:
            self._clients.act(now, Kind.EXPIRY)
            self._send(now)

    def _step(self) -> None:
        """Plan, run, commit, tell. What comes at the very instant at which a step ends comes after its Report."""
        self._unanswered = False
        report = self.worker.step(self._let_in)
        now = self.clock.now()
        if self._slow_door:
            self._happen_until(now)
        self.log.reported(report, now)
        self._clients.hear(self.front.receive(report, now), now)

    def _let_in(self) -> None:
        if not self._slow_door:
            self._happen_until(self.clock.now())

    def _send(self, now: float) -> None:
        """Hand the worker what the front orders now."""
        orders = self.front.orders(now, self._released(now))
        if orders is None:
            return
        self.worker.apply(orders)
        self._unanswered = True
        for admit in orders.admit:
            self.log.sent(admit.seq, now)

    def _released(self, now: float) -> int | None:
        """How many a batch gate lets go; None without one."""
        if self._batching is None:
            return None
        idle = not self.worker.has_work and not self._unanswered
        return self._batching.release(idle=idle, now=now)
