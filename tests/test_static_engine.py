"""Static batching through AsyncEngine itself: the timelines of batches of 4, 10 s of delay, 100 s a batch, one worker.

An answer has one token, so that a batch is one step.
"""

import asyncio
import re
from typing import Any

import pytest

from fairstep import AsyncEngine, Engine, EngineConfig, SamplingParams
from fairstep.admission.admission import Admission
from fairstep.admission.bounded_queue import QueueBounds
from fairstep.admission.deadlines import Deadlines
from fairstep.admission.limit_store import MemoryLimits
from fairstep.errors import DeadlineUnattainable
from fairstep.reception import Reception
from fairstep.request import Completion
from fairstep.tenants import TenantTerms
from fakes_text import FakeTokenizer
from fakes_worker import fake_build, settings
from virtual_time import TimedLink, virtual_engine

BATCH = 100.0
STATIC = EngineConfig(batching="static", batch_size=4, batch_delay_ms=10_000, batch_compute_ms=1000 * BATCH)
ONE = SamplingParams(max_tokens=1)
Coming = tuple[str, float] | tuple[str, float, float]  # name, arrival, and deadline if it has one
Fate = tuple[float | None, float, str]  # dispatched, ended, how


class Play:
    """Requests come at their instants; what becomes of them, by name."""

    def __init__(self, engine: AsyncEngine, link: TimedLink, *, refuses: bool) -> None:
        self.engine, self.link = engine, link
        self.seqs: dict[str, int | None] = {}
        self.ended: dict[str, tuple[float, str]] = {}
        admission = Admission(QueueBounds(), MemoryLimits())
        self.reception = Reception(admission, lambda: "fake", engine.now, engine.now, self.foresee if refuses else None)

    def foresee(self, terms: Any, need: Any, deadlines: Deadlines, now: float) -> Any:
        return self.engine.prospect(need, terms, deadlines, now)

    async def one(self, name: str, at: float, deadline: float | None = None) -> None:
        await asyncio.sleep(at - self.engine.now())
        visit = self.reception.arrive(TenantTerms(name), "/v1/completions", 10)
        visit.deadlines = Deadlines(whole=deadline)
        try:
            visit.count(prompt_tokens=3, max_tokens=1, sequences=1)
            completion = await self.submit(name, deadline)
            how = "expired" if completion.error else completion.finish_reason
        except DeadlineUnattainable:
            how = "refused"
        self.ended[name] = self.engine.now(), how
        visit.leave(0, answered=False)

    async def submit(self, name: str, deadline: float | None) -> Completion:
        stream = self.engine.submit((1, 2, 3), ONE, tenant=name, deadline=deadline)
        self.seqs[name] = self.engine.seq_of(stream.request_id)
        self.engine.check()
        return await stream.completion()

    def fates(self) -> dict[str, Fate]:
        sent = {admit.seq: at for at, admit in self.link.sent}
        return {name: (sent.get(self.seqs.get(name) or 0), *end) for name, end in self.ended.items()}


def run(*coming: Coming, batch: float = BATCH, slow: bool = False, refuses: bool = False, **more: Any) -> Play:
    link = TimedLink(settings(static=True), batch, slow=slow)
    with virtual_engine(link, STATIC if not more else EngineConfig(**more)) as (engine, runner):

        async def all_of_them() -> Play:
            async with engine:
                play = Play(engine, link, refuses=refuses)
                async with asyncio.TaskGroup() as group:
                    for each in coming:
                        group.create_task(play.one(*each))
                engine.check()
                play.reception.check()
                return play

        return runner.run(all_of_them())


FOUR = (("a", 0.0), ("b", 0.0), ("c", 0.0), ("d", 0.0))
FIRST_BATCH = dict.fromkeys("abcd", (0.0, 100.0, "length"))


def test_sparse_a_at_0_and_b_at_7_leave_together_at_10() -> None:
    assert run(("A", 0), ("B", 7)).fates() == {"A": (10, 110, "length"), "B": (10, 110, "length")}


def test_four_at_once_leave_at_once() -> None:
    assert run(*FOUR).fates() == FIRST_BATCH


def test_busy_e_at_1_starts_at_100_and_not_at_110() -> None:
    assert run(*FOUR, ("E", 1)).fates() == {**FIRST_BATCH, "E": (100, 200, "length")}


def test_an_overdue_e_takes_a_fresh_f_along() -> None:
    fates = run(*FOUR, ("E", 1), ("F", 95)).fates()
    assert fates == {**FIRST_BATCH, "E": (100, 200, "length"), "F": (100, 200, "length")}


def test_a_fresh_f_alone_waits_its_own_delay() -> None:
    assert run(*FOUR, ("F", 95)).fates() == {**FIRST_BATCH, "F": (105, 205, "length")}


def test_waiting_by_choice_and_for_a_busy_worker_are_told_apart() -> None:
    metrics = run(*FOUR, ("F", 95), ("G", 150)).engine.render_metrics().decode()
    told = re.findall(r'tenant_queue_time_seconds_sum{.*part="(\w+)",tenant="([FG])"} (\S+)', metrics)
    waited = {(name, part): float(seconds) for part, name, seconds in told}
    assert (waited["F", "choice"], waited["F", "worker"]) == (5, 5), "busy until 100, then until its own delay"
    assert (waited["G", "choice"], waited["G", "worker"]) == (0, 55), "overdue when the worker comes free at 205"


