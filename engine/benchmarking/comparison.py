"""One trace by every rule, at loads that are multiples of what naive static batches can serve, which comes first."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from ..simulation.trace import Trace
from .course import Course
from .figures import Figures, Limits, figures_of
from .machines import Machine
from .rules import CONTINUOUS, NAIVE, NAIVE_DELAY_MS, RULES, STATIC, WITNESS
from .skipping_clock import SkippingClock
from .witness import Generates, play_batches

OVERLOAD = 1.5  # times what continuous batches serve while others wait
NEAR = 0.8  # of saturation: where first tokens are compared
LEAST_HELD, LEAST_SOONER = 0.9, 5.0
HELD_MIXES, SOONER_MIXES = ("chat", "reasoning"), ("chat",)


@dataclass(frozen=True, slots=True)
class Run:
    """One rule at one load. load: as a multiple of naive static's saturation; None: all requests came at once.

    overload: more came than any rule can serve.
    """

    mix: str
    load: float | None
    overload: bool
    rule: str
    course: Course
    figures: Figures


@dataclass(frozen=True, slots=True)
class Comparison:
    """tell: told what is about to run."""

    machine: Machine
    limits: Limits
    witness: Generates | None
    tell: Callable[[str], None]

    def runs(self, trace: Trace, loads: Sequence[float]) -> Iterator[Run]:
        """All at once, which says what can be served; then the loads and an overload, of the same requests and gaps."""
        burst = Trace.of(trace.name, (replace(each, at=0.0) for each in trace.arrivals))
        naive = self._run(burst, None, NAIVE)
        yield naive
        if self.witness:
            yield self._run(burst, None, WITNESS)
        ours = self._run(burst, None, CONTINUOUS)
        yield ours
        saturation = naive.figures.requests_per_second
        over = round(OVERLOAD * max(ours.course.served_rate / saturation, 1.0), 2)
        top = max(over, *loads)
        for load in sorted({*loads, top}):
            coming = at_rate(trace, load * saturation)
            for rule in RULES:
                yield self._run(coming, load, rule, overload=load == top)

    def _run(self, trace: Trace, load: float | None, rule: str, *, overload: bool = False) -> Run:
        self.tell(f"{trace.name}, {'all at once' if load is None else f'load {load:g}'}, {rule}")
        if rule == WITNESS:
            assert self.witness
            seats, delay = self.machine.info.seats, NAIVE_DELAY_MS / 1000
            course = play_batches(trace, self.witness, SkippingClock(), seats, delay)
        else:
            course = self.machine.play(trace, RULES[rule])
        figures = figures_of(course, self.limits, overload=overload)
        return Run(trace.name, load, overload, rule, course, figures)


def at_rate(trace: Trace, rate: float) -> Trace:
    """The same gaps, shorter or longer, so that so many requests come a second."""
    return trace.scaled(time=rate * trace.arrivals[-1].at / len(trace.arrivals))


def gains(runs: Sequence[Run]) -> dict[str, dict[str, float]]:
    """How many times naive static's tokens a second the others give under overload, by mix."""
    rates = {(run.mix, run.rule): run.figures.tokens_per_second for run in runs if run.overload}
    mixes = dict.fromkeys(mix for mix, _ in rates)
    return {mix: {rule: rates[mix, rule] / rates[mix, NAIVE] for rule in (STATIC, CONTINUOUS)} for mix in mixes}


def sooner(runs: Sequence[Run]) -> dict[str, float]:
    """How many times sooner continuous batches' p99 first token comes than naive static's, by mix, at NEAR."""
    near = {(run.mix, run.rule): run.figures.ttft.p99 or 0.0 for run in runs if run.load == NEAR}
    return {mix: near[mix, NAIVE] / near[mix, CONTINUOUS] for mix in dict.fromkeys(mix for mix, _ in near)}


def missed(runs: Sequence[Run]) -> list[str]:
    """The goals that are missed, in words; a goal whose mix or load was not run is not."""
    said = []
    for run in runs:
        held = run.figures.ideal or 0.0
        if run.overload and run.rule == CONTINUOUS and run.mix in HELD_MIXES and held < LEAST_HELD:
            said.append(f"{run.mix}: {held:.1%} of the seats held at saturation, the goal is {LEAST_HELD:.0%}")
    for mix, times in sooner(runs).items():
        if mix in SOONER_MIXES and times < LEAST_SOONER:
            said.append(f"{mix}: p99 TTFT {times:.1f} times lower at load {NEAR:g}, the goal is {LEAST_SOONER:g}")
    return said
