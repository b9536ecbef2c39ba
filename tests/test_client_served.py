"""client.py over real sockets: keys, deadlines and retries as the server that refuses them sees them."""

import socket
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from fairstep.client import Attempt, Retry
from fairstep.clock import ManualClock
from fairstep.errors import FairstepError, RateLimited, ServerOverloaded
from fairstep.serving.app import create_app
from fakes_serving import FakeEngine
from raw_http import serving_in_thread

CALLERS, RETRIES = 40, 10
PATH = "/v1/completions"
REFUSALS = [ServerOverloaded("full", 3.0), RateLimited("used up", 3.0)]


class Wire:
    """An engine behind HTTP, and the headers of all that came to it."""

    def __init__(self) -> None:
        self.engine = FakeEngine()
        self.seen: list[Mapping[str, str]] = []
        self._app: ASGIApp = create_app(self.engine)  # type: ignore[arg-type]
        self.url = ""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.seen.append({name.decode(): value.decode() for name, value in scope["headers"]})
        await self._app(scope, receive, send)


@pytest.fixture
def wire() -> Iterator[Wire]:
    wire = Wire()
    with serving_in_thread(wire) as wire.url:
        yield wire


class Caller:
    """Sends with httpx. asked: what each reply asked to wait; waits: what was waited, which takes no time."""

    def __init__(self, wire: Wire, http: httpx.Client, **how: Any) -> None:
        self.asked: list[float] = []
        self.waits: list[float] = []
        self.clock = ManualClock()
        self.retry = Retry(errors=(httpx.TransportError,), sleep=self._sleep, clock=self.clock, **how)
        self._url, self._http = wire.url + PATH, http

    def call(self, **how: Any) -> httpx.Response:
        return self.retry.call(self._send, **how)

    def crowd(self, count: int) -> list[int]:
        """Statuses of so many calls at once."""
        with ThreadPoolExecutor(CALLERS) as pool:
            return [reply.status_code for reply in pool.map(lambda _: self.call(), range(count))]

    def _send(self, attempt: Attempt) -> httpx.Response:
        reply = self._http.post(self._url, json={"prompt": "a", "max_tokens": 3}, headers=dict(attempt.headers))
        if reply.status_code != 200:
            self.asked.append(int(reply.headers["retry-after-ms"]) / 1000)
        return reply

    def _sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.clock.jump(seconds)


@pytest.fixture
def http() -> Iterator[httpx.Client]:
    with httpx.Client(timeout=60, limits=httpx.Limits(max_connections=CALLERS)) as http:
        yield http


def test_ten_answers_to_any_of_the_callers_bring_one_retry(wire: Wire, http: httpx.Client) -> None:
    caller = Caller(wire, http, retries=RETRIES, attempts=RETRIES + 2)
    wire.engine.bug = RateLimited("used up", 3.0)
    assert caller.crowd(CALLERS) == [429] * CALLERS
    assert len(wire.seen) == CALLERS + RETRIES, "more was sent than the budget holds"
    wire.engine.bug = None
    assert caller.crowd(30) == [200] * 30
    wire.engine.bug = RateLimited("used up", 3.0)
    assert caller.crowd(CALLERS) == [429] * CALLERS
    assert (caller.retry.retried, caller.retry.given_up) == (RETRIES + 3, 2 * CALLERS)


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda refusal: refusal.code)
def test_each_try_has_the_key_and_what_is_left_of_the_deadline(
    wire: Wire, http: httpx.Client, refusal: FairstepError
) -> None:
    caller = Caller(wire, http)
    wire.engine.bug = refusal
    assert caller.call(deadline=600.0, key="mine").status_code != 200
    assert [headers["idempotency-key"] for headers in wire.seen] == ["mine"] * 4
    left = [int(headers["x-deadline-ms"]) for headers in wire.seen]
    ends = [600.0 - sum(caller.waits[:place]) for place in range(4)]
    assert left == pytest.approx([1000 * seconds for seconds in ends], abs=1.1)
    assert len(caller.waits) == 3 and all(map(float.__le__, caller.asked, caller.waits)), "before it was wanted"


def test_nothing_is_sent_that_would_come_after_the_deadline(wire: Wire, http: httpx.Client) -> None:
    caller = Caller(wire, http)
    wire.engine.bug = ServerOverloaded("full", 30.0)
    assert caller.call(deadline=20.0).status_code == 503
    assert len(wire.seen) == 1 and not caller.waits and caller.retry.given_up == 0


def test_waits_without_a_hint_are_spread_over_all_of_the_step(http: httpx.Client) -> None:
    wire = Wire()
    waits: list[float] = []
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # it never listens
        wire.url = f"http://127.0.0.1:{nobody.getsockname()[1]}"
        for _ in range(40):
            caller = Caller(wire, http, attempts=2)
            with pytest.raises(httpx.ConnectError):
                caller.call()
            waits += caller.waits
    assert len(set(waits)) > 30 and min(waits) < 0.15 and 0.35 < max(waits) <= 0.5
