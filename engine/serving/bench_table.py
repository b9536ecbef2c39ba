"""What `fairstep bench` prints for people: a line a run, and what it comes to."""

from collections.abc import Iterator, Sequence

from ..benchmarking.comparison import NEAR, Run, gains, sooner
from ..benchmarking.rules import CONTINUOUS, NAIVE
from ..simulation.summary import Percentiles

HEADING = (
    *("mix", "load", "batches", "req/s", "tok/s", "TTFT s", "ITL ms", "E2E s", "good"),
    *("seats", "ideal", "wasted", "padding"),
)


def bench_table(runs: Sequence[Run]) -> str:
    """A line a run; columns as wide as they must be, the first three left, the others right."""
    lines = [HEADING, *map(_row, runs)]
    wide = [max(map(len, column)) for column in zip(*lines, strict=True)]
    aligned = (
        (
            cell.ljust(width) if place < 3 else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(line, wide, strict=True))
        )
        for line in lines
    )
    return "\n".join("  ".join(cells).rstrip() for cells in aligned)


def _row(run: Run) -> tuple[str, ...]:
    of = run.figures
    return (
        run.mix,
        "at once" if run.load is None else f"{run.load:g}",
        run.rule,
        f"{of.requests_per_second:.2f}",
        f"{of.tokens_per_second:.1f}",
        _cell(of.ttft),
        _cell(of.itl, 1000),
        _cell(of.e2e),
        f"{of.good:.0%}",
        f"{of.seats:.0%}",
        "-" if of.ideal is None else f"{of.ideal:.1%}",
        f"{of.wasted:.0%}",
        f"{of.padding:.0%}",
    )


def _cell(times: Percentiles, scale: float = 1.0) -> str:
    return "/".join("-" if value is None else f"{value * scale:.3g}" for value in (times.p50, times.p99))


def notes(runs: Sequence[Run]) -> Iterator[str]:
    """What the table means, and what it comes to."""
    yield "Times are p50/p99. Load 1: what naive static serves of the mix when all comes at once. Last: overload."
    gained = {mix: gain[CONTINUOUS] for mix, gain in gains(runs).items()}
    told = ", ".join(f"{mix} {gain:.2f}" for mix, gain in gained.items())
    least = f"; least: {min(gained, key=gained.__getitem__)}" if len(gained) > 1 else ""
    yield f"tokens/s under overload, {CONTINUOUS} over {NAIVE}: {told}{least}"
    if times := sooner(runs):
        told = ", ".join(f"{mix} {each:.1f}" for mix, each in times.items())
        yield f"p99 TTFT at load {NEAR:g}, {NAIVE} over {CONTINUOUS}: {told}"
