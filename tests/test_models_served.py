"""Several models in one server, and a name that moves to another revision: over real HTTP, on worker processes."""

import asyncio
import json
import logging
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from chaos.poisoned_link import PoisonedLink
from chaos.poisoned_worker import BROKEN, CAPITALS, SLOW
from fairstep import AsyncEngine
from fairstep.config import ServeConfig
from fairstep.serving import serve_command
from fairstep.serving.listener import listen
from fairstep.serving.models_file import read_models
from fairstep.serving.terms_of_use import terms_of_use
from fakes_text import FakeTokenizer
from fakes_worker import letter

ANSWER = 60
PATH = "/v1/completions"
SMALL = bytes(letter(place) for place in range(ANSWER)).decode()
LARGE = SMALL.upper()


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> list[AsyncEngine]:
    """Those that the command makes, on workers with a fake runner."""
    made: list[AsyncEngine] = []

    def make(source: str, *args: Any, in_process: bool, **named: Any) -> AsyncEngine:
        made.append(AsyncEngine(source, *args, tokenizer=FakeTokenizer(), new_link=PoisonedLink, **named))  # type: ignore[arg-type]
        return made[-1]

    monkeypatch.setattr(serve_command, "AsyncEngine", make)
    return made


@asynccontextmanager
async def serving(sources: dict[str, str], **config: Any) -> AsyncIterator[httpx.AsyncClient]:
    """The command's server on a free port, ended by its signal."""
    settings = ServeConfig(**config)
    with listen("127.0.0.1", 0) as listener, terms_of_use(settings) as terms:
        task = asyncio.create_task(serve_command.serve_on(listener, sources, settings, terms))
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        async with httpx.AsyncClient(base_url=url, timeout=60) as client:
            await until(client, lambda reply: reply.status_code == 200, "/health")
            try:
                yield client
            finally:
                os.kill(os.getpid(), signal.SIGTERM)
        await task


async def until(client: httpx.AsyncClient, holds: Callable[[httpx.Response], bool], path: str) -> httpx.Response:
    while not holds(reply := await client.get(path)):
        await asyncio.sleep(0)
    return reply


async def ask(client: httpx.AsyncClient, model: str | None, first: int = 97, **more: Any) -> httpx.Response:
    headers = more.pop("headers", {})
    body = {"prompt": [first, 98], "max_tokens": ANSWER, "ignore_eos": True, **more}
    return await client.post(PATH, json={**body, **({"model": model} if model else {})}, headers=headers)


async def text(client: httpx.AsyncClient, model: str | None) -> str:
    told: str = (await ask(client, model)).json()["choices"][0]["text"]
    return told


def pid_of(engine: AsyncEngine) -> int:
    (link,) = engine._crew.links
    assert isinstance(link, PoisonedLink) and link.pid is not None
    return link.pid


def run(body: Callable[[], Any]) -> None:
    asyncio.run(asyncio.wait_for(body(), 100))


def test_each_name_is_answered_by_its_own_model(engines: list[AsyncEngine]) -> None:
    async def test() -> None:
        async with serving({"chat": "small", "shout": CAPITALS}) as client:
            assert [await text(client, name) for name in ("chat", "shout", None)] == [SMALL, LARGE, SMALL]
            unknown = await ask(client, "else")
            assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "model_not_found")
            cards = (await client.get("/v1/models")).json()["data"]
            assert [card["id"] for card in cards] == ["chat", "shout"]
            assert cards[0]["revision"] != cards[1]["revision"]
            told = (await client.get("/metrics")).text
            for name in ("chat", "shout"):
                assert told.count(f'fairstep:workers_ready{{model_name="{name}"}} 1.0') == 1
            assert told.count("# TYPE fairstep:workers_ready gauge") == 1
            assert (await client.get("/health")).json() == {"models": {"chat": "ready", "shout": "ready"}}

    run(test)


