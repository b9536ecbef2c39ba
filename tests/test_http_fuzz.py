"""The way through the whole server, at random and in virtual time: nothing is left at the end, and all is counted once.

Refusals, cancels, clients that go, new tenants files, deadlines that pass and a store that fails, at every stage.
"""

import asyncio
import json
import re
from collections import Counter
from collections.abc import Sequence
from math import inf
from pathlib import Path
from random import Random
from typing import Any

import pytest

from fairstep import AsyncEngine, EngineConfig
from fairstep.admission.admission import Admission
from fairstep.admission.bounded_queue import NONE, QueueBounds
from fairstep.admission.limit_store import Draw, MemoryLimits
from fairstep.admission.limits import Limit, Need, Quantities
from fairstep.admission.rate_limits import RateLimits, Reservation
from fairstep.errors import StoreFailed
from fairstep.serving.app import create_app
from fairstep.serving.tenant_book import TenantBook
from fairstep.tenants import TenantTerms, digest_of
from fakes_worker import settings
from virtual_time import TimedLink, VirtualRunner, virtual_engine

STEP = 0.5
REQUESTS, RELOADS, STORE_TURNS = 70, 12, 6
SECONDS = 60.0  # in which they come
TENANTS = ("a", "b", "c")
EVERY_CODE = {
    "concurrency_limit_exceeded",
    "context_length_exceeded",
    "deadline_exceeded",
    "insufficient_quota",
    "invalid_api_key",
    "invalid_request",
    "model_not_found",
    "rate_limit_exceeded",
    "server_overloaded",
    "store_failed",
    "tenant_queue_full",
}
TOLD = {200, 400, 401, 404, 429, 499, 503, 504}


class ShakyStore(MemoryLimits):
    """A store that fails while it is told to."""

    fails = False

    def take(self, draws: Sequence[Draw]) -> Draw | None:
        self._maybe_fail()
        return super().take(draws)

    def add(self, draws: Sequence[Draw]) -> None:
        self._maybe_fail()
        super().add(draws)

    def _maybe_fail(self) -> None:
        if self.fails:
            raise StoreFailed("disk full")


class CountedLimits(RateLimits):
    """Remembers what every reservation came to."""

    def __init__(self, store: MemoryLimits) -> None:
        super().__init__(store)
        self.open: list[Reservation] = []
        self.used: Counter[tuple[str, str]] = Counter()  # of months, by tenant and counter

    def reserve(self, *args: Any, **more: Any) -> Reservation:
        reservation = super().reserve(*args, **more)
        self.open.append(reservation)
        return reservation

    def settle(self, reservation: Reservation, actual: Quantities, *, now: float) -> None:
        places = [place for place, each in enumerate(self.open) if each is reservation]
        assert len(places) == 1, "settled twice, or never reserved"
        del self.open[places[0]]
        for limit, _ in reservation.taken:
            if limit.per == "month":
                self.used[reservation.tenant, limit.counted] += limit.part(actual)
        super().settle(reservation, actual, now=now)


class SlowEngine(AsyncEngine):
    """Tokenizing takes time, so that things happen meanwhile."""

    random = Random(0)

    async def encode(self, text: str, *, add_special: bool = True, any_length: bool = False) -> tuple[int, ...]:
        await asyncio.sleep(self.random.choice((0.0, 0.0, 0.3, 3.0)))
        return await super().encode(text, add_special=add_special, any_length=any_length)


