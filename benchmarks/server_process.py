"""`fairstep serve` in a process of its own on a free loopback port, as a person would start it."""

import http.client
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

POLL_SECONDS = 0.02
LIMIT_SECONDS = 300.0
PROMPT = "Tell me a story about a lighthouse. " * 8


class ServerProcess:
    """The server, with the instant of each line it writes. options: of `fairstep serve`, beside model and port."""

    def __init__(self, model: str, *options: str) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        command = [str(Path(sys.executable).with_name("fairstep")), "serve", model, "--port", str(self.port), *options]
        self.started = time.monotonic()
        self._process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        self.pid = self._process.pid
        self.lines: list[tuple[float, str]] = []
        self.first_answer: float | None = None  # 503 most often
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def wait_healthy(self) -> float:
        """Seconds from the command to the first 200."""
        while self.elapsed() < LIMIT_SECONDS:
            if self._process.poll() is not None:
                self._reader.join()
                raise SystemExit("the server ended:\n" + "\n".join(line for _, line in self.lines))
            if self._status() == 200:
                return self.elapsed()
            time.sleep(POLL_SECONDS)
        raise SystemExit(f"no answer from /health within {LIMIT_SECONDS:.0f} s")

    def elapsed(self) -> float:
        return time.monotonic() - self.started

    def ask(self, tokens: int) -> None:
        """One chat request of a fixed length, read to its end."""
        body = {"messages": [{"role": "user", "content": PROMPT}], "max_tokens": tokens, "ignore_eos": True}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LIMIT_SECONDS)
        headers = {"Content-Type": "application/json"}
        connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
        response = connection.getresponse()
        answer = response.read()
        connection.close()
        if response.status != 200:
            raise SystemExit(f"the server answered {response.status}: {answer.decode(errors='replace')}")

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()

    def _status(self) -> int | None:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            connection.request("GET", "/health")
            status = connection.getresponse().status
            self.first_answer = self.first_answer or self.elapsed()
            return status
        except OSError:
            return None
        finally:
            connection.close()

    def _read(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self.lines.append((self.elapsed(), line.rstrip()))


@contextmanager
def serving(model: str, *options: str) -> Iterator[ServerProcess]:
    """A server that ends with the block."""
    server = ServerProcess(model, *options)
    try:
        yield server
    finally:
        server.stop()
