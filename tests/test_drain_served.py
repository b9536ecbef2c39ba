"""`fairstep serve` told to end while a stream is under way: new work is refused, the stream is told, the status 0."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from tiny_models import tiny_llama

ROOT = Path(__file__).resolve().parent.parent
BODY = {"prompt": [5, 6, 7], "max_tokens": 400, "ignore_eos": True, "stream": True}
OPTIONS = ("--port", "0", "--drain-seconds", "0.5", "--kv-memory", "8MiB", "--threads", "1", "--max-seats", "4")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The process, and where it listens."""
    command = [sys.executable, str(ROOT / "server.py"), "serve", str(tiny_llama(tmp_path / "tiny")), *OPTIONS]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            ready = next(found for line in process.stderr if (found := re.search(r"ready: (http.*)/v1", line)))
            yield process, ready[1]
        finally:
            process.kill()


def test_a_signal_ends_it_in_order(server: tuple[subprocess.Popen[str], str]) -> None:
    process, url = server
    (worker,) = psutil.Process(process.pid).children()
    with httpx.Client(base_url=url, timeout=60) as client, httpx.Client(base_url=url, timeout=60) as other:
        assert other.get("/health").status_code == 200
        with client.stream("POST", "/v1/completions", json=BODY) as answer:
            lines = answer.iter_lines()
            assert next(lines).startswith("data: {")
            os.kill(worker.pid, signal.SIGSTOP)  # so that the stream cannot end by itself
            os.kill(process.pid, signal.SIGTERM)
            while (told := other.get("/health")).status_code == 200:
                pass
            assert told.status_code == 503 and "shutting down" in told.text
            refused = other.post("/v1/completions", json=BODY)
            assert refused.status_code == 503 and int(refused.headers["retry-after"]) > 0
            rest = list(lines)
        assert "shutting down" in "".join(rest) and rest[-2] == "data: [DONE]"
    assert process.wait(60) == 0
