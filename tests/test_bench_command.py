"""bench_command.py: the comparison in virtual time, and the same with a tiny model that is really computed."""

import json
from pathlib import Path
from typing import Any

import pytest

from fairstep.errors import ConfigError
from fairstep.serving.bench_command import Job, bench_text, run_bench
from tiny_models import tiny_llama

VIRTUAL = Job(virtual=True, requests=40, seats=8, shorter=16.0)


@pytest.fixture(scope="module")
def row() -> dict[str, Any]:
    return run_bench(VIRTUAL, None)


def test_continuous_batches_serve_more_and_sooner(row: dict[str, Any]) -> None:
    assert row["gains"]["chat"]["continuous"] > row["gains"]["chat"]["static"] > 1.0


def test_every_rule_draws_the_same_number_of_tokens(row: dict[str, Any]) -> None:
    tokens = [run["tokens_per_second"] * run["seconds"] for run in row["runs"]]
    assert max(tokens) == pytest.approx(min(tokens), rel=1e-3)


def test_only_naive_batches_pad(row: dict[str, Any]) -> None:
    assert all((run["padding"] > 0) == (run["batches"] == "naive static") for run in row["runs"])


def test_the_last_line_is_json_and_the_same_each_time(row: dict[str, Any]) -> None:
    told = json.loads(bench_text(VIRTUAL, None))
    assert told["benchmark"] == "static_vs_continuous" and told["runs"] == row["runs"]


def test_a_tiny_model_is_really_computed_by_every_rule(tmp_path: Path) -> None:
    tiny_llama(tmp_path)
    job = Job(model=str(tmp_path), requests=6, seats=2, shorter=64.0, loads=(0.8,), dtype="float32", threads=1)
    row = run_bench(job, None)
    assert {run["batches"] for run in row["runs"]} == {"naive static", "static", "continuous", "transformers"}
    assert all(run["requests"] == 6 for run in row["runs"])


def test_a_trace_and_a_mix_exclude_each_other(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("arrival_s,input_tokens,output_tokens\n0,8,8\n")
    with pytest.raises(ConfigError, match="either --trace FILE or --mix NAME"):
        run_bench(Job(virtual=True, trace=path, mixes=("chat",)), None)
