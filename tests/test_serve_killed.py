"""`fairstep serve` on the real model, killed during a batch and three streams: the next one goes on with all of it."""

import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from test_batches import begin, lines, results, until_ended, upload
from test_responses import events_in, text_of

ROOT = Path(__file__).resolve().parent.parent
LINES = 200
ASKED: list[dict[str, Any]] = [
    {"input": "Tell me about the sea.", "temperature": 0},
    {"input": "Tell me about bread.", "temperature": 0.8, "seed": 5},
    {"input": "Tell me about trees.", "temperature": 1.0, "seed": 6},
]
HEARD = 15  # events, before the kill


@contextmanager
def served(state: Path) -> Iterator[tuple["subprocess.Popen[str]", httpx.Client]]:
    options = ["--port", "0", "--dtype", "float32", "--deterministic", "--state", str(state)]
    command = [sys.executable, str(ROOT / "server.py"), "serve", "smollm2", *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            url = next(found[1] for line in process.stderr if (found := re.search(r"ready: (\S+)/v1", line)))
            threading.Thread(target=process.stderr.read, daemon=True).start()  # so that it never waits for us
            with httpx.Client(base_url=url, timeout=120) as http:
                yield process, http
        finally:
            process.terminate()


def beginning(http: httpx.Client, made: str) -> str:
    """The first events of a stream."""
    heard: list[str] = []
    with http.stream("GET", f"/v1/responses/{made}", params={"stream": "true"}) as stream:
        for line in stream.iter_lines():
            heard.append(line)
            if heard.count("") == HEARD:
                break
    return "\n".join([*heard, ""])


@pytest.mark.real
@pytest.mark.full
def test_a_killed_server_loses_nothing_of_a_batch_and_of_background_streams(tmp_path: Path) -> None:
    bodies = [{**asked, "background": True, "max_output_tokens": 60} for asked in ASKED]
    with served(tmp_path / "control") as (_, http):
        control = [events_in(http.post("/v1/responses", json={**body, "stream": True}).text) for body in bodies]
    with served(tmp_path / "state") as (process, http):
        made = [http.post("/v1/responses", json=body).json()["id"] for body in bodies]
        batch = begin(http, upload(http, lines(LINES, temperature=0)).json()["id"]).json()["id"]
        before = [events_in(beginning(http, each)) for each in made]
        done = http.get(f"/v1/batches/{batch}").json()["request_counts"]["completed"]
        process.kill()
        process.wait()
    print(f"{done} lines were done when it was killed")
    assert done < LINES
    with served(tmp_path / "state") as (_, http):
        for each, heard, whole in zip(made, before, control, strict=True):
            last = heard[-1][1]
            after = http.get(f"/v1/responses/{each}?stream=true", headers={"Last-Event-ID": str(last)})
            events = heard + events_in(after.text)
            assert [number for _, number, _ in events] == list(range(len(events)))
            assert text_of(events) == text_of(whole) and events[-1][0] == whole[-1][0]
        ended = until_ended(http, batch)
        ids = [result["custom_id"] for result in results(http, ended["output_file_id"])]
        assert sorted(ids) == sorted(f"line-{number}" for number in range(LINES))
        assert json.dumps(ended["request_counts"]) == json.dumps({"total": LINES, "completed": LINES, "failed": 0})
