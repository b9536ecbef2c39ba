"""What worker processes cost and bring: one beside a worker in the server's own process, and two on the same machine.

Servers of ours take turns at closed loops and at a neighbour's flood, as in peers.py. One process is to reach nearly
the throughput of none; two are to share as fairly as one.
"""

import argparse
import asyncio
import os
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from http_loads import SMOKE, Sizes
from noisy_neighbour import MOST_TIMES
from peer_servers import Peers
from peers import loads, measure, summed, tables
from report import emit

INSIDE, ONE, TWO = "inside", "one", "two"
OPTIONS = {INSIDE: "--in-process", ONE: "--workers 1", TWO: "--workers 2"}
LEAST_PART = 0.95  # of a worker in the server's process, in tokens a second


def missed(results: dict[str, dict[str, dict[str, Any]]]) -> Iterator[str]:
    """The goals that are missed, in words."""
    for name, rows in results.items():
        if name.startswith("closed"):
            pairs = zip(rows[ONE]["rounds"], rows[INSIDE]["rounds"], strict=True)
            part = median(own["tokens_per_second"] / other["tokens_per_second"] for own, other in pairs)
            if part < LEAST_PART:
                yield f"{name}: one process has {part:.1%} of the tokens/s of none, the goal is {LEAST_PART:.0%}"
        else:
            for server in (ONE, TWO):
                if (times := rows[server]["times"]) > MOST_TIMES:
                    yield f"{name}, {server}: B's first token takes {times:.1f} times as long as alone"


def main() -> None:
    """Run, print a table for each load, end in one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2", help="(default: %(default)s)")
    parser.add_argument("--serve", default="", metavar="OPTIONS", help="more options of `fairstep serve`, in one word")
    parser.add_argument("--clients", nargs="+", type=int, default=[8, 32], help="of the closed loop (default: 8 32)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds at each server (default: %(default)s)")
    parser.add_argument("--smoke", action="store_true", help="one short round: does it work at all")
    args = parser.parse_args()
    if args.smoke:
        args.rounds, args.clients = 1, [2]
    sizes = SMOKE if args.smoke else Sizes()
    busy_before = os.getloadavg()[0]
    with TemporaryDirectory() as folder, Peers(Path(folder)) as servers:
        for name, options in OPTIONS.items():
            servers.start_own(f"{name}={options} {args.serve}", args.model)
        work = loads(("closed", "neighbour"), args.clients, (), sizes)
        told = asyncio.run(measure([*servers], work, args.rounds, sizes))
        started = {server.name: server.started for server in servers}
    results = {name: summed(name, each, INSIDE) for name, each in told.items()}
    print("\n\n".join(tables(results, INSIDE)))
    misses = [] if args.smoke else [*missed(results)]
    for said in misses:
        print(f"missed: {said}")
    about = {"smoke": args.smoke, "options": OPTIONS, "serve": args.serve, "sizes": asdict(sizes), "started": started}
    emit("workers", {**about, "load_before": busy_before, "loads": results, "missed": misses})


if __name__ == "__main__":
    main()