def test_deadline_e_is_refused_on_arrival_when_it_cannot_be_met() -> None:
    assert run(*FOUR, ("E", 1, 150), refuses=True).fates() == {**FIRST_BATCH, "E": (None, 1, "refused")}


def test_deadline_e_that_was_let_in_expires_at_50_and_is_never_dispatched() -> None:
    play = run(*FOUR, ("E", 1, 150))
    assert play.fates() == {**FIRST_BATCH, "E": (None, pytest.approx(50, abs=1e-9), "expired")}
    assert len(play.link.runner.plans) == 1


def test_an_attainable_deadline_is_let_in_and_met() -> None:
    assert run(*FOUR, ("E", 1, 201), refuses=True).fates()["E"] == (100, 200, "length")


def test_a_deadline_sends_a_alone_at_5_and_b_after_it() -> None:
    fates = run(("A", 0, 105), ("B", 7)).fates()
    early = pytest.approx(5, abs=0.003)  # what a timer may be late
    assert fates["A"] == (early, pytest.approx(105, abs=0.003), "length")
    assert fates["B"] == (pytest.approx(105, abs=0.003), pytest.approx(205, abs=0.003), "length")


@pytest.mark.parametrize(("slow", "late"), [(True, 1), (False, 0)])
def test_a_late_result_of_an_expired_request_revives_nothing(slow: bool, late: int) -> None:
    # a batch takes 200 s where 100 were expected: A's deadline passes while it runs
    play = run(("A", 0, 150), ("B", 300), batch=200, slow=slow)
    assert play.fates() == {"A": (10, 150, "expired"), "B": (310, 510, "length")}
    metrics = play.engine.render_metrics().decode()
    assert f'stale_results_total{{model_name="fake"}} {late:.1f}' in metrics


def test_until_a_batch_was_measured_nobody_with_a_deadline_waits_by_choice() -> None:
    own = {"batching": "static", "batch_size": 4, "batch_delay_ms": 10_000}
    fates = run(("A", 0, 500), ("B", 200, 310), ("C", 400, 505), **own).fates()
    assert fates["A"] == (0, 100, "length"), "nothing is known"
    assert fates["B"] == (pytest.approx(210, abs=0.01), pytest.approx(310, abs=0.01), "length")
    assert fates["C"] == (pytest.approx(405, abs=0.01), pytest.approx(505, abs=0.01), "length")


def test_siblings_are_in_one_batch() -> None:
    link = TimedLink(settings(static=True), BATCH)
    with virtual_engine(link, STATIC) as (engine, runner):

        async def three() -> float:
            async with engine:
                streams = engine.submit_group((1, 2, 3), ONE, 3)
                for stream in streams:
                    await stream.completion()
                return engine.now()

        assert runner.run(three()) == 110
    assert [at for at, _ in link.sent] == [10, 10, 10]


def test_a_cancelled_batch_is_over_when_the_worker_has_said_so() -> None:
    link = TimedLink(settings(static=True), BATCH)
    with virtual_engine(link, STATIC) as (engine, runner):

        async def leave_and_come() -> float:
            async with engine:
                leaving = [engine.submit((1, 2, 3), ONE) for _ in range(4)]
                await asyncio.sleep(50)
                for stream in leaving:
                    stream.cancel()
                await engine.submit((1, 2, 3), ONE).completion()
                return engine.now()

        assert runner.run(leave_and_come()) == 200
    assert [at for at, _ in link.sent] == [0, 0, 0, 0, 100]


def test_a_tenant_does_not_yield_in_the_middle_of_a_batch_and_nobody_is_sent_ahead() -> None:
    link = TimedLink(settings(static=True), BATCH)
    with virtual_engine(link, STATIC) as (engine, runner):

        async def two_tenants() -> None:
            async with engine:
                long = [engine.submit((1, 2, 3), SamplingParams(max_tokens=3), tenant="a") for _ in range(6)]
                await asyncio.sleep(50)
                await engine.submit((1, 2, 3), ONE, tenant="b").completion()
                assert engine.now() == 400
                for stream in long:
                    await stream.completion()

        runner.run(two_tenants())
    assert [at for at, _ in link.sent] == [0, 0, 0, 0, 300, 300, 300]


def test_the_engine_of_one_thread_never_waits_for_more_to_come() -> None:
    build = fake_build(own=settings(static=True))
    with Engine("fake", STATIC, tokenizer=FakeTokenizer(), build_worker=build) as engine:
        assert [one.text for one in engine.generate(["x"] * 6, SamplingParams(max_tokens=2))] == ["ab"] * 6
    sizes = [len(step.slices) for step in engine.steps]
    assert sizes == [4, 4, 2, 2]


@pytest.mark.real
@pytest.mark.parametrize("batching", ["static", "padded"])
def test_static_batches_of_a_real_model_give_the_same_greedy_tokens(batching: str) -> None:
    prompts = ["The sky is", "One, two, three,", "Water boils at", "def add(a, b):", "Paris is"]
    each = [SamplingParams(max_tokens=4 + 5 * n, temperature=0.0, ignore_eos=True) for n in range(len(prompts))]
    told = {}
    for how in ("continuous", batching):
        config = EngineConfig(batching=how, max_seats=2, dtype="float32", kv_memory="32MiB", threads=1)
        with Engine("smollm2", config) as engine:
            told[how] = [one.token_ids for one in engine.generate(prompts, each)]
    assert told[batching] == told["continuous"]
