"""`fairstep serve --tenants` over real sockets: two customers with keys, reloads under way, and the official client."""

import asyncio
import logging
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from click.testing import CliRunner

from fairstep.config import ServeConfig
from fairstep.serving import serve_command
from fairstep.serving.app import create_app
from fairstep.serving.cli import cli
from fairstep.serving.listener import listen
from fairstep.serving.tenant_book import TenantBook
from fairstep.serving.terms_of_use import terms_of_use
from fairstep.tenants import Tenants, digest_of
from fakes_serving import FakeEngine, events_of, run
from live_server import LiveServer
from raw_http import serving_in_thread

CHAT = "/v1/chat/completions"
HI: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 5}
LIMIT = '{ what = "requests", per = "minute", amount = 1 }'


def tenant(name: str, *, keys: str = "", limits: str = "") -> str:
    return f'[[tenants]]\nname = "{name}"\nkeys = ["{digest_of(keys or name)}"]\nlimits = [{limits}]\n'


def key(name: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {name}"}


class Served(FakeEngine):
    """A held engine that `serve` can start; the test finds it in `made`."""

    made: "list[Served]"

    def __init__(self, model: str, *_: Any, tenants: Tenants | None = None, **__: Any) -> None:
        super().__init__(held=True)
        self.tenants = tenants
        self.seconds = {"tokenizer": 0.0, "ready": 0.0}
        self.made.append(self)

    async def start(self) -> None:
        pass

    async def stop(self) -> None:
        pass


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Served]:
    monkeypatch.setattr(Served, "made", [], raising=False)
    monkeypatch.setattr(serve_command, "AsyncEngine", Served)
    return Served.made


@asynccontextmanager
async def served(made: list[Served], config: ServeConfig) -> AsyncIterator[tuple[Served, httpx.AsyncClient]]:
    """The command's server on a free port, ended by its signal."""
    with listen("127.0.0.1", 0) as listener, terms_of_use(config) as terms:
        serving = asyncio.create_task(serve_command.serve_on(listener, {"m": "m"}, config, terms))
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{listener.getsockname()[1]}") as client:
            while (await client.get("/health")).status_code != 200:
                await asyncio.sleep(0)
            try:
                yield made[0], client
            finally:
                os.kill(os.getpid(), signal.SIGTERM)
        await serving


async def _until(predicate: Callable[[], Awaitable[bool]]) -> None:
    while not await predicate():
        await asyncio.sleep(0)


