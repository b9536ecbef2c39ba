"""Where each millisecond of a decode step goes, at 1 and at 32 running: model, sampling, and what the engine adds.

Measured in the processes of a real server, which are started with a stopwatch, while so many clients read streams; they
parse nothing, so that they take little. Counted are steps in which all of them decode and nothing else happens; of
those, the middle half by length.
"""

import argparse
import json
import os
import selectors
import shlex
import socket
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import urlsplit

from peer_servers import PeerProcess
from report import emit, table

RUNNING = (1, 32)
GOAL = 0.10  # of a step, at 32 running
IDS = range(64, 320)  # in any vocabulary
CHUNK_BYTES = 1 << 16
PROMPTS_AT_ONCE = "1000000"  # a target that leaves all of a step to them, so that soon all decode
PATIENCE = 120.0  # seconds without a byte
FOLLOWING = 3  # steps after a prompt, or others' end, that are left out
COMPUTES = ("model", "head")
WORKER = {
    "plan": "plan",
    "inputs": "inputs: the plan as tensors, rotary tables",
    "model": "model, all layers, in C++ also logits",
    "head": "model, logits by torch",
    "sampling": "sampling",
    "commit": "commit",
    "report": "report, into the door",
    "door": "orders, out of the door",
    "loop": "waiting, and what joins these",
}
FRONT = {
    "door": "report, out of the door",
    "books": "results: books, prices, meters",
    "detokenise": "detokenise",
    "orders": "orders: who goes next",
    "streams": "streams",
    "events": "events: JSON, SSE, HTTP, socket",
    "event loop": "event loop and tasks",
}
HEADING = ("part", "ms", "processor's ms", "of the step")


@dataclass(frozen=True, slots=True)
class Step:
    """What steps of a kind take in the mean, in seconds: by part the time that went by, and the processor's."""

    count: int
    parts: dict[str, tuple[float, float]]

    @property
    def seconds(self) -> float:
        return sum(wall for wall, _ in self.parts.values())

    @property
    def busy(self) -> float:
        return sum(cpu for _, cpu in self.parts.values())


@dataclass(frozen=True, slots=True)
class Profile:
    """So many running: the worker's steps, and what the front does about each."""

    running: int
    worker: Step
    front: Step

    @property
    def seconds(self) -> float:
        """From step to step."""
        return self.worker.seconds

    @property
    def share_between(self) -> float:
        """Part of a step in which the worker doesn't compute the model."""
        return 1.0 - sum(self.worker.parts.get(part, (0.0, 0.0))[0] for part in COMPUTES) / self.seconds

    @property
    def share(self) -> float:
        """The engine's own part of a step: that, and the processor's time in the front."""
        return self.share_between + self.front.busy / self.seconds


def clients(url: str, running: int, prompt: int, answer: int, random: Random, temperature: float) -> None:
    """So many streams at once, read to their ends. Ends the benchmark if the server refuses one."""
    address = urlsplit(url)
    waiting = selectors.DefaultSelector()
    for _ in range(running):
        connection = socket.create_connection((address.hostname, address.port))
        connection.sendall(_request(random.choices(IDS, k=prompt), answer, temperature))
        waiting.register(connection, selectors.EVENT_READ, [])
    while waiting.get_map():
        ready = waiting.select(PATIENCE)
        if not ready:
            raise SystemExit(f"no answer for {PATIENCE:.0f} s")
        for key, _ in ready:
            data = key.fileobj.recv(CHUNK_BYTES)
            if not key.data and not data.startswith(b"HTTP/1.1 200"):
                raise SystemExit(f"the server answered {data.decode(errors='replace')}")
            key.data.append(data)
            if not data:
                waiting.unregister(key.fileobj)
                key.fileobj.close()


