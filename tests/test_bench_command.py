"""`fairstep bench`: a line a run, what it comes to, one JSON line last; on a model, in virtual time, with a trace."""

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from fairstep.benchmarking.mixes import MIXES
from fairstep.benchmarking.rules import CONTINUOUS, NAIVE, RULES, WITNESS
from fairstep.errors import ConfigError
from fairstep.serving import cli
from fairstep.serving.bench_command import Job, bench_text, loads_of, traces_of
from replay_tiny import tiny_directory

SMOKE = Job(virtual=True, smoke=True)
QUICK = ("bench", "--virtual", "--smoke")


def told(capsys: pytest.CaptureFixture[str], *args: str) -> list[str]:
    with pytest.raises(SystemExit) as caught:
        cli.main(list(args))
    out, err = capsys.readouterr()
    assert caught.value.code == 0, err
    return out.splitlines()


def test_a_line_a_run_and_json_last_and_the_same_each_time(capsys: pytest.CaptureFixture[str]) -> None:
    lines = told(capsys, *QUICK)
    row = json.loads(lines[-1])
    assert row["benchmark"] == "static_vs_continuous"
    assert [(run["load"] is None, run["batches"]) for run in row["runs"]] == [
        (True, NAIVE),
        (True, CONTINUOUS),
        *[(False, rule) for rule in RULES] * 2,
    ]
    assert lines[0].split()[:3] == ["mix", "load", "batches"]
    assert all(line.startswith("chat") for line in lines[1:9])
    assert told(capsys, *QUICK) == lines


def test_the_mix_that_gains_least_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    lines = told(capsys, *QUICK, "--mix", "chat", "--mix", "summaries", "--load", "0.8")
    gains = json.loads(lines[-1])["gains"]
    least = min(gains, key=lambda mix: gains[mix][CONTINUOUS])
    assert any(line.endswith(f"; least: {least}") for line in lines)


def test_a_model_is_measured_with_transformers_as_a_witness(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = str(tiny_directory(tmp_path))
    row = json.loads(told(capsys, "bench", model, "--smoke", "--threads", "1", "--dtype", "float32")[-1])
    assert [run["batches"] for run in row["runs"][:3]] == [NAIVE, WITNESS, CONTINUOUS]
    assert len(row["runs"]) == 9 and all(run["requests"] == 8 for run in row["runs"])
    assert len({round(run["seconds"] * run["tokens_per_second"]) for run in row["runs"]}) == 1, "the same answers"
    assert row["machine"]["dtype"] == "float32"
    without = json.loads(told(capsys, "bench", model, "--smoke", "--threads", "1", "--no-witness")[-1])
    assert [run["batches"] for run in without["runs"][:2]] == [NAIVE, CONTINUOUS]


def test_a_trace_is_cut_scaled_and_keeps_its_gaps(tmp_path: Path) -> None:
    path = tmp_path / "chat.csv"
    path.write_text("arrival_s,input_tokens,output_tokens\n" + "".join(f"{at},160,32\n" for at in range(5)))
    [trace] = traces_of(Job(trace=path, requests=3, shorter=16))
    assert [(each.at, each.prompt_tokens, each.outputs) for each in trace.arrivals] == [(at, 10, 2) for at in range(3)]
    [drawn] = traces_of(Job(trace=path, poisson=True))
    assert [each.at for each in drawn.arrivals] != [0, 1, 2, 3, 4]
    with pytest.raises(ConfigError, match="either --trace FILE or --mix NAME"):
        list(traces_of(Job(trace=path, mixes=("chat",))))


def test_all_mixes_and_more_loads_are_in_the_full_run() -> None:
    assert [trace.name for trace in traces_of(Job(full=True))] == list(MIXES)
    assert set(loads_of(Job())) < set(loads_of(Job(full=True)))
    assert loads_of(Job(full=True, loads=(2.0,))) == (2.0,)


class Axes:
    """As much of matplotlib's as a plot touches."""

    def __init__(self) -> None:
        self.lines: dict[str, list[float]] = {}
        self.areas: dict[str, list[float]] = {}
        self.title = ""

    def plot(self, xs: list[float], ys: list[float], style: str, color: str, label: str) -> None:
        assert len(xs) == len(ys)
        self.lines[label] = ys

    def fill_between(self, xs: list[float], ys: list[float], step: str, color: str, label: str) -> None:
        assert len(xs) == len(ys)
        self.areas[label] = ys

    def set_title(self, text: str) -> None:
        self.title = text

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **how: None


class Figure:
    drawn: list["Figure"]

    def __init__(self, **how: Any) -> None:
        self.axes: list[list[Axes]] = []
        Figure.drawn = [self]

    def suptitle(self, text: str) -> None: ...

    def subplots(self, rows: int, columns: int, squeeze: bool) -> list[list[Axes]]:
        self.axes = [[Axes() for _ in range(columns)] for _ in range(rows)]
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


def test_a_plot_shows_latency_by_load_and_seats_by_time(tmp_path: Path, drawing: type[Figure]) -> None:
    bench_text(SMOKE, tmp_path / "o.png")
    assert (tmp_path / "o.png").read_bytes()
    [[first, last], [naive, continuous]] = drawing.drawn[0].axes
    for axes in (first, last):
        assert set(axes.lines) == {f"{rule}, {part}" for rule in RULES for part in ("p50", "p99")}
        assert all(low <= high for low, high in zip(axes.lines["static, p50"], axes.lines["static, p99"], strict=True))
    assert "naive static" in naive.title and "continuous" in continuous.title
    assert max(naive.areas["padding"]) == 2 and continuous.areas["padding"] == continuous.areas["a request's"]


def test_a_plot_that_cannot_be_written_is_told(tmp_path: Path, drawing: type[Figure]) -> None:
    with pytest.raises(ConfigError, match="not supported"):
        bench_text(SMOKE, tmp_path / "o.xyz")


def test_without_matplotlib_a_plot_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ConfigError, match=r"pip install 'fairstep\[plot\]'"):
        bench_text(SMOKE, tmp_path / "o.png")