class Server:
    """The application over an engine in virtual time, and all that may happen to it."""

    def __init__(self, engine: AsyncEngine, path: Path, random: Random) -> None:
        self.engine, self.path, self.random = engine, path, random
        self.store = ShakyStore()
        self.admission = Admission(QueueBounds(entries=6, tokens=90, bytes=2000), self.store)
        self.limits = CountedLimits(self.store)
        self.admission._limits = self.limits
        self.write()
        self.book = TenantBook(path)
        engine.tenants = self.book.current
        self.app = create_app(engine, tenants=self.book, admission=self.admission, ping_seconds=4.0)
        self.statuses: Counter[int] = Counter()
        self.told: Counter[str] = Counter()

    def write(self) -> None:
        """Another tenants file; now and then a wrong one."""
        random = self.random
        lines = ['[[tiers]]\nname = "one"', f'[[tiers]]\nname = "two"\nmin_share = {random.choice((0.0, 0.2, 0.5))}']
        lines.append('[defaults]\ntier = "one"')
        for name in TENANTS:
            lines.append(f'[[tenants]]\nname = "{name}"\nkeys = ["{digest_of(name)}"]')
            lines.append(f'tier = "{random.choice(("one", "two"))}"\nweight = {random.randint(1, 3)}')
            for key, values in (("max_concurrent", (2, 6)), ("max_running", (1, 2)), ("queue_share", (0.2, 0.6))):
                if (value := random.choice((None, *values))) is not None:
                    lines.append(f"{key} = {value}")
            lines.append("limits = [" + ", ".join(limit for limit in self.some_limits() if random.random() < 0.6) + "]")
        broken = ["nonsense"] if random.random() < 0.15 and self.path.exists() else []
        self.path.write_text("\n".join(lines + broken), encoding="utf-8")

    def some_limits(self) -> list[str]:
        amount = self.random.randint(1, 12)
        return [
            f'{{ what = "requests", per = "minute", amount = {amount} }}',
            f'{{ what = "tokens", per = "minute", amount = {40 * amount} }}',
            f'{{ what = "requests", per = "month", amount = {3 * amount} }}',
            f'{{ what = "output_tokens", per = "month", amount = {20 * amount}, endpoint = "/v1/*" }}',
        ]

    async def reload(self) -> None:
        await asyncio.sleep(self.random.uniform(0, SECONDS))
        self.write()
        if self.book.reload():
            self.engine.tenants = self.book.current
        self.check()

    async def turn_the_store(self) -> None:
        await asyncio.sleep(self.random.uniform(0, SECONDS))
        self.store.fails = True
        await asyncio.sleep(self.random.uniform(0, 3))
        self.store.fails = False

    async def ask(self) -> None:
        """One client, from its connection to its end."""
        random = self.random
        await asyncio.sleep(random.choice((random.uniform(0, SECONDS), 5 * random.randint(0, 10))))
        path, body = self.body()
        gone = asyncio.Event()
        leave_in = random.choice((None, None, random.uniform(0, 3), random.uniform(0, 20)))
        if leave_in is not None:
            asyncio.get_running_loop().call_later(leave_in, gone.set)
        status, text = await self.call(path, body, random.choice((*TENANTS * 5, "stranger")), gone)
        self.statuses[status] += 1
        assert status in TOLD, (status, text)
        assert "internal_error" not in text, text
        self.told.update(re.findall(r'"code":"(\w+)"', text))
        self.check()

    def body(self) -> tuple[str, dict[str, Any]]:
        random = self.random
        if random.random() < 0.1:
            return "/tokenize", {"prompt": "abc"}
        good: list[Any] = [[1, 2, 3], "a few words", ["one", "two"], [5] * 60, ["x"] * 4]
        prompt = random.choice(("x" * 300, 7)) if random.random() < 0.05 else random.choice(good)
        fields: dict[str, Any] = {"prompt": prompt, "max_tokens": random.choice((0, 1, 4, 20, None))}
        more = {
            "n": (2, 3, 99),
            "stream": (True,),
            "deadline_ms": (1, 100, 1500, 6000, 30_000),
            "ttft_deadline_ms": (700, 4000),
            "priority": (-1, 5),
            "service_tier": ("batch", "flex"),
            "model": ("fake", "fake", "fake", "other"),
        }
        for key, values in more.items():
            if random.random() < 0.25:
                fields[key] = random.choice(values)
        return "/v1/completions", fields

    async def call(self, path: str, body: dict[str, Any], key: str, gone: asyncio.Event) -> tuple[int, str]:
        """A request over ASGI; its body comes after a while, if the client is still there."""
        raw, parts, status = json.dumps(body).encode(), [], 499
        slow = self.random.choice((0.0, 0.0, 0.4))
        bodies = [raw]

        async def receive() -> dict[str, Any]:
            if not bodies:
                await gone.wait()
                return {"type": "http.disconnect"}
            try:
                await asyncio.wait_for(gone.wait(), slow)
                return {"type": "http.disconnect"}
            except TimeoutError:
                return {"type": "http.request", "body": bodies.pop(), "more_body": False}

        async def send(message: dict[str, Any]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            else:
                parts.append(message.get("body", b""))

        headers = [(b"authorization", f"Bearer {key}".encode()), (b"content-type", b"application/json")]
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "scheme": "http",
            "path": path, "raw_path": path.encode(), "query_string": b"", "root_path": "", "headers": headers,
            "client": ("127.0.0.1", 1), "server": ("test", 80),
        }  # fmt: skip
        await self.app(scope, receive, send)  # type: ignore[arg-type]
        return status, b"".join(parts).decode()

    def check(self) -> None:
        self.admission.check()
        self.engine.check()

    def check_nothing_is_left(self) -> None:
        self.check()
        assert (self.admission.live, self.admission.waiting, self.admission.next_due) == (0, NONE, inf)
        assert self.limits.open == [], "a reservation leaks"
        live = self.engine.live()
        assert (live.running, live.waiting) == (0, 0)
        self.store.fails = False
        last = self.admission.arrive("last", LAST, endpoint="/", model="m", size=0, now=self.engine.now())
        self.admission.count(last, Need(prompt_tokens=0, max_tokens=0), now=self.engine.now(), unix=0.0)
        last.release(self.engine.now())  # corrections that the store could not take are made with this one
        counted: Counter[tuple[str, str]] = Counter()
        for counts in self.store._counts.values():
            counted.update(counts)
        assert +counted == +self.limits.used, "a month counts something else than what was used"


