"""Drives a StepLoop and a runner as a worker does, with staggered arrivals, and admits again what was preempted."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from fairstep.door import Admit, Orders, Report, Result, Sampling
from fairstep.model.runner import TorchRunner
from fairstep.stepping.cost import StepModel
from fairstep.stepping.loop import StepLoop
from fairstep.stepping.plan import StepPlan
from fairstep.stepping.settings import StepSettings

STEP_SECONDS = 0.01  # each step is said to take this long


@dataclass
class Course:
    """What became of the prompts: outputs by their place, and every plan and result on the way."""

    outputs: list[list[int]]
    plans: list[StepPlan] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)

    @property
    def preemptions(self) -> int:
        return sum(result.outcome == "preempted" for result in self.results)

    @property
    def cached(self) -> int:
        return sum(result.cached for result in self.results)


class Drive:
    """One loop over one runner; `answer` may be called again, with the prefix cache of the calls before."""

    def __init__(self, runner: TorchRunner, settings: StepSettings, **changes: object) -> None:
        self.settings = replace(settings, **changes)  # type: ignore[arg-type]
        self.runner = runner
        self.loop = StepLoop(self.settings, StepModel())
        self.orders = self.seqs = 0

    def answer(self, prompts: Sequence[Sequence[int]], count: int, *, stagger: int = 1) -> Course:
        """Greedy `count` tokens for each prompt; one more arrives every `stagger` steps (0: all at once)."""
        course = Course([[] for _ in prompts])
        first, admits = self.seqs, [self._admit(list(prompt), count) for prompt in prompts]
        waiting = list(admits)
        while waiting or self.loop.has_work:
            if not stagger or not self.loop.has_work or len(course.plans) % stagger == 0:
                arrived = waiting if not stagger else waiting[:1]
                waiting = waiting[len(arrived) :]
                self._order(arrived)
            report = self._step(course)
            course.results += report.results
            for result in report.results:
                course.outputs[result.seq - first] += result.tokens
                if result.outcome == "preempted":
                    before = admits[result.seq - first]
                    tokens = before.tokens[: before.prompt_len] + tuple(course.outputs[result.seq - first])
                    again = replace_admit(before, result.attempt + 1, tokens)
                    admits[result.seq - first] = again
                    self._order([again])
        self.runner.check()
        return course

    def _step(self, course: Course) -> Report:
        plan = self.loop.plan()
        if not plan.slices:
            return self.loop.report()
        course.plans.append(plan)
        report = self.loop.commit(plan, self.runner.launch(plan).result(), run_seconds=STEP_SECONDS)
        self.loop.check()
        return report

    def _order(self, admits: Sequence[Admit]) -> None:
        self.orders += 1
        self.loop.apply(Orders(self.orders, admit=tuple(admits)))

    def _admit(self, prompt: list[int], count: int) -> Admit:
        sampling = Sampling(temperature=0.0, max_tokens=count)
        admit = Admit(self.seqs, 1, tuple(prompt), len(prompt), sampling, order=self.seqs)
        self.seqs += 1
        return admit


def replace_admit(admit: Admit, attempt: int, tokens: tuple[int, ...]) -> Admit:
    """The same sequence's next attempt."""
    return Admit(admit.seq, attempt, tokens, admit.prompt_len, admit.sampling, order=admit.order)
