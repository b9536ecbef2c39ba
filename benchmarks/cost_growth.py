"""How the cost of a step grows: with sequences that run, with their context, and with the queue.

The first two are steps of a real model, planned, computed and committed, without HTTP; the third is all that is decided
in a step and at an arrival, with nothing computed. A straight line is fitted to each, and what was expected stands
beside what was found: linear in sequences and context, flat in the queue.
"""

import argparse
import gc
import os
from collections.abc import Sequence
from pathlib import Path

from growth_curve import Curve
from growth_plot import plot_growth
from growth_queue import FORECAST, PARTS, TENANTS, medians
from growth_steps import RealSteps, Size
from report import emit, table

RUNNING = (1, 2, 4, 8, 16, 32, 64, 128)
CONTEXTS = (128, 256, 512, 1024, 2048, 4096, 8000)
BESIDE = (1, 8)  # sequences with each context
QUEUES = (0, 1, 10, 100, 1_000, 10_000, 100_000)
SMOKE_RUNNING, SMOKE_CONTEXTS, SMOKE_QUEUES = (1, 2, 4), (32, 64, 128), (0, 10, 100)
SMOKE_MEMORY = "64MiB"
Panels = dict[str, list[Curve]]


def step_panels(steps: RealSteps, args: argparse.Namespace) -> Panels:
    """Of the model's steps. Sizes that its context or the memory can't hold are left out, which is told."""
    asked = [*((running, args.context) for running in args.running)]
    asked += [(running, context) for running in args.beside for context in args.contexts]
    sizes = [size for size in dict.fromkeys(asked) if steps.fits(size, args.steps)]
    for running, context in dict.fromkeys(asked):
        if (running, context) not in sizes:
            print(f"left out: {running} sequences of {context:,} tokens don't fit (context {steps.info.context:,})")
    found = steps.medians(sizes, args.steps, args.rounds)
    by_running = {size[0]: found[size] for size in asked if size in found and size[1] == args.context}
    panels: Panels = {"sequences": [], "context": []}
    if len(by_running) > 1:
        panels["sequences"].append(Curve(f"a step, {args.context} tokens each", "running", by_running, "linear"))
    for running in args.beside:
        by_context = {size[1]: found[size] for size in _of(running, args.contexts) if size in found}
        if len(by_context) > 1:
            panels["context"].append(Curve(f"a step, {running} running", "tokens", by_context, "linear"))
    return {name: curves for name, curves in panels.items() if curves}


def _of(running: int, contexts: Sequence[int]) -> list[Size]:
    return [(running, context) for context in contexts]


def queue_panel(queues: Sequence[int], steps: int, rounds: int) -> Panels:
    """Of what is decided. A forecast grows with the tenants that wait, so it is told from where all of them do."""
    gc.disable()
    found = medians(queues, steps, rounds)
    gc.enable()
    curves = []
    for part in PARTS:
        least = TENANTS if part == FORECAST else 0
        points = {waiting: found[waiting][part] for waiting in queues if waiting >= least}
        curves.append(Curve(part, "waiting", points, "flat"))
    return {"queue": curves}


def rows(panels: Panels) -> list[tuple[str, ...]]:
    """One a point."""
    return [
        (curve.name, f"{x:,} {curve.over}", f"{1000 * seconds:.3f}", f"{seconds / curve.points[min(curve.points)]:.2f}")
        for curves in panels.values()
        for curve in curves
        for x, seconds in curve.points.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", default="smollm2", help="(default: %(default)s)")
    parser.add_argument("--running", type=int, nargs="+", default=RUNNING, help="(default: %(default)s)")
    parser.add_argument("--context", type=int, default=160, help="tokens of each of those (default: %(default)s)")
    parser.add_argument("--contexts", type=int, nargs="+", default=CONTEXTS, help="(default: %(default)s)")
    parser.add_argument("--beside", type=int, nargs="+", default=BESIDE, help="running then (default: %(default)s)")
    parser.add_argument("--queues", type=int, nargs="+", default=QUEUES, help="(default: %(default)s)")
    parser.add_argument("--steps", type=int, default=7, help="steps of each size a round (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds over all sizes (default: %(default)s)")
    parser.add_argument("--decisions", type=int, default=60, help="steps at each queue a round (default: %(default)s)")
    parser.add_argument("--kv-memory", default="1536MiB", help="(default: %(default)s)")
    parser.add_argument("--dtype", default="auto", help="(default: %(default)s)")
    parser.add_argument("--threads", type=int, help="(default: the cores found)")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw all of it into a file; needs matplotlib")
    parser.add_argument("--smoke", action="store_true", help="few of all, in seconds: does it work at all")
    args = parser.parse_args()
    if args.smoke:
        args.running, args.contexts, args.queues = SMOKE_RUNNING, SMOKE_CONTEXTS, SMOKE_QUEUES
        args.beside, args.kv_memory = (1, 2), SMOKE_MEMORY
        args.context, args.steps, args.rounds, args.decisions = 32, 2, 1, 10
    seats = max(*args.running, *args.beside)
    steps = RealSteps(args.model, seats=seats, kv_memory=args.kv_memory, dtype=args.dtype, threads=args.threads)
    panels = {**step_panels(steps, args), **queue_panel(args.queues, args.decisions, args.rounds)}
    print(table(("what", "at", "ms", "to the first"), rows(panels)))
    print("\n".join(curve.told() for curves in panels.values() for curve in curves))
    if args.plot:
        plot_growth(panels, args.plot, f"cost growth, {steps.info.model} {steps.info.dtype}")
    curves = {curve.name: curve.kept() for found in panels.values() for curve in found}
    machine = {"model": steps.info.model, "path": steps.info.path, "dtype": steps.info.dtype}
    emit("cost_growth", {**machine, "curves": curves, "load": os.getloadavg()})


if __name__ == "__main__":
    main()
