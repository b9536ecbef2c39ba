"""From the command to the first 200 of /health, part by part, and the memory while serving.

Each run starts `fairstep serve` as a person would, on files the system has read before. Front and worker load side by
side, so the parts do not add up to the total. Memory is taken in a run of its own: reading it costs time.
"""

import argparse
import re
import statistics
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from process_tree import tree_pss
from report import emit, table
from server_process import POLL_SECONDS, serving

MEMORY_SECONDS = 0.1
LOADED = re.compile(r"loaded in ([\d.]+) s \((.*)\)")


def time_start(model: str) -> dict[str, float]:
    """Seconds by part of one start; `total` is what a person waits."""
    with serving(model) as server:
        total = server.wait_healthy()
        while not any(line.startswith("ready:") for _, line in list(server.lines)):
            time.sleep(POLL_SECONDS)
    assert server.first_answer is not None
    return {
        "process start, imports, bind": server.lines[0][0],
        "first answer of any kind": server.first_answer,
        **loading_parts(server.lines),
        "total": total,
    }


def loading_parts(lines: list[tuple[float, str]]) -> dict[str, float]:
    """The parts that the server itself tells: `loaded in 4.10 s (tokenizer 1.20, weights 0.80)`."""
    for _, line in lines:
        if found := LOADED.search(line):
            parts = (part.rsplit(" ", 1) for part in found[2].split(", "))
            return {**{name: float(seconds) for name, seconds in parts}, "all of loading": float(found[1])}
    raise SystemExit("the server told no loading times")


def measure_memory(model: str, requests: int, tokens: int) -> dict[str, float]:
    """Peak PSS in MiB while loading and while serving some requests at once."""
    with serving(model) as server:
        with sampled_pss(server.pid) as loading:
            server.wait_healthy()
        with sampled_pss(server.pid) as busy, ThreadPoolExecutor(requests) as pool:
            list(pool.map(server.ask, [tokens] * requests))
    return {"loading": max(loading) / 1024**2, "serving": max(busy) / 1024**2}


@contextmanager
def sampled_pss(pid: int) -> Iterator[list[int]]:
    """Samples of the tree's PSS, taken until the block ends."""
    samples = [tree_pss(pid)]
    done = threading.Event()

    def sample() -> None:
        while not done.wait(MEMORY_SECONDS):
            samples.append(tree_pss(pid))

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield samples
    finally:
        done.set()
        thread.join()


def main() -> None:
    """Run, print two tables, end in one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--runs", type=int, default=5, help="starts to time (default 5)")
    parser.add_argument("--requests", type=int, default=8, help="requests at once while memory is taken (default 8)")
    parser.add_argument("--tokens", type=int, default=64, help="tokens of each answer (default 64)")
    parser.add_argument("--smoke", action="store_true", help="one start and two short answers: does it work at all")
    args = parser.parse_args()
    runs, requests, tokens = (1, 2, 4) if args.smoke else (args.runs, args.requests, args.tokens)

    starts = [time_start(args.model) for _ in range(runs)]
    medians = {part: statistics.median(start[part] for start in starts) for part in starts[0]}
    rows = [(part, f"{medians[part]:.2f}", f"{max(start[part] for start in starts):.2f}") for part in medians]
    print(table(("start-up, seconds", "median", "worst"), rows))
    memory = measure_memory(args.model, requests, tokens)
    print(table(("\npeak PSS, MiB", "peak"), [(part, f"{mib:.0f}") for part, mib in memory.items()]))
    figures = {
        "model": args.model,
        "runs": runs,
        "seconds": {part: round(seconds, 3) for part, seconds in medians.items()},
        "totals": [round(start["total"], 3) for start in starts],
        "peak_pss_mib": {part: round(mib, 1) for part, mib in memory.items()},
        "requests": requests,
        "tokens": tokens,
    }
    emit("startup", figures)


if __name__ == "__main__":
    main()
