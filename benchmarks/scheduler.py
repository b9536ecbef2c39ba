"""What deciding costs: picks with few and many tenants and queues, and each part of a step but the model's.

Nothing is computed. Times are the processor's, so that others on the machine count for less; so that collections don't
count, they are off but for the row of their own. A part of a step is measured in several courses: the best one counts.
"""

import argparse
import gc
import os
import statistics
from collections.abc import Sequence

from fairstep.fairness.policies import POLICIES
from fairstep.garbage import settle_garbage
from report import emit, table
from scrapes import scrapes
from step_course import PARTS, steps
from waiting_rooms import arrivals, collections, pauses, picks, seatings

Sizes = Sequence[tuple[int, int]]  # tenants and queued sequences
SIZES = ((1, 1_000), (10, 1_000), (10, 100_000), (1_000, 1_000), (1_000, 100_000))
RUNNING = (1, 32, 256)
COURSES = 5


def pick_rows(count: int, sizes: Sizes) -> dict[str, list[float]]:
    """What goes on in the waiting room."""
    rows = {}
    for policy in POLICIES:
        for tenants, queued in sizes:
            rows[f"pick, {policy}, {tenants:,} tenants, {queued:,} queued"] = picks(policy, tenants, queued, count)
    tenants, queued = sizes[-1]
    barred = {f"t{place}" for place in range(tenants // 10)}
    rows[f"pick, drr, {len(barred)} of {tenants:,} tenants barred"] = picks(
        "drr", tenants, queued, count, barred=barred
    )
    for tenants, queued in sizes:
        rows[f"pick, shares, {tenants:,} tenants, {queued:,} queued"] = seatings(tenants, queued, count)
    rows["pick, shares, at most 1 running each"] = seatings(*sizes[-1], count, most_running=1)
    for tenants, queued in sizes:
        rows[f"arrival, {tenants:,} tenants, {queued:,} queued"] = arrivals(tenants, queued, count)
    return rows


def scrape_rows(courses: int, sizes: Sizes) -> dict[str, list[float]]:
    """What it costs to look at all of it."""
    return {
        f"scrape, {tenants:,} tenants, {queued:,} queued": scrapes(tenants, queued, courses)
        for tenants, queued in sizes
    }


def step_rows(count: int, courses: int) -> dict[str, list[float]]:
    """What goes on in a step of decodes."""
    rows = {}
    for running in RUNNING:
        measured = [steps(running, count) for _ in range(courses)]
        for part in PARTS:
            best = min((course[part] for course in measured), key=statistics.median)
            rows[f"{part}, {running} running"] = best
    return rows


def collection_rows(sizes: Sizes) -> dict[str, list[float]]:
    """What the garbage collector takes: full collections, and all that come as a queue fills in a server.

    The last rows of all: they change how this process collects.
    """
    tenants, queued = sizes[-1]
    full = collections(tenants, queued)
    settle_garbage()
    with pauses() as ours:
        arrivals(tenants, queued, 1)
    return {f"full garbage collection, {queued:,} queued": full, "any garbage collection in a server": ours or [0.0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=5000, help="picks of each kind (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=200, help="steps of each course (default: %(default)s)")
    parser.add_argument("--smoke", action="store_true", help="few of all, in seconds: does it work at all")
    args = parser.parse_args()
    count, step_count, courses, sizes = (
        (20, 5, 1, SIZES[:2]) if args.smoke else (args.count, args.steps, COURSES, SIZES)
    )
    gc.disable()
    rows = (
        pick_rows(count, sizes) | scrape_rows(courses, sizes) | step_rows(step_count, courses) | collection_rows(sizes)
    )
    figures = {name: _figures(seconds) for name, seconds in rows.items()}
    lines = [(name, *row.values()) for name, row in figures.items()]
    print(table(("microseconds", "mean", "median", "p99", "worst"), lines))
    emit("scheduler", {"microseconds": figures, "picks": count, "steps": step_count, "load": os.getloadavg()})


def _figures(seconds: list[float]) -> dict[str, float]:
    micros = sorted(1e6 * each for each in seconds)
    return {
        "mean": round(statistics.fmean(micros), 1),
        "median": round(statistics.median(micros), 1),
        "p99": round(micros[int(0.99 * len(micros))], 1),
        "worst": round(micros[-1], 1),
    }


if __name__ == "__main__":
    main()
