"""Places of HTTP requests: taken before anything is computed, and given back however a request ends."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from fairstep.admission.admission import Admission
from fairstep.admission.bounded_queue import NONE, QueueBounds
from fairstep.admission.deadlines import LatencyTarget
from fairstep.admission.forecast import Forecast, Prospect
from fairstep.admission.limit_store import Draw, MemoryLimits
from fairstep.admission.limits import Limit
from fairstep.admission.month import month_of
from fairstep.clock import wall_time
from fairstep.config import ServeConfig
from fairstep.errors import StoreFailed
from fairstep.serving.app import create_app
from fairstep.serving.tenant_book import TenantBook
from fairstep.serving.terms_of_use import admission_of
from fairstep.tenants import Tenants, TenantTerms, TierTerms, digest_of
from fakes_serving import FakeEngine, client_of, events_of, run
from raw_http import serving

HI = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 5}
CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
LIMITS = (
    Limit(what="tokens", per="minute", amount=1000),
    Limit(what="requests", per="minute", amount=10),
    Limit(what="tokens", per="month", amount=10_000),
)
ACME = TenantTerms("acme", limits=LIMITS, batch_tier=1)
BETA = TenantTerms("beta", max_concurrent=1)


def book_of(*tenants: TenantTerms) -> TenantBook:
    """Each tenant's key is its name; no key is needed to be anonymous."""
    book = TenantBook()
    book._current = Tenants(tenants=tenants, keys={digest_of(each.name): each for each in tenants})
    return book


def key(name: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {name}"}


def door(entries: int = 100, **bounds: Any) -> Admission:
    return Admission(QueueBounds(entries=entries, **bounds), MemoryLimits())


def assert_nothing_is_left(admission: Admission, *, owed: tuple[int, int] = (0, 0)) -> None:
    """owed: tokens and requests that acme has used of its minute."""
    admission.check()
    assert (admission.live, admission.waiting) == (0, NONE)
    assert tuple(round(admission.owed("acme", limit, 0.0)) for limit in LIMITS[:2]) == owed


async def asked_for(engine: FakeEngine, requests: int) -> None:
    await engine.until(lambda: len(engine.asked) >= requests)


def test_an_answer_costs_what_it_used() -> None:
    async def test() -> None:
        admission = door()
        async with client_of(create_app(FakeEngine(), tenants=book_of(ACME), admission=admission)) as client:
            for number, more in enumerate(({}, {"stream": True})):
                reply = await client.post(COMPLETIONS, json={"prompt": "ab", **more}, headers=key("acme"))
                assert reply.status_code == 200
                prompt, outputs = 3, 3  # with BOS
                assert_nothing_is_left(admission, owed=((prompt + outputs) * (number + 1), number + 1))

    run(test)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"prompt": 3}, 400),
        ({"prompt": "a", "model": "another"}, 404),
        ({"prompt": "a", "deadline_ms": 0}, 400),
        ({"prompt": "a" * 500}, 400),
        ({"prompt": [10**6]}, 400),
    ],
)
def test_a_refused_body_holds_and_costs_nothing(body: dict[str, Any], status: int) -> None:
    async def test() -> None:
        admission = door()
        async with client_of(create_app(FakeEngine(), tenants=book_of(ACME), admission=admission)) as client:
            assert (await client.post(COMPLETIONS, json=body, headers=key("acme"))).status_code == status
        assert_nothing_is_left(admission)

    run(test)


@pytest.mark.parametrize("stream", [False, True])
def test_an_engine_that_fails_takes_nothing(stream: bool) -> None:
    async def test() -> None:
        for break_it in (_bug, _dead):
            engine, admission = FakeEngine(), door()
            break_it(engine)
            async with client_of(create_app(engine, tenants=book_of(ACME), admission=admission)) as client:
                reply = await client.post(CHAT, json={**HI, "stream": stream}, headers=key("acme"))
                assert reply.status_code >= 500
            assert_nothing_is_left(admission)

    run(test)


def _bug(engine: FakeEngine) -> None:
    engine.bug = RuntimeError("a bug")


