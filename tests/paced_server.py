"""A server in a process of its own that can be killed, and whose steps wait to be let through: tests decide how far it
is. Run as a program it serves the fake model, with its state in a folder."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

TOKEN = b"."


class PacedServer:
    """`step()` lets so many steps through; `free()` all of them."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process
        assert process.stdout is not None
        self.url = process.stdout.readline().decode().strip()

    def step(self, count: int = 1) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(TOKEN * count)
        self._process.stdin.flush()

    def free(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


@contextmanager
def paced_server(state: Path) -> Iterator[PacedServer]:
    command = [sys.executable, __file__, str(state)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=Path(__file__).parent) as process:
        try:
            yield PacedServer(process)
        finally:
            process.kill()


def main(folder: Path) -> None:
    from fairstep.stepping.plan import StepPlan
    from fairstep.stores.state import State
    from fakes_text import FakeTokenizer
    from fakes_worker import FakeRunner, fake_build
    from live_server import LiveServer

    def wait(plan: StepPlan) -> None:
        sys.stdin.buffer.read(1)  # nothing once it is closed

    build = fake_build(FakeRunner(before=wait))
    with LiveServer(
        "fake", app={"state": State(folder)}, in_process=True, tokenizer=FakeTokenizer(), build_worker=build
    ) as server:
        print(server.url, flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
