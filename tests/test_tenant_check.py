"""Keys before bodies, and what replies say of limits."""

from pathlib import Path

import pytest
from fastapi import FastAPI

from fairstep.admission.rate_limits import RateFigure
from fairstep.serving.app import create_app
from fairstep.serving.tenant_book import TenantBook
from fairstep.serving.tenant_check import duration, limit_headers, route_path
from fairstep.tenants import digest_of
from fakes_serving import FakeEngine, client_of, run

HI = {"messages": [{"role": "user", "content": "hi"}]}
CHAT = "/v1/chat/completions"
ACME = {"Authorization": "Bearer acme-key"}
FILE = f"""
[[tenants]]
name = "acme"
keys = ["{digest_of("acme-key")}"]
limits = [
  {{ what = "requests", per = "minute", amount = 2 }},
  {{ what = "tokens", per = "minute", amount = 1000 }},
  {{ what = "requests", per = "month", amount = 100 }},
]
[[tenants]]
name = "beta"
keys = ["{digest_of("beta-key")}"]
"""


@pytest.fixture
def book(tmp_path: Path) -> TenantBook:
    path = tmp_path / "tenants.toml"
    path.write_text(FILE, encoding="utf-8")
    return TenantBook(path)


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize(
    "path", [CHAT, "/v1/completions", "/v1/models", "/v1/models/fake", "/tokenize", "/detokenize", "/v1/nothing"]
)
def test_without_a_key_that_is_known_everything_is_401(book: TenantBook, method: str, path: str) -> None:
    async def test() -> None:
        async with client_of(create_app(FakeEngine(), tenants=book)) as client:
            for headers in ({}, {"Authorization": "Bearer other"}):
                reply = await client.request(method, path, headers=headers, content=b"{")
                assert reply.status_code == 401 and reply.headers["www-authenticate"] == "Bearer"
                assert reply.headers["x-should-retry"] == "false" and reply.headers["x-request-id"]
                error = reply.json()["error"]
                assert error["code"] == "invalid_api_key" and error["param"] is None and error["message"]

    run(test)


@pytest.mark.parametrize("path", ["/health", "/ping", "/version", "/metrics"])
def test_probes_need_no_key(book: TenantBook, path: str) -> None:
    async def test() -> None:
        async with client_of(create_app(FakeEngine(), tenants=book)) as client:
            assert (await client.get(path)).status_code == 200

    run(test)


def test_a_mounted_application_checks_keys_too(book: TenantBook) -> None:
    async def test() -> None:
        engine, host = FakeEngine(), FastAPI()
        host.mount("/llm", create_app(engine, tenants=book))
        async with client_of(host) as client:
            assert (await client.post(f"/llm{CHAT}", json=HI)).status_code == 401
            assert (await client.post(f"/llm{CHAT}", json=HI, headers=ACME)).status_code == 200
            assert (await client.get("/llm/health")).status_code == 200
            assert (await client.get("/llm/health/v1/models")).status_code == 401
        assert engine.asked[0].how["tenant"] == "acme" and engine.asked[0].how["terms"].name == "acme"

    run(test)


def test_a_401_comes_before_the_body_is_read(book: TenantBook) -> None:
    async def test() -> None:
        sent = []

        async def receive() -> dict[str, object]:
            raise AssertionError("the body was read")

        async def send(message: dict[str, object]) -> None:
            sent.append(message)

        scope = {"type": "http", "method": "POST", "path": CHAT, "headers": [], "client": None, "query_string": b""}
        await create_app(FakeEngine(), tenants=book)(scope, receive, send)  # type: ignore[arg-type]
        assert sent[0]["status"] == 401

    run(test)


def test_without_a_file_everybody_is_anonymous_whatever_key_comes() -> None:
    async def test() -> None:
        engine = FakeEngine()
        async with client_of(create_app(engine)) as client:
            reply = await client.post(CHAT, json=HI, headers=ACME)
            assert reply.status_code == 200 and not [name for name in reply.headers if "ratelimit" in name]
        assert engine.asked[0].how["tenant"] == "anonymous"

    run(test)


def test_answers_say_what_is_left_and_the_limit_refuses_with_when_to_come_back(book: TenantBook) -> None:
    async def test() -> None:
        async with client_of(create_app(FakeEngine(), tenants=book)) as client:
            body = {**HI, "max_tokens": 5}
            first = await client.post(CHAT, json=body, headers=ACME)
            assert first.headers["x-ratelimit-limit-requests"] == "2"
            assert first.headers["x-ratelimit-remaining-requests"] == "1"
            assert first.headers["x-ratelimit-reset-requests"] == "30s"
            assert first.headers["x-ratelimit-limit-tokens"] == "1000"
            prompt = first.json()["usage"]["prompt_tokens"]
            assert first.headers["x-ratelimit-remaining-tokens"] == str(1000 - prompt - 5)
            second = await client.post(CHAT, json={**body, "stream": True}, headers=ACME)
            assert second.status_code == 200 and second.headers["x-ratelimit-remaining-requests"] == "0"
            # the first was put right when it ended: 3 tokens came; 5 are reserved for the second, or 3 as usual
            assert int(second.headers["x-ratelimit-remaining-tokens"]) >= 1000 - 2 * prompt - 3 - 5
            third = await client.post(CHAT, json=body, headers=ACME)
            assert third.status_code == 429 and third.json()["error"]["code"] == "rate_limit_exceeded"
            assert 24 <= int(third.headers["retry-after"]) <= 36
            wait = int(third.headers["retry-after-ms"])
            assert 24_000 <= wait <= 36_000 and (int(third.headers["retry-after"]) - 1) * 1000 < wait
            assert third.headers["x-ratelimit-remaining-requests"] == "0" and "x-should-retry" not in third.headers
            other = await client.post(CHAT, json=body, headers={"x-api-key": "beta-key"})
            assert other.status_code == 200

    run(test)


def test_headers_of_limits_have_openais_names() -> None:
    figures = [RateFigure("requests", 60, 59, 1.0), RateFigure("input_tokens", 100, 0, 61.5)]
    assert dict(limit_headers(figures)) == {
        b"x-ratelimit-limit-requests": b"60",
        b"x-ratelimit-remaining-requests": b"59",
        b"x-ratelimit-reset-requests": b"1s",
        b"x-ratelimit-limit-input-tokens": b"100",
        b"x-ratelimit-remaining-input-tokens": b"0",
        b"x-ratelimit-reset-input-tokens": b"1m1s",
    }


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0ms"), (0.012, "12ms"), (3.5, "3.5s"), (10, "10s"), (59.9996, "1m0s"), (62, "1m2s")]
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("path", "root", "below"), [("/a", "", "/a"), ("/llm/a", "/llm", "/a"), ("/llmx/a", "/llm", "/llmx/a")]
)
def test_the_path_below_a_mount(path: str, root: str, below: str) -> None:
    assert route_path({"path": path, "root_path": root}) == below
