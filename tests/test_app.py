"""The application around the protocol: models, health, metrics, mounting, request ids, failures."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from fastapi import FastAPI

from fairstep import __version__
from fairstep.errors import EngineClosed, Overloaded
from fairstep.serving.app import create_app
from fairstep.serving.limits import Limits
from fakes_serving import CONTEXT, FakeEngine, client_of, run

HI = {"messages": [{"role": "user", "content": "hi"}]}
CHAT = "/v1/chat/completions"


def test_models_lists_the_served_one_with_its_context() -> None:
    async def test() -> None:
        async with client_of(create_app(FakeEngine(), served_model_name="org/name")) as client:
            listing = (await client.get("/v1/models")).json()
            card = listing["data"][0]
            assert listing["object"] == "list" and len(listing["data"]) == 1
            assert (card["id"], card["object"], card["max_model_len"]) == ("org/name", "model", CONTEXT)
            assert isinstance(card["created"], int) and card["owned_by"]
            assert (await client.get("/v1/models/org/name")).json() == card
            assert (await client.post(CHAT, json={**HI, "model": "org/name"})).json()["model"] == "org/name"
            assert (await client.post(CHAT, json={**HI, "model": "fake"})).status_code == 404

    run(test)


def test_health_version_ping_and_metrics() -> None:
    async def test() -> None:
        engine = FakeEngine()
        async with client_of(create_app(engine)) as client:
            health = await client.get("/health")
            assert (health.status_code, health.content) == (200, b"")
            assert (await client.get("/version")).json() == {"version": __version__}
            assert (await client.get("/ping")).status_code == 200
            metrics = await client.get("/metrics")
            assert metrics.content.startswith(engine.metrics.render(engine.stats()))
            assert metrics.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"

    run(test)


def test_a_dead_engine_is_503_with_the_reason_everywhere() -> None:
    async def test() -> None:
        engine = FakeEngine()
        engine.failure = "the worker was killed"
        async with client_of(create_app(engine)) as client:
            replies = [
                await client.get("/health"),
                await client.post(CHAT, json=HI),
                await client.post(CHAT, json={**HI, "stream": True}),
            ]
            for reply in replies:
                assert reply.status_code == 503 and reply.headers["retry-after"] == "1"
                assert reply.json()["error"]["message"] == "the worker was killed"
            assert (await client.get("/ping")).status_code == 200

    run(test)


@pytest.mark.parametrize("error", [Overloaded("too many wait"), EngineClosed("closing")])
@pytest.mark.parametrize("stream", [False, True])
def test_a_refusal_now_is_503_with_retry_after(error: Exception, stream: bool) -> None:
    async def test() -> None:
        engine = FakeEngine()
        engine.bug = error
        async with client_of(create_app(engine)) as client:
            reply = await client.post(CHAT, json={**HI, "stream": stream})
        assert reply.status_code == 503 and reply.headers["retry-after"] == "1"
        assert reply.json()["error"]["type"] == "unavailable_error"

    run(test)


@pytest.mark.parametrize("stream", [False, True])
def test_an_unforeseen_exception_is_one_log_record_and_a_500_without_its_text(stream: bool, caplog: Any) -> None:
    async def test() -> None:
        engine = FakeEngine()
        engine.bug = KeyError("secret")
        async with client_of(create_app(engine)) as client:
            reply = await client.post(CHAT, json={**HI, "stream": stream}, headers={"X-Request-Id": "abc"})
            assert reply.status_code == 500 and reply.json()["error"]["code"] == "internal_error"
            assert "secret" not in reply.text
            engine.bug = None
            assert (await client.post(CHAT, json={**HI, "stream": stream})).status_code == 200

    with caplog.at_level(logging.INFO, "fairstep"):
        run(test)
    (record,) = [record for record in caplog.records if record.name.startswith("fairstep")]
    assert record.levelname == "ERROR" and "abc" in record.getMessage()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("ending", "status"), [("error", 500), ("cancelled", 503)])
def test_a_request_that_fails_before_its_first_token_is_a_plain_error(stream: bool, ending: str, status: int) -> None:
    async def test() -> None:
        async with client_of(create_app(FakeEngine([], ending=ending))) as client:
            reply = await client.post(CHAT, json={**HI, "stream": stream})
        assert reply.status_code == status and reply.json()["error"]["message"]

    run(test)


def test_a_request_id_is_echoed_or_made() -> None:
    async def test() -> None:
        async with client_of(create_app(FakeEngine())) as client:
            given = await client.post(CHAT, json=HI, headers={"X-Request-Id": "mine-1"})
            assert given.headers["x-request-id"] == "mine-1"
            made = {(await client.get("/ping")).headers["x-request-id"] for _ in range(2)}
            assert len(made) == 2
            long = await client.get("/nothing", headers={"X-Request-Id": "a" * 500})
            assert len(long.headers["x-request-id"]) <= 128

    run(test)


def test_equal_request_ids_do_not_collide_in_the_engine() -> None:
    async def test() -> None:
        engine = FakeEngine()
        async with client_of(create_app(engine)) as client:
            for _ in range(2):
                assert (await client.post(CHAT, json=HI, headers={"X-Request-Id": "same"})).status_code == 200
        assert len({asked.how["request_id"] for asked in engine.asked}) == 2

    run(test)


def test_it_serves_mounted_in_another_application() -> None:
    async def test() -> None:
        host = FastAPI()

        @host.get("/")
        async def home() -> str:
            return "home"

        host.mount("/llm", create_app(FakeEngine()))
        host.mount("/other", create_app(FakeEngine(["two"]), served_model_name="second"))
        async with client_of(host) as client:
            assert (await client.get("/")).json() == "home"
            assert (await client.get("/llm/v1/models")).json()["data"][0]["id"] == "fake"
            assert (await client.post("/llm" + CHAT, json=HI)).status_code == 200
            second = (await client.post("/other" + CHAT, json=HI)).json()
            assert second["model"] == "second" and second["choices"][0]["message"]["content"] == "two"
            error = (await client.post("/llm" + CHAT, json={**HI, "n": 0})).json()["error"]
            assert error["param"] == "n"
            assert "error" not in (await client.get("/nothing")).json()  # the host's own 404 stays its own

    run(test)


def test_the_engines_life_is_managed_only_when_asked() -> None:
    events: list[str] = []

    class Living(FakeEngine):
        async def __aenter__(self) -> None:
            events.append("start")

        async def __aexit__(self, *_: object) -> None:
            events.append("stop")

    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        async with app.router.lifespan_context(app):
            yield

    async def test() -> None:
        async with life(create_app(Living())):
            assert events == []
        async with life(create_app(Living(), manage_engine=True)):
            assert events == ["start"]
        assert events == ["start", "stop"]

    run(test)


def test_big_bodies_are_parsed_off_the_event_loop_with_the_same_result() -> None:
    async def test() -> None:
        engine = FakeEngine()
        filler = {"unused": "x" * 200_000}
        async with client_of(create_app(engine)) as client:
            assert (await client.post("/v1/completions", json={"prompt": "hi", **filler})).status_code == 200
            reply = await client.post("/v1/completions", json={"prompt": "", **filler})
            assert reply.status_code == 400 and reply.json()["error"]["param"] == "prompt"

    run(test)


def test_the_openapi_page_is_there_and_pages_that_load_foreign_scripts_are_not() -> None:
    async def test() -> None:
        async with client_of(create_app(FakeEngine())) as client:
            paths = (await client.get("/openapi.json")).json()["paths"]
            assert CHAT in paths
            assert (await client.get("/docs")).status_code == 404

    run(test)


@pytest.mark.parametrize("name", ["body_bytes", "prompts", "ping_seconds"])
def test_limits_must_be_positive(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        Limits(**{name: 0})