def test_a_hangup_reads_the_file_again_and_drops_no_stream(
    made: list[Served], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    path = tmp_path / "tenants.toml"
    path.write_text(tenant("acme"), encoding="utf-8")

    async def test() -> None:
        async with served(made, ServeConfig(tenants=str(path))) as (engine, client):
            assert engine.tenants is not None and engine.tenants.of("acme").weight == 1
            beginning = asyncio.create_task(_first_token(engine))
            async with client.stream("POST", CHAT, json={**HI, "stream": True}, headers=key("acme")) as reply:
                await beginning
                path.write_text(tenant("beta") + "weight = 3\n", encoding="utf-8")
                os.kill(os.getpid(), signal.SIGHUP)
                await _until(lambda: _is(client, "beta", 200))
                assert (await client.get("/v1/models", headers=key("acme"))).status_code == 401
                while engine.tenants.of("beta").weight != 3:  # the engine has the new book too
                    await asyncio.sleep(0)
                engine.answer(engine.asked[0])
                assert events_of((await reply.aread()).decode())[-1] == "[DONE]"
            path.write_text("nonsense", encoding="utf-8")
            os.kill(os.getpid(), signal.SIGHUP)
            while "stay as they were" not in caplog.text:
                await asyncio.sleep(0)
            assert await _is(client, "beta", 200)

    run(test)
    assert engine_cancelled(made) == []
    assert f"tenants read again from {path}: 1 tenants, 1 keys" in caplog.text


def engine_cancelled(made: list[Served]) -> list[str]:
    return made[0].cancelled


async def _first_token(engine: Served) -> None:
    await engine.until(lambda: bool(engine.asked))
    engine.say(engine.asked[0], "x")


async def _is(client: httpx.AsyncClient, name: str, status: int) -> bool:
    return (await client.get("/v1/models", headers=key(name))).status_code == status


def test_the_commands_queue_is_as_long_as_its_setting_says(made: list[Served]) -> None:
    async def test() -> None:
        async with served(made, ServeConfig(max_queue=1)) as (engine, client):
            waiting = asyncio.create_task(client.post(CHAT, json=HI))
            await engine.until(lambda: len(engine.asked) == 1)
            refused = await client.post(CHAT, json=HI)
            assert refused.status_code == 503 and refused.json()["error"]["code"] == "server_overloaded"
            engine.answer(engine.asked[0])
            assert (await waiting).status_code == 200

    run(test)


def test_month_counts_outlive_the_command(made: list[Served], tmp_path: Path) -> None:
    path = tmp_path / "tenants.toml"
    path.write_text(tenant("acme", limits='{ what = "requests", per = "month", amount = 1 }'), encoding="utf-8")
    config = ServeConfig(tenants=str(path), limits_store=str(tmp_path / "counts.db"))

    async def test(status: int) -> None:
        async with served(made, config) as (engine, client):
            engine.held = False
            assert (await client.post(CHAT, json=HI, headers=key("acme"))).status_code == status

    run(lambda: test(200))
    made.clear()
    run(lambda: test(429))


def test_an_address_that_a_client_claims_is_not_believed(made: list[Served], tmp_path: Path) -> None:
    path = tmp_path / "tenants.toml"
    text = tenant("acme") + '[trusted_proxy]\nnetworks = ["10.0.0.0/8"]\nheader = "X-Tenant"\n'
    path.write_text(text, encoding="utf-8")

    async def test() -> None:
        async with served(made, ServeConfig(tenants=str(path))) as (_, client):
            claimed = {"X-Forwarded-For": "10.0.0.1", "X-Tenant": "acme"}
            assert (await client.get("/v1/models", headers=claimed)).status_code == 401
            assert await _is(client, "acme", 200)

    run(test)


@pytest.mark.parametrize(
    ("option", "text", "said"),
    [("--tenants", "[[tenants]]\nname = 3\n", "tenants[0].name"), ("--tenants", None, "cannot be read")],
)
def test_a_wrong_file_is_told_in_one_line_before_anything_loads(
    made: list[Served], tmp_path: Path, option: str, text: str | None, said: str
) -> None:
    path = tmp_path / "t.toml"
    if text is not None:
        path.write_text(text, encoding="utf-8")
    result = CliRunner().invoke(cli, ["serve", "smollm2", option, str(path), "--port", "0"], standalone_mode=False)
    assert made == [] and result.exception is not None
    assert said in str(result.exception) and "\n" not in str(result.exception)


def test_the_official_client_obeys_what_a_refusal_says_about_trying_again(tmp_path: Path) -> None:
    path = tmp_path / "tenants.toml"
    month = '{ what = "requests", per = "month", amount = 1 }'
    path.write_text(tenant("acme", limits=month) + tenant("beta"), encoding="utf-8")
    seen: list[str] = []
    app = create_app(FakeEngine(), tenants=TenantBook(path))

    async def counting(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope["path"])
        await app(scope, receive, send)

    with serving_in_thread(counting) as root:
        ask = {"model": "fake", "messages": HI["messages"], "max_tokens": 5}
        with openai.OpenAI(base_url=f"{root}/v1", api_key="acme", max_retries=2) as client:
            client.chat.completions.create(**ask)
            with pytest.raises(openai.RateLimitError) as refused:
                client.chat.completions.create(**ask)
            assert refused.value.code == "insufficient_quota" and len(seen) == 2
        with openai.OpenAI(base_url=f"{root}/v1", api_key="beta", max_retries=2) as client:
            client.chat.completions.create(**ask, service_tier="flex")
            with pytest.raises(openai.BadRequestError) as impossible:
                client.chat.completions.create(**ask, extra_body={"deadline_ms": 0})
            assert impossible.value.code == "deadline_impossible" and len(seen) == 4
        with openai.OpenAI(base_url=f"{root}/v1", api_key="who", max_retries=2) as client:
            with pytest.raises(openai.AuthenticationError) as unknown:
                client.models.list()
            assert unknown.value.code == "invalid_api_key" and len(seen) == 5


@pytest.mark.real
def test_two_customers_and_a_deadline_with_the_real_model(tmp_path: Path) -> None:
    path = tmp_path / "tenants.toml"
    path.write_text(tenant("acme", limits=LIMIT) + tenant("beta"), encoding="utf-8")
    book = TenantBook(path)
    with LiveServer("smollm2", app={"tenants": book}, tenants=book.current) as server:
        with httpx.Client(base_url=server.url, timeout=120) as client:
            assert client.post(CHAT, json=HI).status_code == 401
            first = client.post(CHAT, json=HI, headers=key("acme"))
            assert first.status_code == 200 and first.headers["x-ratelimit-remaining-requests"] == "0"
            assert client.post(CHAT, json=HI, headers=key("acme")).status_code == 429
            assert client.post(CHAT, json=HI, headers=key("beta")).status_code == 200
            long = {**HI, "max_tokens": 2000, "ignore_eos": True}  # no machine draws so many in time
            late = client.post(CHAT, json={**long, "deadline_ms": 6000}, headers=key("beta"))
            assert late.status_code == 400 and late.json()["error"]["code"] == "deadline_impossible"
            never = dict.fromkeys(map(str, server.engine.info.eos_ids), -100)
            endless = {**HI, "max_tokens": 2000, "logit_bias": never}
            body = {**endless, "stream": True, "deadline_ms": 6000}
            events = events_of(client.post(CHAT, json=body, headers=key("beta")).text)
            assert '"code":"deadline_exceeded"' in events[-2] and events[-1] == "[DONE]"
        server.call(server.engine.check)
        assert server.call(lambda: server.engine.live().running) == 0