def _dead(engine: FakeEngine) -> None:
    engine.failure = "the worker was killed"


@pytest.mark.parametrize("stream", [False, True])
def test_what_a_client_cuts_counts_what_came_of_it(stream: bool) -> None:
    async def test() -> None:
        engine, admission = FakeEngine(held=True), door()
        app = create_app(engine, tenants=book_of(ACME), admission=admission)
        async with serving(app) as server, httpx.AsyncClient(base_url=server.url) as client:
            waiting = asyncio.create_task(client.post(CHAT, json={**HI, "stream": stream}, headers=key("acme")))
            await asked_for(engine, 1)
            waiting.cancel()
            await engine.until(lambda: len(engine.cancelled) == 1)
            await _until(lambda: admission.live == 0)
            assert_nothing_is_left(admission, owed=(0, 1))

            waiting = asyncio.create_task(client.post(CHAT, json={**HI, "stream": stream}, headers=key("acme")))
            await asked_for(engine, 2)
            engine.say(engine.asked[1], "x")
            await _until(lambda: admission.waiting == NONE)  # it has begun
            waiting.cancel()
            await engine.until(lambda: len(engine.cancelled) == 2)
            await _until(lambda: admission.live == 0)
            assert_nothing_is_left(admission, owed=(len(engine.asked[1].prompt_ids) + 1, 2))

    run(test)


async def _until(predicate: Callable[[], bool]) -> None:
    """The test's own time limit ends it."""
    while not predicate():
        await asyncio.sleep(0)


def test_a_client_that_goes_while_its_prompt_is_tokenized_holds_nothing() -> None:
    async def test() -> None:
        engine, admission = FakeEngine(), door()
        engine.encoding = asyncio.Event()
        async with (
            serving(create_app(engine, tenants=book_of(ACME), admission=admission)) as server,
            httpx.AsyncClient(base_url=server.url) as client,
        ):
            waiting = asyncio.create_task(client.post(CHAT, json=HI, headers=key("acme")))
            await engine.encoding.wait()
            assert admission.live == 1
            waiting.cancel()
            await _until(lambda: admission.live == 0)
            # it took nothing of the limits yet
            assert_nothing_is_left(admission)

    run(test)


def test_a_full_queue_is_503_with_when_to_come_back_for_who_is_alone() -> None:
    async def test() -> None:
        engine, admission = FakeEngine(held=True), door(1)
        async with client_of(create_app(engine, admission=admission)) as client:
            waiting = asyncio.create_task(client.post(CHAT, json=HI))
            await asked_for(engine, 1)
            refused = await client.post(CHAT, json=HI)
            assert refused.status_code == 503 and refused.json()["error"]["code"] == "server_overloaded"
            assert 1 <= int(refused.headers["retry-after"]) < 120 and int(refused.headers["retry-after-ms"]) >= 1000
            engine.answer(engine.asked[0])
            assert (await waiting).status_code == 200
            engine.held = False
            assert (await client.post(CHAT, json=HI)).status_code == 200
        assert_nothing_is_left(admission)

    run(test)


@pytest.mark.parametrize("bounds", [{"tokens": 12}, {"bytes": 150}])
def test_the_queue_is_bounded_in_tokens_and_bytes(bounds: dict[str, int]) -> None:
    async def test() -> None:
        engine, admission = FakeEngine(held=True), door(**bounds)
        body = {"prompt": [5] * 8, "user": "x" * 60}
        async with client_of(create_app(engine, admission=admission)) as client:
            waiting = asyncio.create_task(client.post(COMPLETIONS, json=body))
            await asked_for(engine, 1)
            assert (await client.post(COMPLETIONS, json=body)).status_code == 503
            engine.answer(engine.asked[0])
            assert (await waiting).status_code == 200
        assert_nothing_is_left(admission)

    run(test)