def _request(prompt: Sequence[int], answer: int, temperature: float) -> bytes:
    how = {"max_tokens": answer, "min_tokens": answer, "ignore_eos": True, "temperature": temperature, "stream": True}
    body = json.dumps({"prompt": prompt, **how}).encode()
    head = "POST /v1/completions HTTP/1.1\r\nHost: here\r\nConnection: close\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def measure(args: argparse.Namespace) -> list[Profile]:
    """Each number of clients by turns, so that a slow spell meets all."""
    program = str(Path(__file__).with_name("profiled_server.py"))
    memory = ["--max-seats", str(max(args.running)), "--kv-memory", "1GiB"]
    options = [*memory, "--inter-token-target-ms", PROMPTS_AT_ONCE, *shlex.split(args.serve)]
    random = Random(0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        words = [sys.executable, program, name, "serve", args.model, "--port", "{port}", *options]
        server = PeerProcess("server", words, folder)
        try:
            server.wait_ready()
            for turn in range(1 + args.rounds):
                for running in args.running:
                    answer = args.answer if turn else 8  # the first warms up
                    clients(server.url, running, args.prompt, answer, random, args.temperature)
        finally:
            server.stop()
        worker, front = (json.loads((folder / f"{side}.json").read_text()) for side in ("worker", "front"))
    return [Profile(running, steps(worker, running), steps(front, running)) for running in args.running]


def steps(stretches: Sequence[dict[str, Any]], running: int) -> Step:
    """The middle half, by length, of the steps in which so many decode and nothing else happens."""
    plain = [each["decodes"] == running and not each["prompt_tokens"] for each in stretches]
    steady = [
        each["parts"]
        for place, each in enumerate(stretches)
        if place >= FOLLOWING and all(plain[place - FOLLOWING : place + 1])
    ]
    if not steady:
        raise SystemExit(f"there was no step with {running} running alone: --answer is too short, or memory is")
    steady.sort(key=lambda parts: sum(wall for wall, _ in parts.values()))
    middle = steady[len(steady) // 4 : -(-3 * len(steady) // 4)]
    names = dict.fromkeys(name for parts in middle for name in parts)
    return Step(len(steady), {name: (_mean(middle, name, 0), _mean(middle, name, 1)) for name in names})


def _mean(steady: Sequence[dict[str, Sequence[float]]], name: str, which: int) -> float:
    return statistics.fmean(parts.get(name, (0.0, 0.0))[which] for parts in steady)


def rows(profile: Profile) -> list[tuple[str, ...]]:
    """One a part. The front runs beside the worker: what counts of it is the processor's time.

    The processor's time is that of the one thread: others compute the model, too.
    """
    worker, front = profile.worker.parts, profile.front.parts
    found = [_row(f"worker: {named}", worker[part], profile, 0) for part, named in WORKER.items() if part in worker]
    found.append(("a step", f"{1000 * profile.seconds:.3f}", "", "100.00 %"))
    found += [_row(f"front: {named}", front[part], profile, 1) for part, named in FRONT.items() if part in front]
    return [*found, ("front: waiting", f"{1000 * (profile.front.seconds - profile.front.busy):.3f}", "", "")]


def _row(part: str, times: tuple[float, float], profile: Profile, counts: int) -> tuple[str, ...]:
    times = max(0.0, times[0]), max(0.0, times[1])  # what measuring takes is taken off, on average
    wall = "" if counts else f"{1000 * times[0]:.3f}"
    return part, wall, f"{1000 * times[1]:.3f}", f"{100 * times[counts] / profile.seconds:.2f} %"


def told(profile: Profile) -> str:
    """In words."""
    each = f"{profile.running} running: {1000 * profile.seconds:.2f} ms from step to step"
    own = f"{100 * profile.share_between:.1f} % of it the worker does something else than compute the model"
    return f"{each}; {own}, {100 * profile.share:.1f} % with what the front takes of a processor meanwhile"


def figures(profile: Profile) -> dict[str, Any]:
    """For the row that is kept: milliseconds, and parts of a step."""

    def side(step: Step) -> dict[str, Any]:
        parts = {name: [round(1000 * each, 4) for each in times] for name, times in step.parts.items()}
        return {"steps": step.count, "parts": parts}

    return {
        "running": profile.running,
        "milliseconds": round(1000 * profile.seconds, 4),
        "share_between": round(profile.share_between, 4),
        "share": round(profile.share, 4),
        "worker": side(profile.worker),
        "front": side(profile.front),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", default="smollm2", help="(default: %(default)s)")
    parser.add_argument("--running", type=int, nargs="+", default=RUNNING, help="clients (default: %(default)s)")
    parser.add_argument("--prompt", type=int, default=128, help="tokens of each prompt (default: %(default)s)")
    parser.add_argument("--answer", type=int, default=96, help="tokens of each answer (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each number of clients (default: %(default)s)")
    parser.add_argument("--temperature", type=float, default=0.0, help="0 is greedy (default: %(default)s)")
    parser.add_argument("--serve", default="", metavar="OPTIONS", help="more options of `fairstep serve`, in one word")
    parser.add_argument("--smoke", action="store_true", help="few short answers: does it work at all")
    args = parser.parse_args()
    if args.smoke:
        args.prompt, args.answer, args.rounds, args.running = 8, 24, 1, (1, 4)
    found = measure(args)
    for profile in found:
        print(f"{profile.running} running, {profile.worker.count} steps\n{table(HEADING, rows(profile))}\n")
    print("\n".join(map(told, found)))
    print(f"goal: under {100 * GOAL:.0f} % at 32 running")
    kept = {"prompt": args.prompt, "answer": args.answer, "temperature": args.temperature, "serve": args.serve}
    emit("step_profile", {"model": args.model, "profiles": [*map(figures, found)], **kept, "load": os.getloadavg()})


if __name__ == "__main__":
    main()
