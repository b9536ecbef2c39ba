"""draining.py: new work is refused in words, what is under way ends or its time is up; looking on goes on."""

import asyncio
from typing import Any

from fairstep.serving.draining import Draining
from fakes_serving import client_of, run

LONG = 1000.0


class Place:
    """An application whose work ends when told to."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.go_on = asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["method"] == "POST" and not scope["path"].endswith("/cancel"):
            self.begun.set()
            await self.go_on.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"done"})


def test_new_work_is_refused_and_what_is_under_way_ends() -> None:
    async def body() -> None:
        place = Place()
        draining = Draining(place, LONG)
        async with client_of(draining) as client:
            work = asyncio.create_task(client.post("/v1/completions"))
            await place.begun.wait()
            drain = asyncio.create_task(draining.drain())
            await asyncio.sleep(0)
            refused = await client.post("/v1/completions")
            assert refused.status_code == 503 and int(refused.headers["retry-after"]) > 0
            assert "shutting down" in refused.json()["error"]["message"]
            assert (await client.get("/health")).status_code == 503
            assert (await client.get("/metrics")).status_code == 200
            assert (await client.post("/v1/responses/x/cancel")).status_code == 200
            assert not drain.done()
            place.go_on.set()
            await drain
            assert (await work).text == "done"

    run(body)


def test_it_waits_no_longer_than_its_time() -> None:
    async def body() -> None:
        place = Place()
        draining = Draining(place, 0.01)
        async with client_of(draining) as client:
            work = asyncio.create_task(client.post("/"))
            await place.begun.wait()
            await draining.drain()
            assert not work.done()
            work.cancel()

    run(body)


def test_it_is_over_at_once_where_nothing_is_under_way() -> None:
    async def body() -> None:
        draining = Draining(Place(), LONG)
        async with client_of(draining) as client:
            assert (await client.get("/health")).status_code == 200
        await draining.drain()

    run(body)