def test_what_has_begun_leaves_the_queue() -> None:
    async def test() -> None:
        engine, admission = FakeEngine(held=True), door(1)
        async with client_of(create_app(engine, admission=admission)) as client:
            first = asyncio.create_task(client.post(CHAT, json=HI))
            await asked_for(engine, 1)
            engine.say(engine.asked[0], "x")
            await _until(lambda: admission.waiting == NONE)
            second = asyncio.create_task(client.post(CHAT, json=HI))
            await asked_for(engine, 2)
            assert (admission.live, admission.waiting.entries) == (2, 1)
            for asked in engine.asked:
                engine.answer(asked)
            assert {(await first).status_code, (await second).status_code} == {200}
        assert_nothing_is_left(admission)

    run(test)


@pytest.mark.parametrize("stream", [False, True])
def test_another_tenants_newcomer_puts_the_newest_of_a_flood_out_with_503(stream: bool) -> None:
    async def test() -> None:
        engine, admission = FakeEngine(held=True), door(3)
        body = {**HI, "stream": stream}
        async with client_of(create_app(engine, tenants=book_of(ACME, BETA), admission=admission)) as client:
            flood = []
            for number in range(3):
                flood.append(asyncio.create_task(client.post(CHAT, json=body, headers=key("acme"))))
                await asked_for(engine, number + 1)
            small = asyncio.create_task(client.post(CHAT, json=body, headers=key("beta")))
            out = await flood[2]
            assert out.status_code == 503 and out.json()["error"]["code"] == "server_overloaded"
            assert engine.cancelled == [engine.asked[2].stream.request_id]
            await asked_for(engine, 4)
            admission.check()
            for asked in (engine.asked[0], engine.asked[1], engine.asked[3]):
                engine.answer(asked)
            assert [(await each).status_code for each in (*flood[:2], small)] == [200, 200, 200]
        prompt = len(engine.asked[0].prompt_ids)
        assert_nothing_is_left(admission, owed=(2 * (prompt + 3), 2))

    run(test)


def test_a_stream_that_has_begun_is_never_put_out() -> None:
    async def test() -> None:
        engine, admission = FakeEngine(held=True), door(2)
        body = {**HI, "stream": True}
        async with client_of(create_app(engine, tenants=book_of(ACME, BETA), admission=admission)) as client:
            flood = []
            for number in range(2):
                flood.append(asyncio.create_task(client.post(CHAT, json=body, headers=key("acme"))))
                await asked_for(engine, number + 1)
            engine.say(engine.asked[1], "x")
            await _until(lambda: admission.waiting.entries == 1)
            small = asyncio.create_task(client.post(CHAT, json=body, headers=key("beta")))
            await asked_for(engine, 3)
            assert engine.cancelled == []
            for asked in engine.asked:
                engine.answer(asked)
            assert [(await each).status_code for each in (*flood, small)] == [200, 200, 200]

    run(test)


def test_max_concurrent_refuses_the_next_on_arrival() -> None:
    async def test() -> None:
        engine, admission = FakeEngine(held=True), door()
        async with client_of(create_app(engine, tenants=book_of(BETA), admission=admission)) as client:
            first = asyncio.create_task(client.post(CHAT, json=HI, headers=key("beta")))
            await asked_for(engine, 1)
            refused = await client.post(CHAT, json=HI, headers=key("beta"))
            assert refused.status_code == 429 and refused.json()["error"]["code"] == "concurrency_limit_exceeded"
            engine.answer(engine.asked[0])
            assert (await first).status_code == 200

    run(test)


def test_what_is_asked_of_all_prompts_is_reserved_together() -> None:
    async def test() -> None:
        engine, admission = FakeEngine(held=True), door()
        async with client_of(create_app(engine, tenants=book_of(ACME), admission=admission)) as client:
            body = {"prompt": [[5, 6], [7, 8, 9]], "n": 2, "max_tokens": 10}
            waiting = asyncio.create_task(client.post(COMPLETIONS, json=body, headers=key("acme")))
            await asked_for(engine, 4)
            assert round(admission.owed("acme", LIMITS[0], 0.0)) == 5 + 4 * 10
            assert admission.waiting.entries == 4 and admission.waiting.tokens == 5
            for asked in engine.asked:
                engine.answer(asked)
            assert (await waiting).status_code == 200
        assert_nothing_is_left(admission, owed=(5 + 4 * 3, 1))

    run(test)


