"""Each benchmark runs in its smoke mode and ends in one JSON line. That it works, not what it measures."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fairstep.kernels.cpu.build import COMPILERS, usable_levels
from fairstep.machine import cpu_flags
from replay_tiny import tiny_directory, tiny_server

ROOT = Path(__file__).resolve().parent.parent
BENCHMARKS = ROOT / "benchmarks"
MODELLED = ("deadline_storm", "fairness", "kernels", "scheduler")  # need no model
MEASURED = (
    "cost_growth",
    "cpu_step",
    "noisy_neighbour",
    "offline",
    "peers",
    "startup",
    "static_vs_continuous",
    "step_profile",
    "workers",
)  # need the default model
ON_GPU = ("gpu_check",)


def smoke(name: str, *args: str) -> dict[str, Any]:
    """A benchmark's row."""
    command = [sys.executable, str(BENCHMARKS / f"{name}.py"), "--smoke", *args]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    row: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert row["benchmark"] == name
    assert {"commit", "hardware", "versions"} <= row.keys()
    return row


def test_every_benchmark_is_run_here_and_has_a_target() -> None:
    found = {path.stem for path in BENCHMARKS.glob("*.py") if "def main()" in path.read_text(encoding="utf-8")}
    assert found == {*MODELLED, *MEASURED, *ON_GPU}
    targets = re.findall(r"^bench-\S+:.*\n\t.*benchmarks/(\w+)\.py", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(targets) == found


@pytest.mark.parametrize("name", MODELLED)
def test_what_needs_no_model_works(name: str) -> None:
    if name == "kernels":
        pytest.importorskip("triton", exc_type=ImportError)
    smoke(name)


def test_without_a_gpu_its_check_says_what_it_would_do() -> None:
    hidden = {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": ""}
    command = [sys.executable, str(BENCHMARKS / "gpu_check.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **hidden})
    assert done.returncode == 2, done.stderr
    assert "Nothing was run and nothing was timed" in done.stdout
    row = json.loads(done.stdout.splitlines()[-1])
    assert row["gpu"] == "" and list(row["would_run"]) == ["driver", "tests", "kernels", "sweep", "model"]


@pytest.mark.full
def test_the_check_of_a_gpu_is_rehearsed_without_one(tmp_path: Path) -> None:
    pytest.importorskip("triton", exc_type=ImportError)
    row = smoke("gpu_check", "--out", str(tmp_path))
    assert row["failed"] == [] and row["parts"]["tests"]["wrong"] == []
    assert {way for way, rates in row["parts"]["model"]["ways"].items() if "failed" not in rates} == {
        "ours",
        "no graphs",
        "no overlap",
        "neither",
        "torch attention",
        "transformers",
    }
    assert "AttentionConfig(" in (tmp_path / "sm90.py").read_text()


def test_batches_are_compared_on_any_model(tmp_path: Path) -> None:
    row = smoke("static_vs_continuous", str(tiny_directory(tmp_path)), "--threads", "1", "--dtype", "float32")
    assert len(row["runs"]) == 9 and row["missed"] == []


def test_the_growth_of_a_steps_cost_is_measured_on_any_model(tmp_path: Path) -> None:
    row = smoke("cost_growth", str(tiny_directory(tmp_path)), "--threads", "1", "--dtype", "float32")
    curves = row["curves"]
    assert [list(curve["microseconds"]) for curve in curves.values()] == [
        ["1", "2", "4"],  # running
        *[["32", "64", "128"]] * 2,  # tokens each
        *[["0", "10", "100"]] * 2,  # waiting
        ["10", "100"],  # from where all tenants wait
        ["0", "10", "100"],
    ]
    assert {curve["expected"] for curve in curves.values()} == {"linear", "flat"}


def test_a_step_is_profiled_in_a_servers_processes(tmp_path: Path) -> None:
    row = smoke("step_profile", str(tiny_directory(tmp_path)), "--serve", "--threads 1 --dtype float32")
    assert [profile["running"] for profile in row["profiles"]] == [1, 4]
    for profile in row["profiles"]:
        worker, front = profile["worker"]["parts"], profile["front"]["parts"]
        assert worker.keys() >= {"plan", "inputs", "model", "head", "sampling", "commit", "report"}
        assert front.keys() >= {"door", "books", "detokenise", "streams", "events"}
        assert 0 < profile["share_between"] < profile["share"]
        assert profile["milliseconds"] == pytest.approx(sum(wall for wall, _ in worker.values()), rel=1e-3)


def test_a_neighbour_is_measured_at_any_server(tmp_path: Path) -> None:
    with tiny_server(tmp_path) as server:
        row = smoke("noisy_neighbour", "--url", server.url, "--name", "tiny")
    [tiny] = row["measured"].values()
    [told] = tiny["rounds"]
    assert tiny["times"] > 0 and told["short"] == 0
    assert row["modelled"]["drr"] < 3 * row["modelled"]["alone"] + 2 * row["modelled"]["step"]


def test_servers_are_compared_at_every_load(tmp_path: Path) -> None:
    with tiny_server(tmp_path) as server:
        row = smoke("peers", "--server", f"one={server.url}", "--server", f"two={server.url}", "--base", "two")
    assert list(row["loads"]) == ["closed 2", "open 20/s", "long prompt", "neighbour"]
    for load in row["loads"].values():
        assert list(load) == ["one", "two"]
        assert {ratio for ratios in load["two"]["ratios"].values() for ratio in ratios} == {1.0}
    for name in ("closed 2", "open 20/s"):
        assert len(row["loads"][name]["one"]["ratios"]["tokens_per_second"]) == 3
    assert row["loads"]["closed 2"]["one"]["short"] == 0
    assert row["servers"]["one"]["version"] == row["versions"]["fairstep"]


@pytest.mark.real
@pytest.mark.full
def test_our_own_server_is_started_and_measured() -> None:
    row = smoke("peers", "--own", "ours=--dtype float32", "--loads", "closed")
    assert row["servers"]["ours"]["started"] > 0 and row["loads"]["closed 2"]["ours"]["tokens_per_second"] > 0


@pytest.mark.real
@pytest.mark.full
def test_one_worker_process_two_and_none_take_turns() -> None:
    row = smoke("workers", "--serve", "--threads 1 --dtype float32")
    assert [*row["loads"]["closed 2"]] == ["inside", "one", "two"]
    assert all(each["tokens_per_second"] > 0 for each in row["loads"]["closed 2"].values())
    assert all(each["alone_ttft"] > 0 for each in row["loads"]["neighbour"].values())


@pytest.mark.real
@pytest.mark.full
def test_engines_are_compared_without_http() -> None:
    row = smoke("offline", "--own", 'fairstep:a={"threads": 1}', "--own", 'fairstep:b={"threads": 2}')
    for engine in row["engines"].values():
        assert engine["medians"].keys() == {"start-up", "decode 1", "whole 1", "decode 2", "whole 2", "prefill"}
        assert all(value > 0 for value in engine["medians"].values())


@pytest.mark.real
@pytest.mark.full
def test_a_neighbour_is_measured_at_servers_of_its_own() -> None:
    row = smoke("noisy_neighbour")
    assert list(row["measured"]) == ["drr", "fcfs"]
    assert all(told["prompt_tokens"] == 16 for each in row["measured"].values() for told in each["rounds"])
    assert row["missed"] == []


@pytest.mark.real
@pytest.mark.full
@pytest.mark.skipif(not usable_levels(cpu_flags()) or not any(map(shutil.which, COMPILERS)), reason="builds nothing")
def test_a_step_is_measured_in_both_ways() -> None:
    row = smoke("cpu_step")
    assert {step["weights"] for step in row["steps"]} == {"bfloat16", "int8", "int4", "torch"}


@pytest.mark.real
@pytest.mark.full
def test_static_and_continuous_batches_are_compared() -> None:
    row = smoke("static_vs_continuous")
    assert {run["batches"] for run in row["runs"]} >= {"naive static", "static", "continuous", "transformers"}


@pytest.mark.real
@pytest.mark.full
def test_a_start_is_measured_part_by_part() -> None:
    row = smoke("startup")
    assert row["seconds"]["total"] >= row["seconds"]["weights"] > 0
    assert row["peak_pss_mib"]["serving"] > 100
    assert row["versions"]["torch"]
