"""`fairstep bench`: static against continuous batches, as a table for people and one JSON line."""

import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec

from .. import __version__
from ..benchmarking.comparison import Comparison, Run, gains, missed, sooner
from ..benchmarking.figures import Limits
from ..benchmarking.machines import LARGE_GPU, Machine, RealMachine, VirtualMachine
from ..benchmarking.mixes import MIXES, fitted
from ..benchmarking.plot import plot_comparison
from ..benchmarking.witness import Generates
from ..config import EngineConfig
from ..errors import ConfigError
from ..machine import Machine as Hardware
from ..simulation.step_cost import StepCost
from ..simulation.trace import Trace
from ..simulation.trace_file import read_trace
from .bench_table import bench_table, notes

LOADS = (0.3, 0.8)  # and an overload
FULL_LOADS = (0.1, 0.3, 0.5, 0.8, 1.0, 1.5, 2.0)
SMOKE_LOADS, SMOKE_REQUESTS, SMOKE_SEATS, SMOKE_SHORTER = (0.8,), 8, 2, 32.0
KV_MEMORY = "512MiB"
GPU_STEP_TOKENS, GPU_KV_TOKENS, GPU_CONTEXT = 2048, 400_000, 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What was asked on the command line. None and (): the default."""

    model: str = "smollm2"
    virtual: bool = False
    full: bool = False
    smoke: bool = False
    mixes: tuple[str, ...] = ()
    trace: Path | None = None
    poisson: bool = False
    loads: tuple[float, ...] = ()
    requests: int | None = None
    shorter: float | None = None
    seats: int | None = None
    seed: int = 0
    witness: bool = True
    ttft_limit: float = 1.0
    pace_limit: float = 0.1
    dtype: str = "auto"
    threads: int | None = None


def run_bench(job: Job, plot: Path | None) -> dict[str, Any]:
    """Run all, print the table; the figures to keep. Raises ConfigError or ModelError."""
    machine = machine_of(job)
    limits = Limits(ttft=job.ttft_limit, pace=job.pace_limit)
    comparison = Comparison(machine, limits, witness_of(job, machine), _tell)
    runs = [
        run for trace in traces_of(job) for run in comparison.runs(fitted(trace, machine.info.context), loads_of(job))
    ]
    misses = [] if job.smoke else missed(runs)
    print(bench_table(runs))
    print("\n".join([*notes(runs), *(f"missed: {said}" for said in misses)]))
    if plot is not None:
        plot_comparison(runs, plot, f"static and continuous batches, {machine.info.model}, seed {job.seed}")
    return {
        "asked": msgspec.to_builtins({**asdict(job), "trace": str(job.trace) if job.trace else None}),
        "machine": {
            "model": machine.info.model,
            "path": machine.info.path,
            "dtype": machine.info.dtype,
            "seats": machine.info.seats,
        },
        "runs": [_kept(run) for run in runs],
        "gains": _rounded(gains(runs)),
        "sooner": _rounded(sooner(runs)),
        "missed": misses,
    }


def bench_text(job: Job, plot: Path | None) -> str:
    """As run_bench(); its last line."""
    return msgspec.json.encode(
        {"benchmark": "static_vs_continuous", **run_bench(job, plot), "fairstep": __version__}
    ).decode()


def machine_of(job: Job) -> Machine:
    """A model, loaded, or an imagined machine."""
    seats = job.seats or (SMOKE_SEATS if job.smoke else 32 if job.virtual else 16)
    if job.virtual:
        return VirtualMachine(
            StepCost(LARGE_GPU),
            seats=seats,
            step_tokens=max(GPU_STEP_TOKENS, seats),
            kv_tokens=GPU_KV_TOKENS,
            context=GPU_CONTEXT,
        )
    config = EngineConfig(
        max_seats=seats,
        dtype=job.dtype,
        threads=job.threads,
        prefix_cache=False,
        kv_memory=KV_MEMORY,  # type: ignore[arg-type]
    )
    return RealMachine(job.model, config.resolved(Hardware.found()), lambda what, part: None)


def witness_of(job: Job, machine: Machine) -> Generates | None:
    """transformers, with the dtype and the threads that the engine has; None: not asked for."""
    if job.virtual or not job.witness:
        return None
    from ..model.transformers_generate import Generator

    return Generator(job.model, machine.info.dtype)


def traces_of(job: Job) -> Iterator[Trace]:
    """What comes: about a request a second, or the file's own."""
    count = job.requests or (SMOKE_REQUESTS if job.smoke else 200 if job.virtual else 128)
    if job.trace is not None:
        if job.mixes:
            raise ConfigError("bench takes either --trace FILE or --mix NAME")
        trace = read_trace(job.trace, rate=1.0 if job.poisson else None, seed=job.seed, most=count)
        yield trace.scaled(lengths=job.shorter or 1.0)
        return
    for name in job.mixes or (tuple(MIXES) if job.full else ("chat",)):
        own = SMOKE_SHORTER if job.smoke else 1.0 if job.virtual else MIXES[name].shorter
        yield MIXES[name].trace(name, count, job.seed).scaled(lengths=job.shorter or own)


def loads_of(job: Job) -> tuple[float, ...]:
    return job.loads or (SMOKE_LOADS if job.smoke else FULL_LOADS if job.full else LOADS)


def _kept(run: Run) -> dict[str, Any]:
    named = {"mix": run.mix, "load": run.load, "overload": run.overload, "batches": run.rule}
    return {**named, **_rounded(asdict(run.figures))}


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(each) for key, each in value.items()}
    return round(value, 4) if isinstance(value, float) else value


def _tell(what: str) -> None:
    print(what, file=sys.stderr)
