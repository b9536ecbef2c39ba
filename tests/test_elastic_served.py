"""Workers that come and go over real HTTP: a spare one, one more that comes late, one that is let go under streams."""

import os
import re
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from chaos.poisoned_link import PoisonedLink
from chaos.poisoned_worker import SLOW
from fairstep import EngineConfig
from fairstep.scaling import Scale
from fairstep.stations import Stations
from fakes_text import FakeTokenizer
from fakes_worker import letter
from live_server import LiveServer

ANSWER = 150
TEXT = bytes(letter(place) for place in range(ANSWER)).decode()


def serving(**config: Any) -> LiveServer:
    return LiveServer("fake", EngineConfig(**config), tokenizer=FakeTokenizer(), new_link=PoisonedLink)


def ask(client: httpx.Client, first: int, **more: Any) -> httpx.Response:
    body = {"prompt": [first, 97], "max_tokens": ANSWER, "ignore_eos": True, **more}
    return client.post("/v1/completions", json=body)


def gauge(client: httpx.Client, name: str) -> float:
    found = re.search(rf'^fairstep:{name}{{model_name="fake"}} (.+)$', client.get("/metrics").text, re.MULTILINE)
    assert found, f"no {name}"
    return float(found[1])


def until(holds: Callable[[], bool]) -> None:
    while not holds():
        time.sleep(0.01)


def stations(server: LiveServer) -> Stations:
    return server.engine._started()._workers.stations


def pid_of(server: LiveServer, number: int) -> int:
    """Of the worker that takes part under this number."""
    link = server.engine._crew._by_number[number].link
    assert isinstance(link, PoisonedLink) and link.pid is not None
    return link.pid


def test_a_spare_worker_takes_over_without_a_start() -> None:
    with serving(spare=True) as server, httpx.Client(base_url=server.url, timeout=120) as client:
        until(lambda: gauge(client, "workers_spare") == 1)
        with ThreadPoolExecutor(4) as pool:
            answers = [pool.submit(ask, client, SLOW) for _ in range(4)]
            until(lambda: gauge(client, "num_requests_running") == 4)
            os.kill(pid_of(server, 0), signal.SIGKILL)
            until(lambda: gauge(client, "worker_deaths_total") == 1)
            assert client.get("/health").status_code == 200, "the spare one is there at once"
            told = [answer.result() for answer in answers]
        assert [(each.status_code, each.json()["choices"][0]["text"]) for each in told] == [(200, TEXT)] * 4
        until(lambda: gauge(client, "workers_spare") == 1)
        assert (gauge(client, "workers_ready"), gauge(client, "worker_load_seconds_count")) == (1, 3)
        server.call(server.engine.check)


def test_what_waits_for_long_brings_a_second_worker_and_it_goes_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairstep.scaling.HOLD", 1.0)
    with serving(workers="1:2", max_seats=2) as server, httpx.Client(base_url=server.url, timeout=120) as client:
        assert (gauge(client, "workers_ready"), gauge(client, "desired_workers")) == (1, 1)
        with ThreadPoolExecutor(16) as pool:
            answers = [pool.submit(ask, client, SLOW) for _ in range(16)]
            until(lambda: gauge(client, "desired_workers") > 1)
            until(lambda: gauge(client, "workers_ready") == 2)
            pids = {number: pid_of(server, number) for number in (0, 1)}
            told = [answer.result() for answer in answers]
        assert [(each.status_code, each.json()["choices"][0]["text"]) for each in told] == [(200, TEXT)] * 16
        until(lambda: gauge(client, "workers_ready") == 1)
        (gone,) = {0, 1} - set(server.engine._crew._by_number)
        until(lambda: not os.path.exists(f"/proc/{pids[gone]}"))
        assert gauge(client, "worker_deaths_total") == 0 and ask(client, 97).status_code == 200
        server.call(server.engine.check)


def test_a_worker_that_is_let_go_ends_its_streams_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Scale, "follow", lambda self, wished, now: 2 if server.engine.live().running < 4 else 1)
    with serving(workers="2:3", max_seats=2) as server, httpx.Client(base_url=server.url, timeout=120) as client:
        until(lambda: gauge(client, "workers_ready") == 2)
        with ThreadPoolExecutor(4) as pool:
            answers = [pool.submit(ask, client, SLOW) for _ in range(4)]
            until(lambda: server.call(lambda: any(each.leaves for each in stations(server))))
            told = [answer.result() for answer in answers]
        assert [each.json()["choices"][0]["text"] for each in told] == [TEXT] * 4
        assert gauge(client, "worker_deaths_total") == 0 and gauge(client, "worker_load_seconds_count") >= 2
        server.call(server.engine.check)
