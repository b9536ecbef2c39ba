"""`fairstep simulate`: what it prints, the same each time, and what it refuses."""

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from fairstep.errors import ConfigError
from fairstep.serving import cli
from fairstep.serving.simulate_command import (
    Job,
    believed_of,
    coefficients_of,
    gate_of,
    run_simulation,
    setup_of,
    trace_of,
)
from fairstep.simulation.suites import SUITES

NOISY = ("simulate", "--suite", "noisy_neighbour", "--policy", "fcfs")


def told(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    with pytest.raises(SystemExit) as caught:
        cli.main(list(args))
    out, err = capsys.readouterr()
    assert caught.value.code == 0, err
    return out


def test_the_table_has_a_line_a_tenant_and_is_the_same_each_time(capsys: pytest.CaptureFixture[str]) -> None:
    first = told(capsys, *NOISY)
    lines = first.splitlines()
    assert lines[0].split()[:5] == ["tenant", "requests", "done", "lost", "share"]
    assert lines[1].split()[:5] == ["A", "100", "100", "0", "95.2%"]
    assert lines[2].split()[:5] == ["B", "5", "5", "0", "4.8%"]
    assert "noisy_neighbour, fcfs, seed 0" in first
    assert told(capsys, *NOISY) == first


def test_json_has_what_was_asked_and_what_came(capsys: pytest.CaptureFixture[str]) -> None:
    printed = json.loads(told(capsys, *NOISY, "--json", "--max-seats", "8"))
    assert (printed["asked"]["policy"], printed["asked"]["max_seats"]) == ("fcfs", 8)
    assert set(printed["result"]["tenants"]) == {"A", "B"}
    assert printed["result"]["tenants"]["B"]["ttft"]["p99"] > 0


def test_the_list_names_every_suite(capsys: pytest.CaptureFixture[str]) -> None:
    listed = told(capsys, "simulate", "--list").splitlines()
    assert [line.split()[0] for line in listed] == list(SUITES)


def test_a_file_is_read_cut_scaled_and_sped_up(tmp_path: Path) -> None:
    path = tmp_path / "chat.csv"
    path.write_text("arrival_s,input_tokens,output_tokens\n" + "8,160,32\n" * 5)
    trace = trace_of(Job(trace=path, requests=3, shorter=16, faster=4, seconds=40))
    assert [(each.at, each.prompt_tokens, each.outputs) for each in trace.arrivals] == [(2.0, 10, 2)] * 3
    assert trace.until == 10.0


def test_why_requests_were_lost_is_told(tmp_path: Path) -> None:
    path = tmp_path / "due.csv"
    path.write_text("arrival_s,input_tokens,output_tokens,deadline_s\n0,20000,4,\n0,8,400,0.1\n0,8,4,\n")
    said = run_simulation(Job(trace=path, policy="fcfs"), as_json=False, plot=None)
    assert "anonymous: 1 expired, 1 refused (context_length_exceeded)" in said


def test_prompts_are_found_again_where_the_trace_shares_them() -> None:
    job = Job(suite="shared_prefix", seconds=5)
    assert setup_of(job, trace_of(job)).settings.prefix_cache
    plain = Job(suite="overload", seconds=5)
    assert not setup_of(plain, trace_of(plain)).settings.prefix_cache


def test_static_batches_leave_by_a_gate() -> None:
    job = Job(suite="noisy_neighbour", batch="32,10,100")
    setup = setup_of(job, trace_of(job))
    assert setup.gate == gate_of("32,10,100") and setup.settings.static and setup.refuses
    assert (setup.gate.size, setup.gate.delay, setup.gate.compute) == (32, 0.01, 0.1)
    assert "105" not in run_simulation(job, as_json=False, plot=None).splitlines()[1]


def test_the_numbers_of_options_are_milliseconds_and_factors() -> None:
    assert coefficients_of("20,0.2,0.3,0").base == 0.02
    assert (believed_of("0.5"), believed_of("learn")) == (0.5, None)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ((), "either --suite NAME or --trace FILE"),
        (("--suite", "overload", "--trace", "x.csv"), "either --suite NAME or --trace FILE"),
        (("--suite", "nothing"), "--suite must be one of overload, "),
        (("--suite", "overload", "--policy", "lottery"), "--policy must be one of fcfs, vtc, vtc-ema, drr"),
        (("--suite", "overload", "--cost-model", "euros"), "--cost-model must be one of tokens, requests, adaptive"),
        (("--trace", "/no/such.csv"), "cannot be read"),
        (("--suite", "overload", "--step-cost", "1,2"), "--step-cost must be like 20,0.22,0.3,0.0003, not '1,2'"),
        (("--suite", "overload", "--step-cost", "0,1,0,1"), "must take some time"),
        (("--suite", "overload", "--believed", "much"), "--believed must be like 0.5"),
        (("--suite", "overload", "--batch", "0,10,100"), "at least one request"),
        (("--suite", "overload", "--step-tokens", "8"), "--step-tokens (8) at least --max-seats (32)"),
        (("--suite", "overload", "--kv-tokens", "8"), "--kv-tokens (8) must be at least 16"),
        (("--suite", "overload", "--rate", "0"), "'--rate'"),
    ],
)
def test_what_makes_no_sense_ends_with_2_and_a_line(
    capsys: pytest.CaptureFixture[str], args: tuple[str, ...], said: str
) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(["simulate", *args])
    assert caught.value.code == 2
    assert said in capsys.readouterr().err


