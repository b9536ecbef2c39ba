"""The overlapped loop through Worker, Engine and AsyncEngine: steps launched before the last one is known give the
answers of the plain loop, on a device that answers a step late."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from fairstep import AsyncEngine, Completion, Engine, SamplingParams
from fairstep.clock import ManualClock
from fairstep.door import Admit, Orders, Report, Result, Sampling
from fairstep.stepping.cost import StepModel
from fairstep.stepping.loop import StepLoop
from fairstep.worker import Worker
from fakes_late import LateRunner, answer_alone
from fakes_text import EOS, FakeTokenizer
from fakes_worker import fake_build, settings

PROMPTS = [[100 + length] * length for length in (1, 3, 4, 5, 8, 9, 13, 2, 21, 7, 6)]
Attempts = tuple[tuple[int, int], ...]


def admit(seq: int, prompt: list[int], count: int = 8, **more: Any) -> Admit:
    return Admit(seq, 1, tuple(prompt), len(prompt), Sampling(max_tokens=count, stop_ids=(EOS,), **more), order=seq)


class Course:
    """A Worker over a LateRunner; what it reported."""

    def __init__(self, runner: LateRunner | None = None, ahead: int = 1, **changes: int) -> None:
        self.runner = runner or LateRunner()
        self.clock = ManualClock()
        self.worker = Worker(StepLoop(settings(ahead=ahead, **changes), StepModel()), self.runner, self.clock)
        self.results: list[Result] = []
        self.reports: list[Report] = []
        self.orders = 0

    def apply(self, *admits: Admit, cancel: Attempts = (), back: Attempts = ()) -> None:
        self.orders += 1
        self.worker.apply(Orders(self.orders, cancel, back, admits))

    def step(self, let_in: Callable[[], None] = lambda: None) -> Report:
        report = self.worker.step(let_in)
        self.worker.check()
        self.reports.append(report)
        self.results += report.results
        return report

    def finish(self) -> None:
        while self.worker.has_work:
            self.step()

    def told(self, seq: int) -> list[int]:
        return [token for result in self.results if result.seq == seq for token in result.tokens]


def test_the_next_step_is_launched_before_the_last_one_is_waited_for() -> None:
    course = Course()
    course.apply(admit(1, PROMPTS[4], 20))
    course.finish()
    assert course.told(1) == answer_alone(PROMPTS[4], 20)
    runner = course.runner
    assert min(runner.late, runner.awaited) >= len(course.told(1)) - 1


def test_an_answer_of_known_length_computes_nothing_beyond_it() -> None:
    course = Course()
    course.apply(admit(1, [112], 4, min_tokens=4))
    course.finish()
    assert len(course.runner.plans) == 4 and not any(report.step.dropped for report in course.reports if report.step)


def test_what_is_computed_beyond_a_stop_is_dropped_counted_and_keeps_its_seat_so_long() -> None:
    count = 200
    prompt = next(p for p in PROMPTS if 1 < len(answer_alone(p, 60)) < 60)
    course = Course()
    course.apply(admit(1, prompt, count))
    while not (course.results and course.results[-1].outcome):
        course.step()
    assert course.results[-1].outcome == "stop" and course.reports[-1].gauges.running == 1, "a step still computes it"
    report = course.step()
    assert report.step is not None and report.step.dropped == 1 and report.results == ()
    assert (report.gauges.running, report.gauges.pages_used, course.worker.has_work) == (0, 0, False)
    assert course.told(1) == answer_alone(prompt, count)


@pytest.mark.parametrize("changes", [{}, {"chunk": 3}, {"seats": 2}, {"pages": 12, "seats": 3}, {"step_tokens": 5}])
def test_its_tokens_equal_the_plain_loops(changes: dict[str, int]) -> None:
    told = []
    for ahead in (0, 1):
        course = Course(ahead=ahead, **{"context": 40, **changes})
        course.apply(*[admit(seq, prompt, 5 + seq) for seq, prompt in enumerate(PROMPTS, 1)])
        attempts = dict.fromkeys(range(1, len(PROMPTS) + 1), 1)
        while course.worker.has_work:
            for result in course.step().results:
                if result.outcome == "preempted":
                    seq, prompt = result.seq, PROMPTS[result.seq - 1]
                    attempts[seq] += 1
                    known = (*prompt, *course.told(seq))
                    sampling = Sampling(max_tokens=5 + seq, stop_ids=(EOS,))
                    course.apply(Admit(seq, attempts[seq], known, len(prompt), sampling, order=seq))
        told.append([course.told(seq) for seq in range(1, len(PROMPTS) + 1)])
        if "pages" in changes:
            assert max(attempts.values()) > 1, "nobody was preempted"
    assert told[0] == told[1] == [answer_alone(prompt, 5 + seq) for seq, prompt in enumerate(PROMPTS, 1)]


def test_a_cancel_while_two_steps_compute_it_drops_both_tokens() -> None:
    course = Course()
    course.apply(admit(1, PROMPTS[3], 50), admit(2, PROMPTS[4], 50))
    report = course.step(lambda: course.apply(cancel=((1, 1),)))
    assert [result.seq for result in report.results] == [2] and report.gauges.running == 2
    report = course.step()
    assert report.step is not None and report.step.dropped == 1 and report.gauges.running == 1
    assert all(piece.seq == 2 for plan in course.runner.plans[2:] for piece in plan.slices)


def test_what_is_given_back_is_told_with_the_first_commit_and_can_come_again_at_once() -> None:
    course = Course(seats=1)
    course.apply(admit(1, PROMPTS[3], 6))
    course.step()
    (result,) = course.step(lambda: course.apply(back=((1, 1),))).results
    assert (result.outcome, result.tokens) == ("yielded", ())
    known = (*PROMPTS[3], *course.told(1))
    course.apply(Admit(1, 2, known, len(PROMPTS[3]), Sampling(max_tokens=6, stop_ids=(EOS,)), order=1))
    course.finish()
    assert course.told(1) == answer_alone(PROMPTS[3], 6)


@pytest.mark.parametrize("kind", ["fails", "refuses"])
def test_a_step_that_fails_ends_its_own_requests_after_the_step_before_it_was_told(kind: str) -> None:
    course = Course(LateRunner(**{kind: (3,)}))
    course.apply(admit(1, PROMPTS[5], 50))
    course.finish()
    assert [result.outcome for result in course.results] == [None, None, "error"]
    assert course.told(1) == answer_alone(PROMPTS[5], 2)
    course.apply(admit(2, PROMPTS[6], 3))
    course.finish()
    assert course.told(2) == answer_alone(PROMPTS[6], 3)


def test_a_steps_time_begins_when_the_step_before_it_was_over() -> None:
    course = Course()
    course.apply(admit(1, PROMPTS[0], 5, min_tokens=5))
    for _ in range(5):
        course.step(lambda: course.clock.jump(1.0))
    seconds = [report.step.run_seconds for report in course.reports if report.step]
    assert seconds == [0.0, 1.0, 1.0, 1.0, 1.0], "what passes between two results is the later one's"


def test_an_interrupt_leaves_what_is_under_way_to_the_next_call() -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    course = Course()
    course.apply(admit(1, PROMPTS[2], 9))
    course.step()
    with pytest.raises(KeyboardInterrupt):
        course.step(interrupt)
    course.finish()
    assert course.told(1) == answer_alone(PROMPTS[2], 9)


def text_of(prompt: str, count: int) -> str:
    ids = answer_alone(FakeTokenizer().encode(prompt), count)
    return bytes(token for token in ids if token != EOS).decode()


def ahead_build(runner: LateRunner) -> Any:
    return fake_build(runner, settings(ahead=1))  # type: ignore[arg-type]


def test_the_engine_gives_the_same_texts() -> None:
    runner = LateRunner()
    engine = Engine("fake", tokenizer=FakeTokenizer(), build_worker=ahead_build(runner))
    asked = [letter * length for letter in "abcdef" for length in (1, 5, 9)]
    answers: list[Completion] = engine.generate(asked, SamplingParams(max_tokens=40))
    assert [answer.text for answer in answers] == [text_of(prompt, 40) for prompt in asked]
    assert runner.late > 40
    engine.check()


def test_the_asynchronous_engine_gives_the_same_texts_beside_clients_that_go_away() -> None:
    runner = LateRunner()
    asked = [letter * length for letter in "abcdef" for length in (2, 6, 11)]

    async def body() -> None:
        how: dict[str, Any] = {"tokenizer": FakeTokenizer(), "build_worker": ahead_build(runner)}
        async with AsyncEngine("fake", in_process=True, **how) as engine:

            async def leave_after(prompt: str, count: int) -> None:
                stream = engine.submit(FakeTokenizer().encode(prompt), SamplingParams(max_tokens=150, ignore_eos=True))
                async for _ in stream:
                    count -= 1
                    if not count:
                        stream.cancel()
                        break

            leaving = [asyncio.create_task(leave_after(f"gone {n}", 1 + n)) for n in range(6)]
            answers = await asyncio.gather(*(engine.generate(p, SamplingParams(max_tokens=30)) for p in asked))
            await asyncio.gather(*leaving)
            assert [answer.text for answer in answers] == [text_of(prompt, 30) for prompt in asked]

    asyncio.run(asyncio.wait_for(body(), 60))
    assert runner.late > 40