def test_a_name_moves_under_load_and_streams_end_on_what_they_began_with(
    engines: list[AsyncEngine], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    file = tmp_path / "models.toml"
    file.write_text('[models]\nchat = "small"\n')

    async def test() -> None:
        async with serving(read_models(file), models=str(file)) as client:
            old = pid_of(engines[0])
            begun = [asyncio.create_task(ask(client, "chat", SLOW)) for _ in range(8)]
            while engines[0].live().running < 8:
                await asyncio.sleep(0)
            file.write_text(f'[models]\nchat = "{CAPITALS}"\n')
            os.kill(os.getpid(), signal.SIGHUP)
            late: list[str] = []
            while LARGE not in late:  # requests go on all the time, and each gets one or the other
                late.append(await text(client, "chat"))
            assert set(late) == {SMALL, LARGE} and late.index(LARGE) == len(late) - 1
            assert [(await each).json()["choices"][0]["text"] for each in begun] == [SMALL] * 8
            await until(client, lambda reply: "retired" not in reply.text, "/metrics")
            while os.path.exists(f"/proc/{old}"):
                await asyncio.sleep(0.01)
            assert await text(client, "chat") == LARGE and "is gone" in caplog.text

    run(test)


def test_one_that_cannot_be_loaded_leaves_what_is_served(
    engines: list[AsyncEngine], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "models.toml"
    file.write_text('[models]\nchat = "small"\n')

    async def test() -> None:
        async with serving(read_models(file), models=str(file)) as client:
            broken = f'[models]\nchat = "{BROKEN}"\n'
            for wrong, said in ((broken, "could not be loaded"), ("nonsense", "stay as they")):
                file.write_text(wrong)
                os.kill(os.getpid(), signal.SIGHUP)
                while said not in caplog.text:
                    await asyncio.sleep(0.01)
                assert await text(client, "chat") == SMALL

    run(test)


def test_one_without_workers_leaves_the_others(engines: list[AsyncEngine]) -> None:
    async def test() -> None:
        async with serving({"chat": "small", "shout": CAPITALS}) as client:
            await engines[0].stop()
            assert (await ask(client, "chat")).status_code == 503 and await text(client, "shout") == LARGE
            health = await client.get("/health")
            assert health.status_code == 200 and health.json()["models"]["shout"] == "ready"
            assert health.json()["models"]["chat"] != "ready"
            assert (await client.get("/health", params={"model": "chat"})).status_code == 503

    run(test)


def test_limits_hold_across_models_and_one_that_names_a_model_there_alone(
    engines: list[AsyncEngine], tmp_path: Path
) -> None:
    book = tmp_path / "tenants.toml"
    book.write_text(
        '[anonymous]\n[[limits]]\nwhat = "requests"\nper = "minute"\namount = 3\n'
        '[[limits]]\nwhat = "requests"\nper = "minute"\namount = 1\nmodel = "shout"\n'
    )

    async def test() -> None:
        async with serving({"chat": "small", "shout": CAPITALS}, tenants=str(book)) as client:
            codes = [(await ask(client, name)).status_code for name in ("chat", "shout", "shout", "chat", "chat")]
            assert codes == [200, 200, 429, 200, 429]

    run(test)


def test_a_name_that_comes_later_has_limits_of_its_own(engines: list[AsyncEngine], tmp_path: Path) -> None:
    file, book = tmp_path / "models.toml", tmp_path / "tenants.toml"
    file.write_text('[models]\nchat = "small"\n')
    book.write_text('[anonymous]\n[[limits]]\nwhat = "requests"\nper = "minute"\namount = 1\nmodel = "chat"\n')

    async def test() -> None:
        async with serving(read_models(file), models=str(file), tenants=str(book)) as client:
            file.write_text(f'[models]\nchat = "small"\nshout = "{CAPITALS}"\n')
            os.kill(os.getpid(), signal.SIGHUP)
            await until(client, lambda reply: len(reply.json()["data"]) == 2, "/v1/models")
            codes = [(await ask(client, name)).status_code for name in ("chat", "shout", "chat")]
            assert codes == [200, 200, 429]

    run(test)


def test_what_runs_in_the_background_and_lines_of_a_batch_run_on_the_model_they_name(
    engines: list[AsyncEngine], tmp_path: Path
) -> None:
    async def test() -> None:
        async with serving({"chat": "small", "shout": CAPITALS}, state=str(tmp_path / "state")) as client:
            for name, told in (("chat", SMALL), ("shout", LARGE)):
                body = {"input": "ab", "max_output_tokens": 16, "model": name, "background": True}
                made = (await client.post("/v1/responses", json=body)).json()
                path = f"/v1/responses/{made['id']}"
                ended = await until(client, lambda reply: reply.json()["status"] == "incomplete", path)  # by max_tokens
                text = ended.json()["output"][0]["content"][0]["text"]
                assert text and text in told * 5, f"{name} said {text}"
            request = {"prompt": [97, 98], "max_tokens": ANSWER, "ignore_eos": True}
            lines = "\n".join(
                json.dumps({"custom_id": name, "method": "POST", "url": PATH, "body": {**request, "model": name}})
                for name in ("chat", "shout")
            )
            sent = await client.post("/v1/files", files={"file": ("in.jsonl", lines)}, data={"purpose": "batch"})
            order = {"input_file_id": sent.json()["id"], "endpoint": PATH, "completion_window": "24h"}
            batch = (await client.post("/v1/batches", json=order)).json()
            path = f"/v1/batches/{batch['id']}"
            ended = await until(client, lambda reply: reply.json()["status"] == "completed", path)
            output = await client.get(f"/v1/files/{ended.json()['output_file_id']}/content")
            replies = {each["custom_id"]: each["response"]["body"] for each in map(json.loads, output.iter_lines())}
            assert {name: body["choices"][0]["text"] for name, body in replies.items()} == {
                "chat": SMALL,
                "shout": LARGE,
            }

    run(test)


def test_a_key_is_of_the_revision_that_answered(engines: list[AsyncEngine], tmp_path: Path) -> None:
    file = tmp_path / "models.toml"
    file.write_text('[models]\nchat = "small"\n')

    async def test() -> None:
        headers = {"Idempotency-Key": "once"}
        async with serving(read_models(file), models=str(file)) as client:
            first, again = [await ask(client, "chat", headers=headers) for _ in range(2)]
            assert again.headers["idempotent-replayed"] == "true" and again.json() == first.json()
            file.write_text(f'[models]\nchat = "{CAPITALS}"\n')
            os.kill(os.getpid(), signal.SIGHUP)
            while await text(client, "chat") != LARGE:
                pass
            refused = await ask(client, "chat", headers=headers)
            assert refused.status_code == 422
            await until(client, lambda reply: "retired" not in reply.text, "/metrics")
            for _ in range(2):
                told = await ask(client, "chat", headers={"Idempotency-Key": "other"})
            assert told.headers["idempotent-replayed"] == "true"
            counted = (await client.get("/metrics")).text
            assert 'fairstep:requests_replayed_total{model_name="chat"} 1.0' in counted  # of the one that has the name

    run(test)
