"""What deciding takes by how many requests wait: the door, a forecast, the queue, and a step but for the model's part.

Nothing is computed: the loop is handed tokens. In every step one sequence ends, the next one is let in, and another
comes, so that the queue stays as long as it is. Seconds are the processor's.
"""

import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from fairstep.admission.admission import Admission
from fairstep.admission.bounded_queue import QueueBounds
from fairstep.admission.deadlines import Deadlines
from fairstep.admission.limit_store import MemoryLimits
from fairstep.admission.limits import Need
from fairstep.door import FrameReader, Ready, Report, frame
from fairstep.fairness.policies import make_room
from fairstep.front import Front
from fairstep.metrics import Metrics
from fairstep.reception import Reception, Visit
from fairstep.request import Request, SamplingParams
from fairstep.stepping.cost import StepModel
from fairstep.stepping.loop import StepLoop
from fairstep.stepping.plan import StepOutput, StepPlan
from fairstep.stepping.settings import StepSettings
from fairstep.tenants import Tenants
from step_course import Words

STEP, DOOR, FORECAST, PLACE = PARTS = (
    "a step's decisions",
    "an arrival at the door",
    "its forecast",
    "its place in the queue",
)
SEATS = 32  # as many tokens has each answer: so one ends in each step
TENANTS = 8
PROMPT = tuple(range(3, 35))
PAGE = 16
CONTEXT = 1024
STEP_SECONDS = 0.025
ENDPOINT, MODEL = "/v1/chat/completions", "words"
FAR = Deadlines(whole=1e9)


class Queue:
    """A front with all seats taken and so many waiting."""

    def __init__(self, waiting: int) -> None:
        pages = SEATS * CONTEXT // PAGE
        info = Ready(MODEL, "", 1000, CONTEXT, (2,), {}, pages, PAGE, SEATS, "", "", 0, {})
        settings = StepSettings(step_tokens=4096, seats=SEATS, pages=pages, page_size=PAGE, chunk=2048, context=CONTEXT)
        self._tenants = Tenants()
        self._front = Front(info, Words(), make_room("drr"), Metrics(warns=False), lambda: 0, shared=True)
        self._loop = StepLoop(settings, StepModel())
        self._door = FrameReader()
        self._now = 0.0
        admission = Admission(QueueBounds(entries=2**62), MemoryLimits())
        self._reception = Reception(admission, lambda: MODEL, lambda: self._now, lambda: self._now)
        self._visits: dict[str, Visit] = {}
        self._count = 0
        self.seconds: dict[str, list[float]] = {part: [] for part in PARTS}
        for _ in range(SEATS - 1):  # one a step, so that they end one by one
            self._come()
            self._step()
        for _ in range(1 + waiting):
            self._come()
        self._length = waiting

    def step(self) -> None:
        """A step, and somebody comes in the place of who has ended."""
        for _ in range(self._step()):
            self._come()

    def warm_up(self) -> None:
        """Steps that don't count."""
        for _ in range(SEATS):
            self.step()
        for seconds in self.seconds.values():
            seconds.clear()

    def check(self) -> None:
        """Assert that the queue is as long as it should be, and everything else that the owners assert."""
        live = self._front.live()
        assert live.running + live.waiting == self._length + SEATS
        for owner in (self._front, self._loop, self._reception):
            owner.check()

    def _come(self) -> None:
        self._count += 1
        name, tenant = str(self._count), f"t{self._count % TENANTS}"
        terms = self._tenants.of(tenant)
        with self._timed(DOOR):
            visit = self._visits[name] = self._reception.arrive(terms, ENDPOINT, 4 * len(PROMPT))
            visit.count(prompt_tokens=len(PROMPT), max_tokens=SEATS, sequences=1)
        with self._timed(FORECAST):
            self._front.prospect(Need(prompt_tokens=len(PROMPT), max_tokens=SEATS), terms, FAR, self._now)
        params = SamplingParams(max_tokens=SEATS, ignore_eos=True)
        request = Request(id=name, prompt_ids=PROMPT, params=params, arrival=self._now, tenant=tenant)
        with self._timed(PLACE):
            self._front.submit(request, now=self._now)

    def _step(self) -> int:
        """How many have ended."""
        with self._timed(STEP):
            orders = self._front.orders(self._now)
            if orders is not None:
                self._loop.apply(orders)
            plan = self._loop.plan()
            [report] = self._door.feed(frame(self._loop.commit(plan, _drawn(plan), run_seconds=STEP_SECONDS)))
            assert isinstance(report, Report)
            self._now += STEP_SECONDS
            deltas = self._front.receive(report, self._now)
        for delta in deltas:
            self._visits[delta.request_id].begin(0)
        ended = [delta.request_id for delta in deltas if delta.finish_reason is not None]
        for name in ended:
            self._visits.pop(name).leave(SEATS, answered=True)
        return len(ended)

    @contextmanager
    def _timed(self, part: str) -> Iterator[None]:
        began = time.thread_time()
        yield
        self.seconds[part].append(time.thread_time() - began)


def medians(lengths: Sequence[int], steps: int, rounds: int) -> dict[int, dict[str, float]]:
    """Seconds of each part, by how many wait. All lengths by turns, so that a slow spell meets all."""
    queues = {waiting: Queue(waiting) for waiting in lengths}
    for queue in queues.values():
        queue.warm_up()
    for _ in range(rounds):
        for queue in queues.values():
            for _ in range(steps):
                queue.step()
    for queue in queues.values():
        queue.check()
    return {
        waiting: {part: statistics.median(seconds) for part, seconds in queue.seconds.items()}
        for waiting, queue in queues.items()
    }


def _drawn(plan: StepPlan) -> StepOutput:
    return StepOutput((7,) * sum(piece.samples for piece in plan.slices))
