"""Whoever is turned away is counted once, with its tenant and the code that its client was told."""

import asyncio
from typing import Any

import pytest

from fairstep.admission.admission import Admission
from fairstep.admission.bounded_queue import QueueBounds
from fairstep.admission.limit_store import MemoryLimits
from fairstep.admission.limits import Limit
from fairstep.errors import EngineDead
from fairstep.serving.app import create_app
from fairstep.serving.tenant_book import TenantBook
from fairstep.tenants import Tenants, TenantTerms, digest_of
from fakes_serving import FakeEngine, client_of, run

COMPLETIONS = "/v1/completions"
ONE_REQUEST = (Limit(what="requests", per="minute", amount=1),)


def book_of(*tenants: TenantTerms) -> TenantBook:
    """Each tenant's key is its name."""
    book = TenantBook()
    book._current = Tenants(tenants=tenants, keys={digest_of(each.name): each for each in tenants}, anonymous=None)
    return book


def refused(
    engine: FakeEngine, *bodies: dict[str, Any], terms: TenantTerms | None = None, key: str = "acme"
) -> list[int]:
    """The statuses of requests that come one after another."""
    found = []

    async def test() -> None:
        app = create_app(
            engine,  # type: ignore[arg-type]
            tenants=book_of(terms or TenantTerms("acme")),
            admission=Admission(QueueBounds(), MemoryLimits()),
        )
        async with client_of(app) as client:
            for body in bodies:
                reply = await client.post(COMPLETIONS, json=body, headers={"Authorization": f"Bearer {key}"})
                found.append(reply.status_code)

    run(test)
    return found


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"prompt": 3}, 400, "invalid_request"),
        ({"prompt": "a", "temperature": -1}, 400, "invalid_value"),
        ({"prompt": "a" * 500}, 400, "context_length_exceeded"),
        ({"prompt": "a", "model": "another"}, 404, "model_not_found"),
        ({"prompt": "a", "deadline_ms": 0}, 400, "deadline_impossible"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_a_body_that_is_refused_is_counted_once(body: dict[str, Any], status: int, code: str, stream: bool) -> None:
    engine = FakeEngine()
    assert refused(engine, {**body, "stream": stream}) == [status]
    assert [name for name, _ in engine.turned_away] == ["acme"]
    assert engine.turned_away[0][1] == code


def test_a_limit_is_counted_and_what_passes_is_not() -> None:
    engine = FakeEngine()
    terms = TenantTerms("acme", limits=ONE_REQUEST)
    assert refused(engine, {"prompt": "a"}, {"prompt": "b"}, terms=terms) == [200, 429]
    assert engine.turned_away == [("acme", "rate_limit_exceeded")]


def test_a_key_that_nobody_knows_is_nobodys() -> None:
    engine = FakeEngine()
    assert refused(engine, {"prompt": "a"}, key="wrong") == [401]
    assert engine.turned_away == [(None, "invalid_api_key")]


def test_an_engine_that_is_dead_refuses_too() -> None:
    engine = FakeEngine()
    engine.failure = "it fell over"
    assert refused(engine, {"prompt": "a"}) == [503]
    assert engine.turned_away == [("acme", EngineDead.code)]


@pytest.mark.parametrize("ending", ["error"])
def test_what_fails_once_it_is_accepted_is_the_fronts_to_count(ending: str) -> None:
    engine = FakeEngine(ending=ending)
    assert refused(engine, {"prompt": "a"}) == [500]
    assert engine.turned_away == []


def test_whoever_is_put_out_of_the_queue_is_counted_once() -> None:
    async def test() -> None:
        engine = FakeEngine(held=True)
        tenants = book_of(TenantTerms("flood"), TenantTerms("small"))
        door = Admission(QueueBounds(entries=2), MemoryLimits())
        app = create_app(engine, tenants=tenants, admission=door)  # type: ignore[arg-type]
        async with client_of(app) as client:

            async def ask(tenant: str) -> int:
                headers = {"Authorization": f"Bearer {tenant}"}
                return (await client.post(COMPLETIONS, json={"prompt": "a"}, headers=headers)).status_code

            flood = []
            for count in (1, 2):
                flood.append(asyncio.create_task(ask("flood")))
                await engine.until(lambda count=count: len(engine.asked) >= count)  # type: ignore[misc]
            small = asyncio.create_task(ask("small"))
            await engine.until(lambda: len(engine.asked) >= 3)
            assert await flood[1] == 503
            for asked in (engine.asked[0], engine.asked[2]):
                engine.answer(asked)
            assert await flood[0] == 200 and await small == 200
        assert engine.turned_away == [("flood", "server_overloaded")]

    run(test)
