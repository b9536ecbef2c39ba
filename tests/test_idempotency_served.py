"""Idempotency keys over HTTP: every outcome, whole and streamed, and after a restart."""

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import OpenAI

from fairstep.serving.tenant_book import TenantBook
from fairstep.stepping.plan import StepPlan
from fairstep.stores.state import State
from fairstep.tenants import digest_of
from fakes_text import FakeTokenizer
from fakes_worker import FakeRunner, fake_build
from live_server import LiveServer

PATH = "/v1/completions"
BODY = {"prompt": "abc", "max_tokens": 5, "temperature": 1.0}
STREAMED = {**BODY, "stream": True}


@contextmanager
def serving(state: State, runner: FakeRunner | None = None, **app: Any) -> Iterator[LiveServer]:
    build = fake_build(runner)
    how = {"in_process": True, "tokenizer": FakeTokenizer(), "build_worker": build}
    with LiveServer("fake", app={"state": state, **app}, **how) as server:
        yield server


def post(server: LiveServer, body: Any, key: str | None = "k", path: str = PATH, **headers: str) -> httpx.Response:
    named = {} if key is None else {"Idempotency-Key": key}
    return httpx.post(server.url + path, json=body, headers={**named, **headers}, timeout=30)


@pytest.fixture
def state(tmp_path: Path) -> Iterator[State]:
    state = State(tmp_path / "state")
    yield state
    state.close()


@pytest.mark.parametrize("body", [BODY, STREAMED])
def test_an_answer_is_told_again_also_after_a_restart(body: dict[str, Any], tmp_path: Path) -> None:
    told = []
    for _ in range(2):
        state = State(tmp_path)
        with serving(state) as server:
            told += [post(server, body) for _ in range(2)]
            assert post(server, {**body, "max_tokens": 6}).status_code == 422
        state.close()
    assert len({reply.content for reply in told}) == 1
    assert [reply.headers.get("idempotent-replayed") for reply in told] == [None, "true", "true", "true"]
    assert {reply.headers["content-type"] for reply in told} == {told[0].headers["content-type"]}
    assert [reply.status_code for reply in told] == [200] * 4


def test_keys_belong_to_a_tenant_and_a_route(state: State, tmp_path: Path) -> None:
    path = tmp_path / "tenants.toml"
    path.write_text(
        "".join(f'[[tenants]]\nname = "{name}"\nkeys = ["{digest_of(name)}"]\n' for name in ("one", "two")), "utf-8"
    )
    chat = {"messages": [{"role": "user", "content": "abc"}], "max_tokens": 5}
    with serving(state, tenants=TenantBook(path)) as server:
        for _ in range(2):
            replies = [post(server, BODY, Authorization=f"Bearer {name}") for name in ("one", "two")]
            replies.append(post(server, chat, path="/v1/chat/completions", Authorization="Bearer one"))
            assert [reply.status_code for reply in replies] == [200] * 3
            assert len({reply.json()["id"] for reply in replies}) == 3
        assert {reply.headers.get("idempotent-replayed") for reply in replies} == {"true"}
        assert server.call(server.engine.stats).requests.replayed == 3


def test_while_it_is_answered_it_is_409_or_the_same_answer(state: State) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def hold(plan: StepPlan) -> None:
        begun.set()
        assert go_on.wait(30)

    replies: list[httpx.Response] = []
    with serving(state, FakeRunner(before=hold)) as server:
        first = threading.Thread(target=lambda: replies.append(post(server, STREAMED)))
        first.start()
        assert begun.wait(30)
        refused = post(server, STREAMED)
        attached = threading.Thread(target=lambda: replies.append(post(server, STREAMED, Prefer="wait")))
        attached.start()
        go_on.set()
        first.join()
        attached.join()
    error = refused.json()["error"]
    assert (refused.status_code, error["code"]) == (409, "idempotency_key_in_use")
    assert int(refused.headers["retry-after"]) >= 1
    assert replies[0].content == replies[1].content


def test_a_client_that_went_away_finds_its_answer(state: State) -> None:
    go_on = threading.Event()
    with serving(state, FakeRunner(before=lambda plan: go_on.wait(30) and None)) as server:
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(server.url + PATH, json=BODY, headers={"Idempotency-Key": "k"}, timeout=0.5)
        go_on.set()
        again = post(server, BODY, Prefer="wait")
        assert again.status_code == 200 and again.headers["idempotent-replayed"] == "true"


def test_refusals_are_not_kept_and_what_is_no_key_is_refused(state: State) -> None:
    with serving(state) as server:
        for _ in range(2):
            refused = post(server, {**BODY, "max_tokens": -1})
            assert refused.status_code == 400 and "idempotent-replayed" not in refused.headers
        assert post(server, BODY).status_code == 200
        wrong = post(server, BODY, "x" * 256)
        assert wrong.status_code == 400 and wrong.json()["error"]["param"] == "Idempotency-Key"
        assert post(server, BODY, None).json()["id"] != post(server, BODY, None).json()["id"]
        server.call(server.engine.check)


def test_a_store_that_cannot_keep_an_answer_is_told_and_nobody_else_notices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairstep.stores.database.BUSY_SECONDS", 0.05)
    state = State(tmp_path)
    holder = sqlite3.connect(tmp_path / "state.sqlite", isolation_level=None)
    with serving(state) as server:
        holder.execute("BEGIN IMMEDIATE")
        refused, streamed = post(server, BODY, "whole"), post(server, STREAMED, "stream")
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "store_failed")
        assert int(refused.headers["retry-after"]) >= 1
        assert "store_failed" in streamed.text and streamed.text.endswith("data: [DONE]\n\n")
        assert post(server, BODY, None).status_code == 200
        holder.execute("ROLLBACK")
        assert post(server, BODY, "whole").status_code == 200
        assert "store_failed" not in post(server, STREAMED, "stream").text
    holder.close()
    state.close()


def test_the_official_client_can_send_a_key(state: State) -> None:
    with serving(state) as server, OpenAI(base_url=f"{server.url}/v1", api_key="none") as client:
        ids = set()
        for _ in range(2):
            chunks = client.completions.create(
                model="fake", prompt="abc", max_tokens=4, stream=True, extra_headers={"Idempotency-Key": "k"}
            )
            ids |= {chunk.id for chunk in chunks}
        assert len(ids) == 1
