"""A front that is killed at a point between accept and answer: each durable request that it accepted ends once.

The client asks again for what it got no answer to, with the same key, from the front that is started after it.
"""

import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from chaos.front_points import DEEDS
from fairstep.stores.state import State
from test_batches import begin, lines, results, until_ended, upload
from test_responses import BODY, LATER, events_in, live, text_of

PROGRAM = Path(__file__).parent / "front_points.py"
PATH, ASKED = "/v1/completions", {"prompt": "abc", "max_tokens": 5}
LINES = 3
SLICE = 6


@contextmanager
def front(state: Path, last: int | str) -> Iterator[tuple["subprocess.Popen[str]", httpx.Client]]:
    command = [sys.executable, str(PROGRAM), str(state), str(last)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            with httpx.Client(base_url=process.stdout.readline().strip(), timeout=60) as http:
                yield process, http
        finally:
            process.kill()


class Client:
    """Asks for everything that is durable. `kept` is what it was told was accepted, or answered."""

    def __init__(self) -> None:
        self.kept: dict[str, Any] = {}
        self.heard: list[tuple[str, int | None, Any]] = []

    def ask(self, http: httpx.Client) -> None:
        """As far as the front lives. What was accepted is not asked for again."""
        self._once("later", lambda: self._made(http.post("/v1/responses", json=LATER, headers=_key("later"))))
        self._once("answer", lambda: _told(http.post(PATH, json=ASKED, headers=_key("answer"))).content)
        self._once("file", lambda: self._made(upload(http, lines(LINES))))
        self._once("batch", lambda: self._made(begin(http, self.kept["file"])))
        self._once("events", lambda: events_in(self._stream(http)))
        self._once("results", lambda: until_ended(http, self.kept["batch"])["output_file_id"])

    def _once(self, name: str, action: Callable[[], Any]) -> None:
        if name not in self.kept:
            self.kept[name] = action()

    def _made(self, reply: httpx.Response) -> str:
        made: str = _told(reply).json()["id"]
        return made

    def _stream(self, http: httpx.Client) -> str:
        return _told(http.get(f"/v1/responses/{self.kept['later']}", params={"stream": "true"})).text


def _told(reply: httpx.Response) -> httpx.Response:
    assert reply.status_code == 200, reply.text
    return reply


def _key(name: str) -> dict[str, str]:
    return {"Idempotency-Key": name}


def killed_at(place: int | str, folder: Path) -> Counter[str]:
    """A history with the front killed at its point `place`, and started again; what happened."""
    client = Client()
    with front(folder, place) as (process, http):
        with suppress(httpx.TransportError):
            client.ask(http)
        process.kill()
        assert process.stdout is not None
        points = process.stdout.read().split()
    before = dict(client.kept)
    state = State(folder)
    try:
        with live(state) as server, httpx.Client(base_url=server.url, timeout=60) as http:
            client.ask(http)
            judge(client, before, http, state)
            server.call(server.engine.check)
    finally:
        state.close()
    names = [" ".join(pair) for pair in zip(points[::2], points[1::2], strict=True)]
    killed = place in names if isinstance(place, str) else 0 < place <= len(names)
    point = (place if isinstance(place, str) else names[place - 1]) if killed else "none"
    counts = Counter({"accepted": len(before), "finished": len(client.kept), "points": len(names)})
    return counts + Counter({"killed": int(killed), point: 1, "duplicates dropped": int("answer" in before)})


def judge(client: Client, before: dict[str, Any], http: httpx.Client, state: State) -> None:
    """All has ended once, with all of its answer; what the client had been told is still so."""
    kept = client.kept
    assert [number for _, number, _ in kept["events"]] == list(range(len(kept["events"])))
    assert len(text_of(kept["events"])) == BODY["max_output_tokens"], "a token is lost or told twice"
    assert [kind for kind, _, _ in kept["events"]].count("response.incomplete") == 1
    assert http.get(f"/v1/responses/{kept['later']}").json() == kept["events"][-1][2]["response"]
    ids = [result["custom_id"] for result in results(http, kept["results"])]
    assert sorted(ids) == [f"line-{number}" for number in range(LINES)], "a line is lost or answered twice"
    again = _told(http.post(PATH, json=ASKED, headers=_key("answer")))
    assert again.content == kept["answer"] and again.headers["idempotent-replayed"] == "true"
    assert {**kept, **before} == kept
    for unfinished in (state.responses.unfinished, state.batches.unfinished):  # also what no client heard of
        while unfinished():
            threading.Event().wait(0.02)
    state.responses.check()


def points_of(folder: Path) -> int:
    return killed_at(0, folder)["points"]


def play(places: Iterable[int | str], folder: Path) -> Counter[str]:
    counts: Counter[str] = Counter()
    for place in places:
        try:
            counts += killed_at(place, folder / str(place))
        except AssertionError as error:
            raise AssertionError(f"killed at point {place}: {error}") from error
    return counts


def test_a_front_is_killed_at_some_points_and_each_request_ends_once(tmp_path: Path) -> None:
    count = points_of(tmp_path / "control")
    counts = play(range(count // SLICE, count + 1, count // SLICE), tmp_path)
    print(f"\n{count} points: {dict(sorted(counts.items()))}")
    assert counts["killed"] and counts["accepted"] and counts["finished"]


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_a_front_is_killed_at_every_point_and_each_request_ends_once(tmp_path: Path) -> None:
    count = points_of(tmp_path / "control")
    named = {f"{place} {owner.__name__}.{deed}" for owner, deed in DEEDS for place in ("before", "after")}
    counts = play([*range(1, count + 1), *sorted(named)], tmp_path)  # a number may stand for another point each time
    print(f"\n{count} points: {dict(sorted(counts.items()))}")
    assert named <= set(counts)
