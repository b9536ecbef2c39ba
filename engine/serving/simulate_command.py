"""`fairstep simulate`: a trace through the scheduler in virtual time, as a table for people or as JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, get_args

import msgspec

from ..admission.bounded_queue import QueueBounds
from ..door import Coefficients
from ..errors import ConfigError
from ..fairness.policies import POLICIES, make_room
from ..fairness.pricing import UNIT, CostKind, CostModel
from ..front_setup import least_of
from ..simulation.logbook import DONE
from ..simulation.plot import plot_service
from ..simulation.simulator import SETTINGS, Setup, simulate
from ..simulation.step_cost import SMALL_GPU, StepCost
from ..simulation.suite import UNBOUNDED
from ..simulation.suites import SUITES, suite_trace
from ..simulation.summary import Percentiles, Summary, TenantSummary, summarize
from ..simulation.trace import Trace
from ..simulation.trace_file import read_trace
from ..stepping.batch_gate import BatchGate
from ..stepping.settings import StepSettings
from .simulate_options import LEARN
from .tenants_file import read_tenants

COLUMNS = ("tenant", "requests", "done", "lost", "share", "goodput", "queue s", "TTFT s", "ITL ms", "E2E s")
MOST_ROWS = 30
LONGEST_CONTEXT = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What was asked on the command line. None: the default, or what the trace says."""

    suite: str | None = None
    trace: Path | None = None
    seconds: float | None = None
    requests: int | None = None
    rate: float | None = None
    shorter: float = 1.0
    faster: float = 1.0
    seed: int = 0
    policy: str = "drr"
    cost_model: str = "tokens"
    quantum: int | None = None
    max_seats: int = 32
    step_tokens: int = 512
    kv_tokens: int = 10_000
    prefix_cache: bool | None = None
    step_cost: str | None = None
    noise: float = 0.0
    believed: str = "1"
    batch: str | None = None
    tenants: Path | None = None
    max_queue: int | None = None
    max_queue_tokens: int | None = None
    max_queue_bytes: int | None = None
    refuse: bool = True


def run_simulation(job: Job, *, as_json: bool, plot: Path | None) -> str:
    """Simulate; what to print. Raises ConfigError."""
    trace = trace_of(job)
    setup = setup_of(job, trace)
    cost = CostModel(kind=_one_of("cost-model", job.cost_model, get_args(CostKind)))
    quantum = None if job.quantum is None else job.quantum * UNIT
    least = least_of(trace.book.tiers)
    room = make_room(_one_of("policy", job.policy, POLICIES), cost, quantum=quantum, least=least)
    log = simulate(trace, room, setup)
    if plot is not None:
        plot_service(log, plot, f"{trace.name}, {job.policy}, seed {job.seed}")
    summary = summarize(log)
    if as_json:
        return msgspec.json.format(msgspec.json.encode({"asked": _asked(job), "result": summary})).decode()
    return report(summary, job)


def list_suites() -> str:
    """A line a suite."""
    wide = max(map(len, SUITES))
    return "\n".join(f"{name:<{wide}}  {suite.seconds:>4.0f} s  {suite.about}" for name, suite in SUITES.items())


def trace_of(job: Job) -> Trace:
    """The trace that a job names."""
    if (job.suite is None) == (job.trace is None):
        raise ConfigError("simulate needs either --suite NAME or --trace FILE; --list shows the suites")
    if job.suite is not None:
        _one_of("suite", job.suite, tuple(SUITES))
        trace = suite_trace(job.suite, job.seed, job.seconds)
    else:
        assert job.trace is not None
        trace = read_trace(job.trace, rate=job.rate, seed=job.seed, most=job.requests)
        trace = replace(trace, until=job.seconds)
    if job.tenants is not None:
        trace = replace(trace, book=read_tenants(job.tenants))
    return trace.scaled(lengths=job.shorter, time=job.faster)


def setup_of(job: Job, trace: Trace) -> Setup:
    """The machine that a job describes."""
    if job.kv_tokens < SETTINGS.page_size or job.step_tokens < job.max_seats:
        raise ConfigError(
            f"simulate: --kv-tokens ({job.kv_tokens}) must be at least {SETTINGS.page_size} and --step-tokens "
            f"({job.step_tokens}) at least --max-seats ({job.max_seats})"
        )
    shares = any(each.shared for each in trace.arrivals)
    settings: StepSettings = replace(
        SETTINGS,
        seats=job.max_seats,
        step_tokens=job.step_tokens,
        chunk=job.step_tokens,
        pages=job.kv_tokens // SETTINGS.page_size,
        context=LONGEST_CONTEXT,
        prefix_cache=shares if job.prefix_cache is None else job.prefix_cache,
    )
    gate = gate_of(job.batch)
    return Setup(
        settings=replace(settings, static=gate is not None),
        cost=StepCost(coefficients_of(job.step_cost), job.noise),
        believed=believed_of(job.believed),
        bounds=bounds_of(job),
        refuses=job.refuse,
        gate=gate,
        shared=job.policy == "drr",
        seed=job.seed,
    )


