"""A server on the fake model in a process of its own, which tells on demand what it holds: one JSON line for each line
that it is sent. Run as a program."""

import asyncio
import ctypes
import gc
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

QUEUE = 500
SEATS = 32
CONTEXT = 4000
STEP_SECONDS = 0.002
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class CrowdedServer:
    """`held()`: descriptors, tasks, bytes, places at the door, live requests, pages."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self.port = int(self._line())

    def held(self) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        held: dict[str, Any] = json.loads(self._line())
        return held

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()


@contextmanager
def crowded_server() -> Iterator[CrowdedServer]:
    command = [sys.executable, __file__]
    where = Path(__file__).parent
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=where, text=True) as process:
        try:
            yield CrowdedServer(process)
        finally:
            process.kill()


def main() -> None:
    from fairstep.admission.admission import Admission
    from fairstep.admission.bounded_queue import QueueBounds
    from fairstep.admission.limit_store import MemoryLimits
    from fairstep.config import EngineConfig
    from fairstep.stepping.plan import StepPlan
    from fakes_text import FakeTokenizer
    from fakes_worker import FakeRunner, fake_build, settings
    from live_server import LiveServer

    def take_time(plan: StepPlan) -> None:
        time.sleep(STEP_SECONDS)

    own = settings(seats=SEATS, pages=SEATS * CONTEXT // 4, context=CONTEXT, step_tokens=256)
    build = fake_build(ForgetfulRunner(FakeRunner(before=take_time)), own)
    door = Admission(QueueBounds(entries=QUEUE), MemoryLimits())
    config = EngineConfig(max_seats=SEATS)
    how: dict[str, Any] = {"in_process": True, "tokenizer": FakeTokenizer(), "build_worker": build}
    with LiveServer("fake", config, app={"admission": door}, **how) as server:
        print(server.port, flush=True)
        for _ in sys.stdin:
            print(json.dumps(server.call(lambda: held_by(server.engine, door))), flush=True)


def held_by(engine: Any, door: Any) -> dict[str, Any]:
    engine.check()
    door.check()
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    live = engine.live()
    return {
        "descriptors": len(os.listdir("/proc/self/fd")),
        "tasks": len(asyncio.all_tasks()),
        "bytes": int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_BYTES,
        "places": door.live,
        "live": live.running + live.waiting,
        "pages": round(live.kv_usage * live.pages_total),
    }


class ForgetfulRunner:
    """A fake runner that keeps no plans: there would be many."""

    def __init__(self, runner: Any) -> None:
        self._runner = runner

    def launch(self, plan: Any) -> Any:
        handle = self._runner.launch(plan)
        self._runner.plans.clear()
        return handle


if __name__ == "__main__":
    main()