def test_a_tenants_usual_answers_are_reserved_once_they_are_known() -> None:
    async def test() -> None:
        engine, admission = FakeEngine(), door()
        async with client_of(create_app(engine, tenants=book_of(ACME), admission=admission)) as client:
            await client.post(COMPLETIONS, json={"prompt": [5]}, headers=key("acme"))
            engine.held = True
            waiting = asyncio.create_task(
                client.post(COMPLETIONS, json={"prompt": [5], "max_tokens": 150}, headers=key("acme"))
            )
            await asked_for(engine, 2)
            assert round(admission.owed("acme", LIMITS[0], 0.0)) == (1 + 3) + (1 + 3)
            engine.answer(engine.asked[1])
            await waiting

    run(test)


def test_month_counts_that_are_used_up_are_429_and_not_to_be_retried() -> None:
    async def test() -> None:
        store = MemoryLimits()
        month = month_of(wall_time()).number
        store.add([Draw("acme", LIMITS[2].counted, month + later, 10_000, 10_000) for later in (0, 1)])
        admission = Admission(QueueBounds(), store)
        async with client_of(create_app(FakeEngine(), tenants=book_of(ACME), admission=admission)) as client:
            refused = await client.post(CHAT, json=HI, headers=key("acme"))
            assert refused.status_code == 429 and refused.json()["error"]["code"] == "insufficient_quota"
            assert refused.headers["x-should-retry"] == "false" and "retry-after" not in refused.headers
        assert_nothing_is_left(admission)

    run(test)


def test_counts_that_cannot_be_kept_are_503() -> None:
    class Broken(MemoryLimits):
        def take(self, draws: Any) -> Any:
            raise StoreFailed("the disk is full")

    async def test() -> None:
        admission = Admission(QueueBounds(), Broken())
        async with client_of(create_app(FakeEngine(), tenants=book_of(ACME), admission=admission)) as client:
            refused = await client.post(CHAT, json=HI, headers=key("acme"))
            assert refused.status_code == 503 and refused.json()["error"]["code"] == "store_failed"
            assert refused.headers["retry-after"]
        assert_nothing_is_left(admission)

    run(test)


@pytest.mark.parametrize(
    ("tier", "number"), [("flex", 1), ("batch", 1), ("auto", 0), ("default", 0), (None, 0), ("priority", None)]
)
def test_the_class_of_work_is_the_tenants_batch_tier(tier: str | None, number: int | None) -> None:
    async def test() -> None:
        engine = FakeEngine()
        async with client_of(create_app(engine, tenants=book_of(ACME))) as client:
            reply = await client.post(CHAT, json={**HI, "service_tier": tier}, headers=key("acme"))
            if number is None:
                assert reply.status_code == 400 and reply.json()["error"]["param"] == "service_tier"
            else:
                assert reply.status_code == 200 and engine.asked[0].how["terms"].tier == number

    run(test)


def test_deadlines_reach_the_engine_as_instants_of_its_clock() -> None:
    async def test() -> None:
        engine = FakeEngine()
        async with client_of(create_app(engine)) as client:
            await client.post(CHAT, json={**HI, "deadline_ms": 1500, "ttft_deadline_ms": 250})
            await client.post(CHAT, json={**HI, "deadline_ms": 1500}, headers={"X-Deadline-Ms": "900"})
            await client.post(CHAT, json=HI)
        told = [(asked.how["deadline"], asked.how["ttft_deadline"]) for asked in engine.asked]
        assert told == [(1.5, 0.25), (0.9, None), (None, None)]

    run(test)