def bounds_of(job: Job) -> QueueBounds:
    """The most that may wait: as said, or the suite's own."""
    own = UNBOUNDED if job.suite is None else SUITES[job.suite].bounds
    return QueueBounds(
        entries=own.entries if job.max_queue is None else job.max_queue,
        tokens=own.tokens if job.max_queue_tokens is None else job.max_queue_tokens,
        bytes=own.bytes if job.max_queue_bytes is None else job.max_queue_bytes,
    )


def coefficients_of(text: str | None) -> Coefficients:
    """`20,0.22,0.3,0.0003`: milliseconds for a step, a prompt token, a sequence, a token attended to."""
    if text is None:
        return SMALL_GPU
    values = _numbers("--step-cost", text, "20,0.22,0.3,0.0003")
    if not values[0] + values[2]:
        raise ConfigError("--step-cost: a step that does nothing but draw a token must take some time")
    return Coefficients(*(value / 1000 for value in values))


def gate_of(text: str | None) -> BatchGate | None:
    """`32,10,100`: requests of a full batch, then milliseconds."""
    if text is None:
        return None
    size, delay, compute = _numbers("--batch", text, "32,10,100")
    if size < 1 or not compute:
        raise ConfigError(f"--batch {text}: a batch has at least one request and takes some time")
    return BatchGate(size=int(size), delay=delay / 1000, compute=compute / 1000)


def believed_of(text: str) -> float | None:
    """A factor above 0; None for `learn`."""
    if text == LEARN:
        return None
    [factor] = _numbers("--believed", text, "0.5")
    if not factor:
        raise ConfigError("--believed must be above 0")
    return factor


def _numbers(name: str, text: str, example: str) -> list[float]:
    """As many numbers from 0 as the example has."""
    try:
        values = [float(part) for part in text.split(",")]
    except ValueError:
        values = []
    if len(values) != example.count(",") + 1 or not all(0 <= value < 1e9 for value in values):
        raise ConfigError(f"{name} must be like {example}, not {text!r}")
    return values


def report(summary: Summary, job: Job) -> str:
    """A line a tenant, why requests did not end well under it, then what holds for all."""
    shown = sorted(summary.tenants.items(), key=lambda item: (-item[1].service, item[0]))[:MOST_ROWS]
    rows = [dict(zip(COLUMNS, COLUMNS, strict=True)), *(_row(name, tenant) for name, tenant in shown)]
    wide = {name: max(len(row[name]) for row in rows) for name in COLUMNS}
    lines = ["  ".join(row[name].ljust(wide[name]) for name in COLUMNS).rstrip() for row in rows]
    if len(summary.tenants) > len(shown):
        lines.append(f"and {len(summary.tenants) - len(shown)} more: --json shows all")
    lines += ["", *(f"{name}: {lost}" for name, tenant in shown if (lost := _lost(tenant)))]
    return "\n".join([*lines, *_totals(summary, job)])


def _row(name: str, tenant: TenantSummary) -> dict[str, str]:
    values = (
        name,
        str(tenant.requests),
        str(sum(tenant.ended.get(end, 0) for end in DONE)),
        str(tenant.lost),
        f"{tenant.share:.1%}",
        f"{tenant.goodput:.2f}/s",
        _cell(tenant.queue),
        _cell(tenant.ttft),
        _cell(tenant.itl, 1000),
        _cell(tenant.e2e),
    )
    return dict(zip(COLUMNS, values, strict=True))


def _cell(times: Percentiles, scale: float = 1.0) -> str:
    values = (times.p50, times.p95, times.p99)
    return "/".join("-" if value is None else f"{value * scale:.3g}" for value in values)


def _lost(tenant: TenantSummary) -> str:
    """How many ended otherwise than by a whole answer, and why."""
    ends = [f"{count} {end}" for end, count in tenant.ended.items() if end not in (*DONE, "refused")]
    return ", ".join([*ends, *(f"{count} refused ({code})" for code, count in tenant.refused.items())])


def _totals(summary: Summary, job: Job) -> Sequence[str]:
    difference = summary.difference
    return (
        f"{summary.trace}, {job.policy}, seed {job.seed}: {summary.seconds:.1f} s of virtual time, "
        f"{summary.steps} steps, busy {summary.busy:.0%}",
        f"{summary.tokens_per_second:.1f} tokens/s drawn, {summary.goodput:.2f} answers/s in time, "
        f"{summary.recomputed} tokens computed again",
        f"service a second that tenants lacked, by minute: most {difference.most:.1f}, mean {difference.mean:.1f}, "
        f"variance {difference.variance:.1f}",
        f"worst gap between two tenants that both waited: {summary.worst_gap:.0f} weighted tokens",
        "Times are p50/p95/p99. Service counts a prompt token as 1, a cached one as 0.1, an output as 2.",
    )


def _asked(job: Job) -> Mapping[str, Any]:
    return {name: str(value) if isinstance(value, Path) else value for name, value in asdict(job).items()}


def _one_of(name: str, value: str, choices: Sequence[Any]) -> Any:
    if value not in choices:
        raise ConfigError(f"--{name} must be one of {', '.join(choices)}, not {value!r}")
    return value
