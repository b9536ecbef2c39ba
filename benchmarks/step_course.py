"""Front and step loop with sequences that decode, for benchmarks/scheduler.py: what each part of a step takes.

Nothing is computed: the loop is handed tokens. Between the two every Report crosses the door as bytes.
"""

import time
from collections.abc import Sequence

from fairstep.door import FrameReader, Ready, Report, frame
from fairstep.fairness.policies import make_room
from fairstep.front import Front
from fairstep.metrics import Metrics
from fairstep.request import Request, SamplingParams
from fairstep.stepping.cost import StepModel
from fairstep.stepping.loop import StepLoop
from fairstep.stepping.plan import StepOutput
from fairstep.stepping.settings import StepSettings
from fairstep.text.detokenizer import Detokenizer
from fairstep.text.pieces import Pieces

PARTS = ("orders", "plan", "commit", "door", "receive")
PAGE = 16
CONTEXT = 1024
LONGEST_PROMPT = 64
TENANTS = 8
STEP_SECONDS = 0.01


class Words:
    """A tokenizer whose every token is a word."""

    def __init__(self) -> None:
        self._pieces = Pieces(lambda token: b" word", frozenset())

    def special_id(self, text: str) -> int | None:
        return None

    def bad_word_ids(self, word: str) -> Sequence[tuple[int, ...]]:
        return ()

    def detokenizer(self, prompt_ids: Sequence[int], *, skip_special: bool) -> Detokenizer:
        return Detokenizer(self._pieces, prompt_ids, skip_special=skip_special)


class Course:
    """So many sequences of several tenants, which decode as long as they are asked to."""

    def __init__(self, running: int) -> None:
        pages = running * CONTEXT // PAGE
        info = Ready("words", "", 1000, CONTEXT, (2,), {}, pages, PAGE, running, "", "", 0, {})
        settings = StepSettings(
            step_tokens=4096, seats=running, pages=pages, page_size=PAGE, chunk=2048, context=CONTEXT
        )
        self._running = running
        self._front = Front(info, Words(), make_room("drr"), Metrics(), lambda: 0, shared=True)
        self._loop = StepLoop(settings, StepModel())
        self._door = FrameReader()
        self._now = 0.0
        self._front.submit(*map(_request, range(running)), now=0.0)

    def step(self) -> dict[str, float] | None:
        """Seconds of each part of a step; None while prompts are computed."""
        watch = _Watch()
        if (orders := self._front.orders(self._now)) is not None:
            self._loop.apply(orders)
        took = {"orders": watch.lap()}
        plan = self._loop.plan()
        took["plan"] = watch.lap()
        output = StepOutput((7,) * sum(piece.samples for piece in plan.slices))
        watch.lap()
        report = self._loop.commit(plan, output, run_seconds=STEP_SECONDS)
        took["commit"] = watch.lap()
        [received] = self._door.feed(frame(report))
        assert isinstance(received, Report)
        took["door"] = watch.lap()
        self._now += STEP_SECONDS
        self._front.receive(received, self._now)
        took["receive"] = watch.lap()
        return took if sum(piece.decode for piece in plan.slices) == self._running else None


class _Watch:
    """Seconds of the processor from one look to the next."""

    def __init__(self) -> None:
        self._at = time.thread_time()

    def lap(self) -> float:
        before, self._at = self._at, time.thread_time()
        return self._at - before


def steps(running: int, count: int) -> dict[str, list[float]]:
    """Seconds of each part, of so many steps."""
    course = Course(running)
    rows: dict[str, list[float]] = {part: [] for part in PARTS}
    while len(rows["plan"]) < count:
        for part, seconds in (course.step() or {}).items():
            rows[part].append(seconds)
    return rows


def _request(number: int) -> Request:
    """Prompts of several lengths, so that pages fill in different steps."""
    return Request(
        id=str(number),
        prompt_ids=tuple(3 + (number * 31 + place) % 900 for place in range(LONGEST_PROMPT - number % PAGE)),
        params=SamplingParams(max_tokens=CONTEXT - LONGEST_PROMPT, ignore_eos=True),
        arrival=0.0,
        tenant=f"t{number % TENANTS}",
    )
