"""client.py: what is tried again, when, and how often in all."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, repeat
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairstep.client import Attempt, Retry, hinted
from fairstep.clock import ManualClock
from fairstep.errors import Overloaded
from fairstep.serving.app import create_app
from fakes_serving import FakeEngine
from raw_http import serving_in_thread


class Answer:
    """A reply."""

    def __init__(self, status_code: int, **headers: str) -> None:
        self.status_code = status_code
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


class Server:
    """Gives one reply or error after another, the last one for ever."""

    def __init__(self, *answers: Answer | Exception) -> None:
        self._answers = chain(answers[:-1], repeat(answers[-1]))
        self.seen: list[Attempt] = []

    def __call__(self, attempt: Attempt) -> Answer:
        self.seen.append(attempt)
        answer = next(self._answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def asynchronously(self, attempt: Attempt) -> Answer:
        return self(attempt)


class Waits(list[float]):
    """Every wait, none of which is waited for."""

    def retry(self, **how: Any) -> Retry:
        async def asleep(seconds: float) -> None:
            self.append(seconds)

        return Retry(sleep=self.append, asleep=asleep, **how)


@pytest.fixture
def waits() -> Waits:
    return Waits()


def most(least: float, most: float) -> float:
    return most


Ask = Callable[..., Answer]


@pytest.fixture(params=["sync", "async"])
def ask(request: pytest.FixtureRequest) -> Ask:
    """Retry.call, or Retry.acall on a loop."""

    def call(retry: Retry, server: Server, **how: Any) -> Answer:
        if request.param == "sync":
            return retry.call(server, **how)
        return asyncio.run(retry.acall(server.asynchronously, **how))

    return call


@pytest.mark.parametrize("status", [200, 400, 401, 404, 422, 501])
def test_what_time_does_not_change_is_returned_at_once(status: int, ask: Ask) -> None:
    server = Server(Answer(status))
    assert ask(Waits().retry(), server).status_code == status and len(server.seen) == 1


@pytest.mark.parametrize("first", [Answer(429), Answer(503), Answer(500), Answer(409), ConnectionResetError("gone")])
def test_what_may_work_later_is_tried_again_with_the_same_key(first: Any, ask: Ask, waits: Waits) -> None:
    server = Server(first, first, Answer(200))
    assert ask(waits.retry(uniform=most), server).status_code == 200
    assert len({attempt.headers["Idempotency-Key"] for attempt in server.seen}) == 1
    assert [attempt.number for attempt in server.seen] == [1, 2, 3]
    assert waits == [0.5, 1.0]


def test_the_servers_word_wins_over_the_status(ask: Ask) -> None:
    assert len(_seen(ask, Answer(503, x_should_retry="false"))) == 1
    assert len(_seen(ask, Answer(404, x_should_retry="true"))) == 4


def _seen(ask: Ask, answer: Answer) -> list[Attempt]:
    server = Server(answer)
    ask(Waits().retry(), server)
    return server.seen


def test_the_last_reply_or_error_is_what_the_caller_gets(ask: Ask) -> None:
    assert ask(Waits().retry(attempts=2), Server(Answer(503))).status_code == 503
    with pytest.raises(ConnectionRefusedError):
        ask(Waits().retry(), Server(ConnectionRefusedError("nobody")))
    with pytest.raises(KeyError):  # none of the errors that mean that no answer came
        ask(Waits().retry(), Server(KeyError("bug"), Answer(200)))


def test_no_try_comes_before_the_server_wants_it(ask: Ask, waits: Waits) -> None:
    ask(
        waits.retry(),
        Server(Answer(429, retry_after="7", retry_after_ms="6500"), Answer(503, retry_after="3"), Answer(200)),
    )
    assert waits == [6.5, 3.0]


@pytest.mark.parametrize(
    ("headers", "seconds"), [({}, 0), ({"retry-after": "Tue, 1 Dec 2026"}, 0), ({"retry-after": "-1"}, 0)]
)
def test_a_hint_that_is_no_number_is_none(headers: dict[str, str], seconds: float) -> None:
    assert hinted(headers) == seconds


def test_the_deadline_is_told_and_nothing_is_tried_after_it(ask: Ask, waits: Waits) -> None:
    clock = ManualClock()

    class Slow(Server):
        def __call__(self, attempt: Attempt) -> Answer:
            clock.jump(4.0)
            return super().__call__(attempt)

    server = Slow(Answer(503))
    assert ask(waits.retry(clock=clock, uniform=most, attempts=9), server, deadline=9.0).status_code == 503
    assert [attempt.headers["X-Deadline-Ms"] for attempt in server.seen] == ["9000", "5000"]
    assert [attempt.seconds for attempt in server.seen] == [9.0, 5.0]
    assert waits == [0.5]
    assert "X-Deadline-Ms" not in _seen(ask, Answer(200))[0].headers


def test_a_key_can_be_given(ask: Ask) -> None:
    server = Server(Answer(200))
    ask(Waits().retry(), server, key="mine")
    assert server.seen[0].headers["Idempotency-Key"] == "mine"


@given(st.lists(st.booleans(), max_size=200), st.integers(0, 5))
def test_all_calls_together_retry_once_for_ten_completions(outcomes: list[bool], retries: int) -> None:
    retry, tries = Waits().retry(retries=retries, attempts=3), 0
    for fine in outcomes:
        server = Server(Answer(200 if fine else 503))
        retry.call(server)
        tries += len(server.seen)
    assert tries == len(outcomes) + retry.retried
    assert retry.retried <= retries + sum(outcomes) // 10


def test_waits_are_spread_over_all_of_the_step(ask: Ask, waits: Waits) -> None:
    for _ in range(40):
        ask(waits.retry(attempts=2), Server(Answer(503)))
    assert len(set(waits)) > 30 and min(waits) < 0.15 and 0.35 < max(waits) <= 0.5


def test_over_http_a_refusal_is_waited_out_and_the_answer_comes_once() -> None:
    engine = FakeEngine()
    engine.bug = Overloaded("full")
    body = {"messages": [{"role": "user", "content": "hi"}]}
    with serving_in_thread(create_app(engine)) as url, httpx.Client() as http:
        statuses = []

        def send(attempt: Attempt) -> httpx.Response:
            reply = http.post(f"{url}/v1/chat/completions", json=body, headers=dict(attempt.headers))
            statuses.append(reply.status_code)
            engine.bug = None
            return reply

        retry = Waits().retry(errors=(httpx.TransportError,))
        first = retry.call(send, deadline=60, key="one")
        assert (statuses, first.status_code) == ([503, 200], 200)
        assert retry.call(send, deadline=60, key="one").json() == first.json()


def test_over_http_many_callers_of_an_overloaded_server_share_one_budget() -> None:
    engine = FakeEngine()
    engine.bug = Overloaded("full")
    body = {"messages": [{"role": "user", "content": "hi"}]}
    callers, retries = 40, 5
    with serving_in_thread(create_app(engine)) as url, httpx.Client() as http:
        sent = []

        def send(attempt: Attempt) -> httpx.Response:
            sent.append(attempt.headers["Idempotency-Key"])
            return http.post(f"{url}/v1/chat/completions", json=body, headers=dict(attempt.headers))

        waits = Waits()
        retry = waits.retry(errors=(httpx.TransportError,), retries=retries, attempts=2 + retries)
        with ThreadPoolExecutor(8) as pool:
            replies = list(pool.map(lambda _: retry.call(send), range(callers)))
        assert {reply.status_code for reply in replies} == {503}
        assert len(sent) == len(engine.turned_away) == callers + retries, "a storm of retries"
        assert len(set(sent)) == callers and (retry.retried, retry.given_up) == (retries, callers)
        hints = [float(reply.headers["retry-after"]) for reply in replies]
        assert len(waits) == retries and min(waits) >= 0.8 * min(hints) > 0.0
