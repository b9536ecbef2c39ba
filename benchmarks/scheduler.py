"""What deciding costs: the waiting room's picks with few and many tenants and queues; the step loop's plan and commit.

A pick is head(), take() and the ledger's entries of the sequence that ends to make room. Nothing is computed: the loop
is handed tokens. Times are the processor's, so that others on the machine don't count; so are garbage collections,
which have rows of their own.
"""

import argparse
import gc
import statistics
import time
from collections.abc import Callable, Set

from fairstep.door import Admit, Orders, Sampling
from fairstep.fairness.policies import POLICIES, Policy, make_room
from fairstep.fairness.ticket import Ticket
from fairstep.stepping.cost import StepModel
from fairstep.stepping.loop import StepLoop
from fairstep.stepping.plan import StepOutput
from fairstep.stepping.settings import StepSettings
from report import emit, table

SIZES = ((1, 1_000), (10, 1_000), (10, 100_000), (1_000, 1_000), (1_000, 100_000))
SEATS = 256


def picks(policy: Policy, tenants: int, queued: int, count: int, *, barred: Set[str] = frozenset()) -> list[float]:
    """Seconds of each pick, with the queue as long all the time. barred: tenants that may not now."""
    room = make_room(policy)
    for seq in range(queued):
        room.add(_ticket(seq, tenants))
    running: list[int] = []
    seconds = []
    for seq in range(queued, queued + count):
        start = time.thread_time()
        ticket = room.head(lambda ticket: ticket.tenant not in barred)
        assert ticket is not None
        room.take(ticket)
        if len(running) == SEATS:
            ended = running.pop(0)
            room.spent(ended, cached=32, computed=200, outputs=50)
            room.end(ended, natural=True)
        seconds.append(time.thread_time() - start)
        running.append(ticket.seq)
        room.add(_ticket(seq, tenants))
    return seconds


def adds(tenants: int, queued: int, count: int) -> list[float]:
    """Seconds of each arrival at such a queue."""
    room = make_room("drr")
    for seq in range(queued):
        room.add(_ticket(seq, tenants))
    return [_timed(lambda seq=seq: room.add(_ticket(seq, tenants))) for seq in range(queued, queued + count)]


def collections(tenants: int, queued: int) -> list[float]:
    """Seconds of full garbage collections beside such a queue."""
    room = make_room("drr")
    for seq in range(queued):
        room.add(_ticket(seq, tenants))
    gc.collect()
    return [_timed(gc.collect) for _ in range(5)]


def steps(running: int, count: int) -> tuple[list[float], list[float]]:
    """Seconds of plan() and of commit() with so many sequences decoding, and applying no orders."""
    settings = StepSettings(step_tokens=4096, seats=running, pages=running * 64, page_size=16, chunk=2048, context=1024)
    loop = StepLoop(settings, StepModel())
    sampling = Sampling(max_tokens=900)
    admits = (Admit(seq, 1, tuple(range(seq, seq + 64)), 64, sampling, order=seq) for seq in range(running))
    loop.apply(Orders(1, admit=tuple(admits)))
    plans, commits = [], []
    while len(plans) < count:
        start = time.thread_time()
        plan = loop.plan()
        planned = time.thread_time()
        output = StepOutput(tuple(7 for piece in plan.slices if piece.samples))
        handed = time.thread_time()
        loop.commit(plan, output, run_seconds=0.01)
        done = time.thread_time()
        if sum(piece.decode for piece in plan.slices) == running:
            plans.append(planned - start)
            commits.append(done - handed)
    return plans, commits


def measured(count: int, step_count: int) -> dict[str, list[float]]:
    """All rows."""
    rows = {}
    for policy in POLICIES:
        for tenants, queued in SIZES:
            rows[f"pick, {policy}, {tenants:,} tenants, {queued:,} queued"] = picks(policy, tenants, queued, count)
    barred = {f"t{place}" for place in range(100)}
    rows["pick, drr, 100 of 1,000 tenants barred"] = picks("drr", 1_000, 100_000, count, barred=barred)
    for tenants, queued in SIZES:
        rows[f"arrival, {tenants:,} tenants, {queued:,} queued"] = adds(tenants, queued, count)
    rows["full garbage collection, 100,000 queued"] = collections(1_000, 100_000)
    rows[f"plan, {SEATS} running"], rows[f"commit, {SEATS} running"] = steps(SEATS, step_count)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=5000, help="picks of each kind (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=400, help="steps of the loop (default: %(default)s)")
    args = parser.parse_args()
    gc.disable()
    rows = measured(args.count, args.steps)
    figures = {name: _figures(seconds) for name, seconds in rows.items()}
    lines = [(name, *row.values()) for name, row in figures.items()]
    print(table(("microseconds", "mean", "median", "p99", "worst"), lines))
    emit("scheduler", {"microseconds": figures, "picks": args.count, "steps": args.steps})


def _ticket(seq: int, tenants: int) -> Ticket:
    """Arrivals with some spread in size and urgency, the same each time."""
    mixed = seq * 2_654_435_761 % 2**32
    return Ticket(
        seq,
        seq,
        f"t{mixed % tenants}",
        priority=mixed // 7 % 3,
        deadline=float(mixed // 11 % 1000),
        prompt_tokens=mixed // 13 % 500,
        max_tokens=200,
    )


def _timed(call: Callable[[], object]) -> float:
    start = time.thread_time()
    call()
    return time.thread_time() - start


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