@pytest.mark.parametrize(
    ("body", "headers", "code"),
    [
        ({"deadline_ms": 0}, {}, "deadline_impossible"),
        ({"ttft_deadline_ms": -3}, {}, "deadline_impossible"),
        ({}, {"X-Deadline-Ms": "0"}, "deadline_impossible"),
        ({"deadline_ms": "10"}, {}, "invalid_request"),
        ({}, {"X-Deadline-Ms": "soon"}, "invalid_request"),
        ({}, {"X-Deadline-Ms": "nan"}, "invalid_request"),
        ({}, {"X-Deadline-Ms": ""}, "invalid_request"),
    ],
)
def test_wrong_and_impossible_deadlines_are_400(body: dict[str, Any], headers: dict[str, str], code: str) -> None:
    async def test() -> None:
        admission = door()
        async with client_of(create_app(FakeEngine(), admission=admission)) as client:
            reply = await client.post(CHAT, json={**HI, **body}, headers=headers)
            assert (reply.status_code, reply.json()["error"]["code"]) == (400, code)
            assert (reply.headers.get("x-should-retry") == "false") == (code == "deadline_impossible")
        assert_nothing_is_left(admission)

    run(test)


def test_what_cannot_be_expected_in_time_is_refused_when_it_comes_and_told_when_to_try_again() -> None:
    async def test() -> None:
        engine, admission = FakeEngine(), door()
        engine.foreseen = Prospect(Forecast(20.0, 20.5, 21.0), Forecast(0.0, 0.5, 1.0), Forecast(0.0, 0.1, 0.2))
        async with client_of(create_app(engine, tenants=book_of(ACME), admission=admission)) as client:
            late = await client.post(CHAT, json={**HI, "deadline_ms": 11_000}, headers=key("acme"))
            assert (late.status_code, late.json()["error"]["code"]) == (503, "deadline_unattainable")
            assert 8_000 <= int(late.headers["retry-after-ms"]) <= 12_000, "about as long as it would be late"
            never = await client.post(CHAT, json={**HI, "deadline_ms": 100}, headers=key("acme"))
            assert (never.status_code, never.json()["error"]["code"]) == (400, "deadline_impossible")
            assert_nothing_is_left(admission)
            assert (await client.post(CHAT, json={**HI, "deadline_ms": 30_000})).status_code == 200
            assert (await client.post(CHAT, json=HI)).status_code == 200, "nobody gave it a deadline or a target"

    run(test)


def test_a_target_refuses_at_the_door_who_names_no_deadline_and_follows_the_book() -> None:
    async def test() -> None:
        engine, book = FakeEngine(), TenantBook()
        engine.foreseen = Prospect(Forecast(3.0, 3.5, 4.0), Forecast(0.0, 0.5, 1.0), Forecast(0.0, 0.1, 0.2))
        admission = admission_of(ServeConfig(), None, book)
        async with client_of(create_app(engine, tenants=book, admission=admission)) as client:
            assert (await client.post(CHAT, json=HI)).status_code == 200
            book._current = Tenants(latency=(LatencyTarget(first=2.0, endpoint="/v1/chat/*"),))
            refused = await client.post(CHAT, json=HI)
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "server_overloaded")
            assert (await client.post(COMPLETIONS, json={"prompt": "a"})).status_code == 200
            assert (await client.post(CHAT, json={**HI, "ttft_deadline_ms": 9000})).status_code == 200
            book._current = Tenants(tiers=(TierTerms(0, "fast", e2e_ms=3000),))
            assert (await client.post(COMPLETIONS, json={"prompt": "a"})).status_code == 503

    run(test)


def test_the_ways_in_and_out_are_taken_off_deadlines() -> None:
    async def test() -> None:
        engine = FakeEngine()
        admission = admission_of(ServeConfig(way_in_ms=20, way_out_ms=30), None)
        async with client_of(create_app(engine, admission=admission)) as client:
            await client.post(CHAT, json={**HI, "deadline_ms": 1500})
            assert engine.asked[0].how["deadline"] == pytest.approx(1.45)
            gone = await client.post(CHAT, json={**HI, "deadline_ms": 50})
            assert (gone.status_code, gone.json()["error"]["code"]) == (400, "deadline_impossible")

    run(test)


