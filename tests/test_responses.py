"""/v1/responses over HTTP: made, streamed, asked for again, cancelled, deleted, and gone on with after a kill."""

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import OpenAI

from fairstep.serving.tenant_book import TenantBook
from fairstep.stores.state import State
from fairstep.tenants import digest_of
from fakes_text import FakeTokenizer
from fakes_worker import FakeRunner, fake_build
from live_server import LiveServer
from paced_server import paced_server

BODY = {"input": "abc", "max_output_tokens": 30}
LATER = {**BODY, "background": True}
DELTA = "response.output_text.delta"


class Gate:
    """Steps wait while it is shut."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.open.set()

    def __call__(self, plan: Any) -> None:
        assert self.open.wait(30)


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.open.set()


@pytest.fixture
def state(tmp_path: Path) -> Iterator[State]:
    state = State(tmp_path / "state")
    yield state
    state.close()


def live(state: State | None, gate: Gate | None = None, tenants: TenantBook | None = None) -> LiveServer:
    return LiveServer(
        "fake",
        app={"state": state, "tenants": tenants},
        in_process=True,
        tokenizer=FakeTokenizer(),
        build_worker=fake_build(FakeRunner(before=gate) if gate else None),
        tenants=tenants and tenants.current,
    )


def events_in(text: str) -> list[tuple[str, int | None, Any]]:
    """Kind, id and data of each event."""
    found = []
    for each in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in each.split("\n") if line and not line.startswith(":"))
        if fields:
            data = json.loads(fields["data"])
            found.append((fields["event"], int(fields["id"]) if "id" in fields else None, data))
    return found


def text_of(events: list[tuple[str, int | None, Any]]) -> str:
    return "".join(data["delta"] for kind, _, data in events if kind == DELTA)


def test_a_response_is_told_asked_for_again_and_deleted(state: State) -> None:
    with live(state) as server, httpx.Client(base_url=server.url) as http:
        made = http.post("/v1/responses", json=BODY)
        whole = made.json()
        assert made.status_code == 200 and whole["status"] == "incomplete" and whole["object"] == "response"
        assert whole["incomplete_details"] == {"reason": "max_output_tokens"}
        assert len(whole["output"][0]["content"][0]["text"]) == 30 == whole["usage"]["output_tokens"]
        path = f"/v1/responses/{whole['id']}"
        assert http.get(path).json() == whole
        events = events_in(http.get(path, params={"stream": "true"}).text)
        assert [number for _, number, _ in events] == list(range(len(events)))
        assert text_of(events) == whole["output"][0]["content"][0]["text"]
        assert events[-1][0] == "response.incomplete" and events[-1][2]["response"] == whole
        assert http.delete(path).json() == {"id": whole["id"], "object": "response", "deleted": True}
        for reply in (http.get(path), http.delete(path), http.post(f"{path}/cancel")):
            assert reply.status_code == 404 and reply.json()["error"]["code"] == "not_found"


def test_a_stream_can_be_taken_up_after_any_of_its_events(state: State) -> None:
    with live(state) as server, httpx.Client(base_url=server.url) as http:
        events = events_in(http.post("/v1/responses", json={**BODY, "stream": True}).text)
        path = f"/v1/responses/{events[0][2]['response']['id']}"
        for after in range(len(events)):
            rest = http.get(path, params={"stream": "true", "starting_after": after})
            assert events_in(rest.text) == events[after + 1 :]
            header = http.get(path, params={"stream": "true"}, headers={"Last-Event-ID": str(after)})
            assert header.text == rest.text
        assert http.get(path, params={"stream": "true", "starting_after": "x"}).status_code == 400


def test_what_is_not_stored_has_no_ids_and_is_not_found(state: State) -> None:
    with live(state) as server, httpx.Client(base_url=server.url) as http:
        events = events_in(http.post("/v1/responses", json={**BODY, "store": False, "stream": True}).text)
        assert {number for _, number, _ in events} == {None}
        assert http.get(f"/v1/responses/{events[0][2]['response']['id']}").status_code == 404


def test_background_work_goes_on_alone_and_can_be_polled_and_streamed(state: State, gate: Gate) -> None:
    with live(state, gate) as server, httpx.Client(base_url=server.url) as http:
        gate.open.clear()
        made = http.post("/v1/responses", json=LATER).json()
        assert made["status"] == "queued" and made["background"] is True
        path = f"/v1/responses/{made['id']}"
        assert http.get(path).json()["status"] == "queued"
        with http.stream("GET", path, params={"stream": "true"}) as stream:
            lines = stream.iter_lines()
            assert next(lines) == "event: response.created"
            gate.open.set()
            assert "event: response.incomplete" in list(lines)
        assert http.get(path).json()["status"] == "incomplete"
        server.call(server.engine.check)


def test_cancel_ends_background_work_once(state: State, gate: Gate) -> None:
    with live(state, gate) as server, httpx.Client(base_url=server.url) as http:
        gate.open.clear()
        path = f"/v1/responses/{http.post('/v1/responses', json=LATER).json()['id']}"
        told = [http.post(f"{path}/cancel").json() for _ in range(2)]
        gate.open.set()
        assert told[0]["status"] == "cancelled" and told[0] == told[1] == http.get(path).json()
        events = events_in(http.get(path, params={"stream": "true"}).text)
        assert events[-1][0] == "response.cancelled"
        assert server.call(server.engine.live).running == 0


def test_a_client_that_leaves_ends_what_it_waited_for(state: State, gate: Gate) -> None:
    with live(state, gate) as server, httpx.Client(base_url=server.url) as http:
        gate.open.clear()
        with http.stream("POST", "/v1/responses", json={**BODY, "stream": True}) as stream:
            lines = stream.iter_lines()  # held, for losing it closes the connection
            line = next(line for line in lines if line.startswith("data: "))
            path = f"/v1/responses/{json.loads(line.removeprefix('data: '))['response']['id']}"
            assert http.post(f"{path}/cancel").status_code == 409
        while http.get(path).json()["status"] == "in_progress":  # until the server has seen it leave
            time.sleep(0.01)
        gate.open.set()
        events = events_in(http.get(path, params={"stream": "true"}).text)  # to its end
        assert events[-1][0] == "response.cancelled"


def test_background_needs_a_folder_that_survives() -> None:
    with live(None) as server, httpx.Client(base_url=server.url) as http:
        refused = http.post("/v1/responses", json=LATER)
        assert refused.status_code == 400 and "--state" in refused.json()["error"]["message"]
        made = http.post("/v1/responses", json=BODY).json()
        assert http.get(f"/v1/responses/{made['id']}").json() == made


def test_refusals_name_the_field_and_leave_nothing(state: State) -> None:
    with live(state) as server, httpx.Client(base_url=server.url) as http:
        for body, param in (({"input": []}, "input"), ({**BODY, "max_output_tokens": 10**6}, "max_output_tokens")):
            refused = http.post("/v1/responses", json=body)
            assert refused.status_code == 400 and refused.json()["error"]["param"] == param
        assert state.responses.unfinished() == []


def test_another_tenants_response_is_not_found(state: State, tmp_path: Path) -> None:
    path = tmp_path / "tenants.toml"
    keys = "".join(f'[[tenants]]\nname = "{name}"\nkeys = ["{digest_of(name)}"]\n' for name in ("one", "two"))
    path.write_text(keys, encoding="utf-8")
    with live(state, tenants=TenantBook(path)) as server, httpx.Client(base_url=server.url) as http:
        mine, other = ({"Authorization": f"Bearer {name}"} for name in ("one", "two"))
        made = http.post("/v1/responses", json=BODY, headers=mine).json()["id"]
        assert http.get(f"/v1/responses/{made}", headers=mine).status_code == 200
        assert http.get(f"/v1/responses/{made}", headers=other).status_code == 404
        assert http.delete(f"/v1/responses/{made}", headers=other).status_code == 404


def test_a_key_makes_one_response(state: State) -> None:
    with live(state) as server, httpx.Client(base_url=server.url) as http:
        for body in (BODY, LATER, {**BODY, "stream": True}):
            key = {"Idempotency-Key": json.dumps(body)}
            first, again = (http.post("/v1/responses", json=body, headers=key) for _ in range(2))
            assert first.content == again.content and again.headers["idempotent-replayed"] == "true"


def test_the_official_client_reads_it(state: State) -> None:
    with live(state) as server, OpenAI(base_url=f"{server.url}/v1", api_key="none") as client:
        made = client.responses.create(model="fake", input="abc", max_output_tokens=5)
        assert made.output_text == client.responses.retrieve(made.id).output_text != ""
        kinds = [each.type for each in client.responses.create(model="fake", input="abc", stream=True)]
        assert kinds[0] == "response.created" and kinds[-1] == "response.incomplete"
        later = client.responses.create(model="fake", input="abc", background=True)
        stream = client.responses.retrieve(later.id, stream=True, starting_after=1)
        assert [each.type for each in stream][-1] == "response.incomplete"
        client.responses.delete(later.id)


@pytest.mark.parametrize("steps", [0, 4, 9, 29])
def test_after_a_kill_streams_go_on_without_a_gap_or_a_repeat(steps: int, tmp_path: Path) -> None:
    bodies = [
        LATER,
        {**LATER, "temperature": 1.0, "seed": 3},
        {**LATER, "max_output_tokens": 20, "stop": "xyz"},
    ]
    with paced_server(tmp_path / "control") as server:
        server.free()
        control = [httpx.post(f"{server.url}/v1/responses", json={**body, "stream": True}).text for body in bodies]
    heard: dict[str, str] = {}
    with paced_server(tmp_path / "state") as server, httpx.Client(base_url=server.url, timeout=30) as http:
        for body in bodies:
            made = http.post("/v1/responses", json=body).json()["id"]
            heard[made] = ""
        server.step(steps)
        for made in heard:
            heard[made] = _read_until(http, made, max(0, steps - 3))  # not all of them began with the first step
        server.kill()
    with paced_server(tmp_path / "state") as server, httpx.Client(base_url=server.url, timeout=30) as http:
        server.free()
        for (made, before), whole in zip(heard.items(), control, strict=True):
            last = events_in(before)[-1][1]
            after = http.get(f"/v1/responses/{made}?stream=true", headers={"Last-Event-ID": str(last)}).text
            events = events_in(before) + events_in(after)
            assert [number for _, number, _ in events] == list(range(len(events)))
            assert text_of(events) == text_of(events_in(whole))
            assert events[-1][0] == events_in(whole)[-1][0]
            assert http.get(f"/v1/responses/{made}").json() == events[-1][2]["response"]


def _read_until(http: httpx.Client, made: str, tokens: int) -> str:
    """The events of a stream until so many tokens have come."""
    lines: list[str] = []
    if not tokens:
        lines = http.get(f"/v1/responses/{made}").headers and ["event: response.created", "id: 0", "data: {}", ""]
        return "\n".join([*lines, ""])
    with http.stream("GET", f"/v1/responses/{made}?stream=true") as stream:
        for line in stream.iter_lines():
            lines.append(line)
            if not line and len(text_of(events_in("\n".join(lines)))) >= min(tokens, 19):
                return "\n".join([*lines, ""])
    return "\n".join(lines)
