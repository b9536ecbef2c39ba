"""Durable routes over HTTP on a full disk and in a locked file: 503 in words, nothing half written, and well again."""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import httpx
import pytest

from chaos.store_history import full_disk, locked
from fairstep.stores.state import DATABASE, State
from test_batches import begin, lines, until_ended, upload
from test_responses import LATER, live

PATH, ASKED = "/v1/completions", {"prompt": "abc", "max_tokens": 5}


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[State]:
    monkeypatch.setattr("fairstep.stores.database.BUSY_SECONDS", 0.01)
    state = State(tmp_path)
    yield state
    state.close()


def broken(state: State, fault: str) -> AbstractContextManager[None]:
    assert state.folder is not None and state._database is not None
    return full_disk(state._database._connection) if fault == "full" else locked(state.folder / DATABASE)


@pytest.mark.parametrize("fault", ["full", "locked"])
def test_what_cannot_be_kept_is_refused_in_words_and_can_be_asked_again(state: State, fault: str) -> None:
    named: dict[str, Any] = {"headers": {"Idempotency-Key": "k"}}
    later = {**LATER, "metadata": {str(place): "m" * 500 for place in range(16)}}
    with live(state) as server, httpx.Client(base_url=server.url, timeout=30) as http:
        file = upload(http, lines(2)).json()["id"]
        batch = {"metadata": {str(place): "m" * 500 for place in range(16)}}
        with broken(state, fault):
            refused = [http.post("/v1/responses", json=later), begin(http, file, **batch)]
            if fault == "locked":
                refused += [upload(http, lines(2)), http.post(PATH, json=ASKED, **named)]
            assert http.post(PATH, json=ASKED).status_code == 200, "what needs no store never notices"
        for reply in refused:
            assert reply.status_code == 503 and reply.json()["error"]["code"] == "store_failed"
            assert fault in reply.json()["error"]["message"] and reply.headers["retry-after"]
        assert not state.responses.unfinished() and not state.batches.unfinished()
        assert len(http.get("/v1/files").json()["data"]) == 1 and not http.get("/v1/batches").json()["data"]
        assert http.post("/v1/responses", json=later).status_code == 200
        again = [http.post(PATH, json=ASKED, **named) for _ in range(2)]
        assert again[0].content == again[1].content and "idempotent-replayed" not in again[0].headers
        assert until_ended(http, begin(http, file, **batch).json()["id"])["status"] == "completed"
        server.call(server.engine.check)