@pytest.mark.parametrize("stream", [False, True])
def test_what_expires_before_its_first_byte_is_504(stream: bool) -> None:
    async def test() -> None:
        engine, admission = FakeEngine(held=True), door()
        async with client_of(create_app(engine, tenants=book_of(ACME), admission=admission)) as client:
            body = {**HI, "stream": stream, "deadline_ms": 10}
            waiting = asyncio.create_task(client.post(CHAT, json=body, headers=key("acme")))
            await asked_for(engine, 1)
            engine.end(engine.asked[0], "error", error="the deadline has passed", code="deadline_exceeded")
            reply = await waiting
            assert reply.status_code == 504 and reply.json()["error"]["code"] == "deadline_exceeded"
            assert reply.headers["x-should-retry"] == "false"
            assert 1 <= int(reply.headers["retry-after"]) < 120
        assert_nothing_is_left(admission)

    run(test)


def test_what_expires_while_it_is_tokenized_is_504_and_never_reaches_the_engine() -> None:
    class Slow(FakeEngine):
        def now(self) -> float:
            return float(len(self.tokenized))

        tokenized: tuple[int, ...] = ()

        async def encode_chat(self, *args: Any, **how: Any) -> tuple[int, ...]:
            self.tokenized = await super().encode_chat(*args, **how)
            return self.tokenized

    async def test() -> None:
        engine, admission = Slow(), door()
        async with client_of(create_app(engine, tenants=book_of(ACME), admission=admission)) as client:
            reply = await client.post(CHAT, json={**HI, "deadline_ms": 999}, headers=key("acme"))
            assert reply.status_code == 504 and reply.json()["error"]["code"] == "deadline_exceeded"
            assert engine.asked == []
        assert_nothing_is_left(admission)

    run(test)


def test_what_expires_in_its_stream_is_an_event_of_the_same_code() -> None:
    async def test() -> None:
        engine, admission = FakeEngine(held=True), door()
        app = create_app(engine, tenants=book_of(ACME), admission=admission)
        async with serving(app) as server, httpx.AsyncClient(base_url=server.url) as client:
            beginning = asyncio.create_task(_first_token(engine))
            async with client.stream("POST", CHAT, json={**HI, "stream": True}, headers=key("acme")) as reply:
                await beginning
                assert reply.status_code == 200
                engine.end(engine.asked[0], "error", error="the deadline has passed", code="deadline_exceeded")
                events = events_of((await reply.aread()).decode())
            assert '"code":"deadline_exceeded"' in events[-2] and events[-1] == "[DONE]"
            await _until(lambda: admission.live == 0)
            assert_nothing_is_left(admission, owed=(len(engine.asked[0].prompt_ids) + 1, 1))

    run(test)


async def _first_token(engine: FakeEngine) -> None:
    await asked_for(engine, 1)
    engine.say(engine.asked[0], "x")


def test_the_file_of_tenants_and_the_book_agree(tmp_path: Path) -> None:
    """The tests above make their book by hand."""
    path = tmp_path / "tenants.toml"
    path.write_text(f'[[tenants]]\nname = "acme"\nkeys = ["{digest_of("acme")}"]\n', encoding="utf-8")
    assert TenantBook(path).current.by_key("acme") == TenantTerms("acme")


@pytest.mark.parametrize(("path", "body"), [("/tokenize", {"prompt": "a"}), ("/detokenize", {"tokens": [97]})])
def test_what_generates_nothing_takes_a_place_and_of_no_limit(path: str, body: dict[str, Any]) -> None:
    async def test() -> None:
        engine, admission = FakeEngine(held=True), door()
        async with client_of(create_app(engine, tenants=book_of(ACME, BETA), admission=admission)) as client:
            assert (await client.post(path, json=body, headers=key("acme"))).status_code == 200
            assert (await client.post(path, json={**body, "model": "another"}, headers=key("acme"))).status_code == 404
            assert_nothing_is_left(admission)
            first = asyncio.create_task(client.post(CHAT, json=HI, headers=key("beta")))
            await asked_for(engine, 1)
            refused = await client.post(path, json=body, headers=key("beta"))
            assert refused.status_code == 429 and refused.json()["error"]["code"] == "concurrency_limit_exceeded"
            engine.answer(engine.asked[0])
            assert (await first).status_code == 200

    run(test)