def test_the_help_explains_the_trace(capsys: pytest.CaptureFixture[str]) -> None:
    said = told(capsys, "simulate", "--help")
    assert "arrival_s, input_tokens, output_tokens" in said and "fairstep simulate --suite" in said


class Axes:
    """As much of matplotlib's as a plot touches."""

    def __init__(self) -> None:
        self.lines: list[tuple[list[float], list[float]]] = []

    def plot(self, xs: list[float], ys: list[float], label: str = "") -> None:
        self.lines.append((xs, ys))

    def set(self, **texts: str) -> None:
        assert all(texts.values())

    def legend(self, loc: str) -> None: ...


class Figure:
    drawn: list["Figure"]

    def __init__(self, **how: Any) -> None:
        self.axes = [Axes(), Axes()]
        Figure.drawn = [self]

    def subplots(self, rows: int, columns: int, sharex: bool) -> list[Axes]:
        return self.axes

    def savefig(self, path: Path) -> None:
        if path.suffix != ".png":
            raise ValueError("Format is not supported")
        path.write_bytes(b"a picture")


@pytest.fixture
def drawing(monkeypatch: pytest.MonkeyPatch) -> type[Figure]:
    module = ModuleType("matplotlib.figure")
    module.Figure = Figure  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "matplotlib", ModuleType("matplotlib"))
    monkeypatch.setitem(sys.modules, "matplotlib.figure", module)
    return Figure


def test_a_plot_shows_each_tenant_s_service_as_it_adds_up(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, drawing: type[Figure]
) -> None:
    told(capsys, *NOISY, "--plot", str(tmp_path / "o.png"))
    assert (tmp_path / "o.png").read_bytes()
    sums, rates = drawing.drawn[0].axes
    assert [ys[-1] for _, ys in sums.lines] == [25600.0, 1280.0]
    assert all(ys == sorted(ys) for _, ys in sums.lines)
    assert len(rates.lines) == 2


def test_a_plot_that_cannot_be_written_is_told(tmp_path: Path, drawing: type[Figure]) -> None:
    with pytest.raises(ConfigError, match="not supported"):
        run_simulation(Job(suite="noisy_neighbour"), as_json=False, plot=tmp_path / "o.xyz")


def test_without_matplotlib_a_plot_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ConfigError, match=r"pip install 'fairstep\[plot\]'"):
        run_simulation(Job(suite="noisy_neighbour"), as_json=False, plot=tmp_path / "o.png")
