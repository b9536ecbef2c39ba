"""/v1/files and /v1/batches over HTTP, also across a kill."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import OpenAI

from fairstep.serving.tenant_book import TenantBook
from fairstep.stores.state import State
from fairstep.tenants import digest_of
from paced_server import paced_server
from test_responses import Gate, live

COMPLETIONS = "/v1/completions"


def lines(count: int, **fields: Any) -> bytes:
    body = {"prompt": "abc", "max_tokens": 4, **fields}
    line = {"method": "POST", "url": COMPLETIONS, "body": body}
    return b"\n".join(json.dumps({"custom_id": f"line-{n}", **line}).encode() for n in range(count))


def upload(http: httpx.Client, content: bytes, **more: Any) -> httpx.Response:
    return http.post("/v1/files", files={"file": ("in.jsonl", content)}, data={"purpose": "batch"}, **more)


def begin(http: httpx.Client, file_id: str, **fields: Any) -> httpx.Response:
    body = {"input_file_id": file_id, "endpoint": COMPLETIONS, "completion_window": "24h", **fields}
    return http.post("/v1/batches", json=body)


def until_ended(http: httpx.Client, batch_id: str) -> Any:
    while (batch := http.get(f"/v1/batches/{batch_id}").json())["status"] in ("in_progress", "cancelling"):
        threading.Event().wait(0.02)
    return batch


def results(http: httpx.Client, file_id: str | None) -> list[Any]:
    return (
        [] if file_id is None else [json.loads(line) for line in http.get(f"/v1/files/{file_id}/content").iter_lines()]
    )


@pytest.fixture
def state(tmp_path: Path) -> Iterator[State]:
    state = State(tmp_path / "state")
    yield state
    state.close()


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.open.set()


def test_a_batch_answers_every_line_and_sorts_errors_out(state: State) -> None:
    content = lines(20) + b"\n" + lines(1, max_tokens=10**6).replace(b"line-0", b"too-long")
    with live(state) as server, httpx.Client(base_url=server.url, timeout=30) as http:
        file = upload(http, content).json()
        assert (file["purpose"], file["filename"], file["bytes"]) == ("batch", "in.jsonl", len(content))
        made = begin(http, file["id"], metadata={"a": "b"}).json()
        assert made["request_counts"]["total"] == 21 and made["metadata"] == {"a": "b"}
        assert made["expires_at"] - made["created_at"] == 24 * 3600
        batch = until_ended(http, made["id"])
        assert batch["status"] == "completed" and batch["completed_at"]
        assert batch["request_counts"] == {"total": 21, "completed": 20, "failed": 1}
        good, bad = results(http, batch["output_file_id"]), results(http, batch["error_file_id"])
        assert {each["custom_id"] for each in good} == {f"line-{n}" for n in range(20)}
        assert all(len(each["response"]["body"]["choices"][0]["text"]) == 4 for each in good)
        assert [each["custom_id"] for each in bad] == ["too-long"]
        assert bad[0]["response"]["status_code"] == 400
        listed = http.get("/v1/batches").json()["data"]
        assert [each["id"] for each in listed] == [made["id"]]
        assert len(http.get("/v1/files").json()["data"]) == 3
        assert len(http.get("/v1/files", params={"purpose": "batch"}).json()["data"]) == 1
        assert http.post(f"/v1/batches/{made['id']}/cancel").json()["status"] == "completed"
        server.call(server.engine.check)


def test_lines_go_to_the_tenants_batch_tier(state: State, gate: Gate, tmp_path: Path) -> None:
    path = tmp_path / "tenants.toml"
    path.write_text(
        '[defaults]\ntier = "now"\n[[tiers]]\nname = "now"\n[[tiers]]\nname = "later"\n[[tenants]]\nname = "one"\n'
        f'tier = "now"\nbatch_tier = "later"\nkeys = ["{digest_of("one")}"]\n'
        f'[[tenants]]\nname = "two"\nkeys = ["{digest_of("two")}"]\n',
        encoding="utf-8",
    )
    headers = {"Authorization": "Bearer one"}
    with live(state, gate, tenants=TenantBook(path)) as server:
        with httpx.Client(base_url=server.url, timeout=30, headers=headers) as http:
            batch = begin(http, upload(http, lines(5)).json()["id"]).json()
            assert until_ended(http, batch["id"])["status"] == "completed"
            stats = server.call(server.engine.stats)
            assert (stats.tier("now").ended, stats.tier("later").ended) == (0, 5)
        with httpx.Client(base_url=server.url, headers={"Authorization": "Bearer two"}) as http:
            for path in (f"/v1/batches/{batch['id']}", f"/v1/files/{batch['input_file_id']}"):
                assert http.get(path).status_code == 404
            assert http.get("/v1/batches").json()["data"] == http.get("/v1/files").json()["data"] == []


def test_cancel_leaves_what_was_answered(state: State, gate: Gate) -> None:
    with live(state, gate) as server, httpx.Client(base_url=server.url, timeout=30) as http:
        file = upload(http, lines(50)).json()
        gate.open.clear()
        batch = begin(http, file["id"]).json()
        assert http.delete(f"/v1/files/{file['id']}").status_code == 409
        told = http.post(f"/v1/batches/{batch['id']}/cancel").json()
        assert told["status"] in ("cancelling", "cancelled")
        gate.open.set()
        ended = until_ended(http, batch["id"])
        assert ended["status"] == "cancelled" and ended["cancelled_at"]
        assert ended["request_counts"]["completed"] == len(results(http, ended["output_file_id"])) < 50
        assert http.delete(f"/v1/files/{file['id']}").json()["deleted"] is True
        assert http.get(f"/v1/files/{file['id']}").status_code == 404


@pytest.mark.parametrize(
    ("content", "words"), [(b"", "no line"), (b"{}", "line 1: "), (lines(1) + b"\n" + lines(1), "line 2: .*twice")]
)
def test_a_wrong_file_is_refused_when_it_comes(state: State, content: bytes, words: str) -> None:
    with live(state) as server, httpx.Client(base_url=server.url) as http:
        refused = upload(http, content)
        assert refused.status_code == 400 and words.split(".*")[0] in refused.json()["error"]["message"]
        assert http.get("/v1/files").json()["data"] == []
        assert http.post("/v1/files", files={"file": b"x"}, data={"purpose": "fine-tune"}).status_code == 400
        assert http.post("/v1/files", json={}).status_code == 415
    assert state.folder is not None and list((state.folder / "files").iterdir()) == []


def test_a_wrong_batch_is_refused_by_its_field(state: State) -> None:
    with live(state) as server, httpx.Client(base_url=server.url) as http:
        file_id = upload(http, lines(1)).json()["id"]
        for fields, param in (
            ({"endpoint": "/v1/chat/completions"}, "endpoint"),
            ({"endpoint": "/v1/embeddings"}, "endpoint"),
            ({"completion_window": "25h"}, "completion_window"),
            ({"metadata": {"a": 1}}, "metadata"),
        ):
            refused = begin(http, file_id, **fields)
            assert refused.status_code == 400 and refused.json()["error"]["param"] == param
        assert begin(http, "file-unknown").status_code == 404
        assert http.get("/v1/batches/unknown").status_code == 404


def test_without_a_folder_they_are_refused_in_words() -> None:
    with live(None) as server, httpx.Client(base_url=server.url) as http:
        for reply in (http.get("/v1/files"), http.get("/v1/batches/x"), http.post("/v1/batches", json={})):
            assert reply.status_code == 400 and "--state" in reply.json()["error"]["message"]


def test_the_official_client_runs_a_batch(state: State) -> None:
    with live(state) as server, OpenAI(base_url=f"{server.url}/v1", api_key="none") as client:
        file = client.files.create(file=("in.jsonl", lines(3)), purpose="batch")
        batch = client.batches.create(input_file_id=file.id, endpoint=COMPLETIONS, completion_window="24h")
        with httpx.Client(base_url=server.url) as http:
            until_ended(http, batch.id)
        batch = client.batches.retrieve(batch.id)
        assert batch.output_file_id and len(client.files.content(batch.output_file_id).text.splitlines()) == 3


def test_after_a_kill_a_batch_has_each_line_once(tmp_path: Path) -> None:
    count = 200
    with paced_server(tmp_path) as server, httpx.Client(base_url=server.url, timeout=30) as http:
        batch = begin(http, upload(http, lines(count)).json()["id"]).json()
        server.step(150)
        while not (done := http.get(f"/v1/batches/{batch['id']}").json()["request_counts"]["completed"]) >= 20:
            threading.Event().wait(0.02)
        server.kill()
    with paced_server(tmp_path) as server, httpx.Client(base_url=server.url, timeout=30) as http:
        before = http.get(f"/v1/batches/{batch['id']}").json()
        assert before["status"] == "in_progress"
        server.free()
        ended = until_ended(http, batch["id"])
        ids = [each["custom_id"] for each in results(http, ended["output_file_id"])]
        assert sorted(ids) == sorted(f"line-{n}" for n in range(count))
        assert ended["request_counts"] == {"total": count, "completed": count, "failed": 0} and done >= 20