LAST = TenantTerms("last", limits=(Limit(what="requests", per="month", amount=1),))


def play(seed: int, path: Path) -> Server:
    random = Random(seed)
    batching = "static" if seed % 5 == 4 else "continuous"
    link = TimedLink(settings(seats=3, static=batching == "static"), STEP, slow=seed % 2 == 0)
    config = EngineConfig(batching=batching, quantum=20, batch_delay_ms=2000, max_seats=3)
    runner: VirtualRunner
    with virtual_engine(link, config, SlowEngine) as (engine, runner):
        engine.random = random  # type: ignore[attr-defined]

        async def all_of_it() -> Server:
            async with engine:
                server = Server(engine, path, random)
                acts = [server.ask() for _ in range(REQUESTS)]
                acts += [server.reload() for _ in range(RELOADS)]
                acts += [server.turn_the_store() for _ in range(STORE_TURNS)]
                await asyncio.gather(*acts)
                await asyncio.sleep(3 * STEP)  # the worker hears of the last cancels
                server.check_nothing_is_left()
                assert link.loop.report().gauges.pages_used == 0
                return server

        return runner.run(all_of_it())


@pytest.mark.parametrize("seed", range(16))
def test_nothing_leaks_whatever_happens_on_the_way(seed: int, tmp_path: Path) -> None:
    server = play(seed, tmp_path / "tenants.toml")
    assert sum(server.statuses.values()) == REQUESTS


def test_the_fuzz_reaches_every_kind_of_end(tmp_path: Path) -> None:
    statuses: Counter[int] = Counter()
    told: Counter[str] = Counter()
    for seed in range(20, 28):
        server = play(seed, tmp_path / f"{seed}.toml")
        statuses += server.statuses
        told += server.told
    assert set(statuses) == TOLD, statuses
    print(f"codes told: {dict(told)}")
    assert set(told) >= EVERY_CODE, EVERY_CODE - set(told)
