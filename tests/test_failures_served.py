"""Deaths, hangs and culprits as HTTP clients see them, on worker processes with a fake runner."""

import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from chaos.plant import KILLS
from chaos.poisoned_link import PoisonedLink
from fairstep import EngineConfig
from fairstep.stepping.plan import StepPlan
from fakes_text import FakeTokenizer
from fakes_worker import FakeRunner, fake_build, settings
from live_server import LiveServer

PATH = "/v1/completions"


@pytest.fixture
def server() -> Iterator[LiveServer]:
    config = EngineConfig(worker_timeout=1.0)
    with LiveServer("fake", config, tokenizer=FakeTokenizer(), new_link=PoisonedLink) as server:
        yield server


@pytest.fixture
def client(server: LiveServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=120) as client:
        yield client


def body(*prompt: int, **more: Any) -> dict[str, Any]:
    return {"prompt": list(prompt), "max_tokens": 150, "ignore_eos": True, **more}


def await_health(client: httpx.Client, status: int) -> httpx.Response:
    while (answer := client.get("/health")).status_code != status:
        pass
    return answer


def test_a_culprit_gets_its_own_error_and_is_refused_for_a_while(client: httpx.Client) -> None:
    failed = client.post("/v1/completions", json=body(KILLS, 97))
    assert failed.status_code == 500 and failed.headers["x-should-retry"] == "false"
    assert failed.json()["error"]["code"] == "request_failed_isolated"
    refused = client.post("/v1/completions", json=body(KILLS, 97))
    assert (refused.status_code, refused.json()["error"]["code"]) == (422, "request_quarantined")
    assert 0 < int(refused.headers["retry-after"]) <= 600
    assert client.post("/v1/completions", json=body(97)).status_code == 200
    told = client.get("/metrics").text
    assert 'fairstep:requests_isolated_total{model_name="fake"} 1.0' in told
    assert 'fairstep:worker_deaths_total{model_name="fake"} 2.0' in told


def test_a_stream_that_has_begun_is_told_inside_it(client: httpx.Client) -> None:
    told = client.post("/v1/completions", json=body(KILLS, 97, stream=True))
    assert told.status_code == 200 and '"text":"a' in told.text
    assert "request_failed_isolated" in told.text and told.text.endswith("data: [DONE]\n\n")


def test_a_hung_worker_is_told_by_health_and_its_stream_goes_on(server: LiveServer, client: httpx.Client) -> None:
    (link,) = server.engine._crew.links
    assert isinstance(link, PoisonedLink) and link.pid is not None
    os.kill(link.pid, signal.SIGSTOP)
    with ThreadPoolExecutor(1) as pool, httpx.Client(base_url=server.url, timeout=60) as probe:
        answer = pool.submit(client.post, "/v1/completions", json=body(97, stream=True))
        refused = await_health(probe, 503)
        assert "no sign of life" in refused.json()["error"]["message"] and "retry-after" in refused.headers
        await_health(probe, 200)
        told = answer.result().text
    assert '"finish_reason":"length"' in told and told.endswith("data: [DONE]\n\n")


def test_where_a_hung_worker_cannot_be_ended_all_are_told() -> None:
    steps, go_on = iter(range(20)), threading.Event()

    def hang(plan: StepPlan) -> None:
        if next(steps, None) is None:
            go_on.wait()

    build = fake_build(FakeRunner(before=hang), settings(seats=1))
    how: dict[str, Any] = {"in_process": True, "tokenizer": FakeTokenizer(), "build_worker": build}
    config = EngineConfig(worker_timeout=1.0, max_seats=1)
    with LiveServer("fake", config, **how) as server, httpx.Client(base_url=server.url, timeout=60) as client:
        try:
            with ThreadPoolExecutor(1) as pool, client.stream("POST", PATH, json=body(97, stream=True)) as begun:
                lines = begun.iter_lines()
                assert next(lines).startswith("data: {")
                waiting = pool.submit(httpx.post, server.url + PATH, json=body(98), timeout=60)
                told, refused = "".join(lines), waiting.result()
            assert "no sign of life" in told and told.endswith("data: [DONE]")
            assert refused.status_code == 503 and "no sign of life" in refused.json()["error"]["message"]
            assert client.get("/health").status_code == 503
        finally:
            go_on.set()
