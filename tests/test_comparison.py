"""comparison.py: loads follow what naive static serves, every rule gets the same requests, goals are told by name."""

from dataclasses import replace

import pytest

from fairstep.benchmarking.comparison import Comparison, Run, at_rate, gains, missed, sooner
from fairstep.benchmarking.figures import Limits
from fairstep.benchmarking.machines import LARGE_GPU, VirtualMachine
from fairstep.benchmarking.mixes import MIXES
from fairstep.benchmarking.rules import CONTINUOUS, NAIVE, RULES
from fairstep.simulation.step_cost import StepCost
from fairstep.simulation.summary import Percentiles


def runs_of(mix: str, *loads: float) -> list[Run]:
    machine = VirtualMachine(StepCost(LARGE_GPU), seats=4, step_tokens=512, kv_tokens=40_000, context=8192)
    comparison = Comparison(machine, Limits(ttft=1.0, pace=0.1), None, lambda what: None)
    return list(comparison.runs(MIXES[mix].trace(mix, 24, 0).scaled(lengths=16), loads))


@pytest.fixture(scope="module")
def runs() -> list[Run]:
    return runs_of("chat", 0.8)


def test_the_burst_comes_first_then_loads_by_every_rule_then_the_overload(runs: list[Run]) -> None:
    assert [(run.load, run.rule) for run in runs[:2]] == [(None, NAIVE), (None, CONTINUOUS)]
    assert [run.rule for run in runs[2:]] == [*RULES, *RULES]
    assert [run.load == 0.8 for run in runs[2:]] == [True] * 3 + [False] * 3
    assert [run.overload for run in runs[2:]] == [False] * 3 + [True] * 3


def test_every_rule_gets_the_same_requests_at_the_same_instants(runs: list[Run]) -> None:
    for some in (runs[2:5], runs[5:8]):
        assert len({tuple(answer.arrival for answer in run.course.answers) for run in some}) == 1


def test_a_load_is_a_multiple_of_what_naive_static_serves(runs: list[Run]) -> None:
    served = runs[0].figures.requests_per_second
    for run in runs[2:]:
        assert run.load is not None
        assert 24 / run.course.last_arrival == pytest.approx(run.load * served)


def test_a_load_above_the_overload_takes_its_place() -> None:
    runs = runs_of("chat", 50.0)
    assert [(run.load, run.overload) for run in runs[2:]] == [(50.0, True)] * 3


def test_gaps_keep_their_shape() -> None:
    trace = MIXES["chat"].trace("chat", 10, 0)
    faster = at_rate(trace, 5.0)
    ratios = {round(slow.at / fast.at, 9) for slow, fast in zip(trace.arrivals, faster.arrivals, strict=True)}
    assert len(ratios) == 1 and faster.arrivals[-1].at == pytest.approx(2.0)


def test_continuous_batches_serve_more_and_sooner(runs: list[Run]) -> None:
    assert gains(runs)["chat"][CONTINUOUS] > 1.5
    assert sooner(runs)["chat"] > 5
    assert missed(runs) == []


def test_what_is_missed_is_told_by_mix(runs: list[Run]) -> None:
    late = Percentiles(9.0, 9.0, 9.0)
    worse = [
        replace(run, figures=replace(run.figures, ideal=0.5, ttft=late)) if run.rule == CONTINUOUS else run
        for run in runs
    ]
    told = missed(worse)
    assert len(told) == 2 and all(said.startswith("chat: ") for said in told)
    assert "50.0% of the seats" in told[0] and "times lower at load 0.8" in told[1]
