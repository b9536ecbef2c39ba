"""Which engine answers to which name. A name moves to another engine at once; who was on the old one ends there.

Knows no HTTP. Each engine has its own waiting room, ledger and workers; what is counted across them is elsewhere.
"""

import asyncio
import hashlib
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..clock import wall_time
from ..errors import EngineClosed, EngineDead, EngineRecovering, UnknownModel
from ..exposition import text_of
from ..reception import Visit
from ..stats import DurableStats

if TYPE_CHECKING:
    from ..async_engine import AsyncEngine

REVISION_DIGITS = 12


class Served:
    """An engine under the name that clients use. Whoever works with it enters and leaves."""

    def __init__(self, name: str, engine: "AsyncEngine") -> None:
        self.name = name
        self.engine = engine
        self.stamp = stamp_of(engine.source)
        self._created = wall_time()
        self._users = 0
        self._unused = asyncio.Event()
        self._unused.set()

    @property
    def users(self) -> int:
        return self._users

    def enter(self) -> None:
        self._users += 1
        self._unused.clear()

    def leave(self) -> None:
        assert self._users > 0, f"nobody uses {self.name}"
        self._users -= 1
        if not self._users:
            self._unused.set()

    def take(self, visit: Visit) -> None:
        """A visit is for this one, until it leaves. Raises RateLimited where a limit of this model bars it."""
        self.enter()
        visit.on_leave = self.leave
        try:
            visit.address(self.name, self.engine.prospect, self.engine.refused)
        except BaseException:
            visit.leave(0, answered=False)
            raise

    @contextmanager
    def used(self) -> Generator["AsyncEngine", None, None]:
        """Its engine, for what generates nothing. Raises EngineClosed or EngineDead."""
        self.enter()
        try:
            self.engine.check_alive()
            yield self.engine
        finally:
            self.leave()

    async def unused(self) -> None:
        """Wait until nobody works with it."""
        await self._unused.wait()

    @property
    def revision(self) -> str:
        """What answers hang on beside the request: the model's files as they were loaded, and its numbers."""
        info = self.engine.info
        whole = f"{self.engine.source} {self.stamp} {info.dtype} {info.weights}"
        return hashlib.sha256(whole.encode()).hexdigest()[:REVISION_DIGITS]

    def still_is(self, source: str) -> bool:
        """Whether it serves `source` as its files are now. One that has failed for good does not."""
        with suppress(EngineClosed, EngineDead):
            self.engine.check_alive()
            return (self.engine.source, self.stamp) == (source, stamp_of(source))
        return False

    def card(self) -> dict[str, Any]:
        """As /v1/models shows it."""
        return {
            "id": self.name,
            "object": "model",
            "created": self._created,
            "owned_by": "fairstep",
            "root": self.name,
            "parent": None,
            "max_model_len": self.engine.info.context,
            "permission": [],
            "revision": self.revision,
        }

    def state(self) -> str:
        """ "ready", or why it cannot serve."""
        try:
            self.engine.check_ready()
        except (EngineClosed, EngineDead, EngineRecovering) as problem:
            return str(problem)
        return "ready"


class Models:
    """Owner of the names. The first one is that of requests that name none."""

    def __init__(self, *served: Served) -> None:
        self._by_name = {each.name: each for each in served}
        self._retired: list[Served] = []  # that somebody may still work with
        self._retirements = 0
        assert len(self._by_name) == len(served) > 0, "each name is served once, and one at least"

    def __iter__(self) -> Iterator[Served]:
        return iter(self._by_name.values())

    def __len__(self) -> int:
        return len(self._by_name)

    @property
    def first(self) -> Served:
        return next(iter(self))

    @property
    def only_name(self) -> str:
        """The name that every request is for; "" while there are several."""
        return self.first.name if len(self) == 1 else ""

    def of(self, name: str | None) -> Served:
        """Who answers to a name; none is the first's. Raises UnknownModel."""
        found = self._by_name.get(name) if name else self.first
        if found is None:
            names = ", ".join(repr(each) for each in self._by_name)
            verb = "is" if len(self) == 1 else "are"
            raise UnknownModel(f"the model {(name or '')[:200]!r} is not served here; {names} {verb}")
        return found

    def get(self, name: str) -> Served | None:
        return self._by_name.get(name)

    def move(self, served: Served) -> Served | None:
        """From now on its name is this one's; whose it was, if anybody's. That one is to be ended once it is unused."""
        before = self._by_name.get(served.name)
        self._by_name[served.name] = served
        return self._retire(before)

    def drop(self, name: str) -> Served | None:
        """Nobody answers to a name any more; whose it was. The last name stays: then None."""
        return self._retire(self._by_name.pop(name, None)) if len(self) > 1 else None

    def forget(self, served: Served) -> None:
        """One that was retired has ended."""
        self._retired.remove(served)

    def render(self, durable: DurableStats | None = None) -> bytes:
        """Prometheus text of all, also of those that end their last answers, which are told as NAME:retired-N."""
        told = [each.engine.stats() for each in (*self, *self._retired) if each.engine.has_started]
        return text_of(told, self.first.engine.metrics.prefix, durable)

    def states(self) -> Mapping[str, str]:
        """By name, as Served.state() tells."""
        return {each.name: each.state() for each in self}

    def check_ready(self) -> None:
        """Raise what the first one says if none can serve."""
        if not any(each.state() == "ready" for each in self):
            self.first.engine.check_ready()

    def check(self) -> None:
        assert all(name == each.name for name, each in self._by_name.items()), "a name is another's"
        assert not {*map(id, self)} & {*map(id, self._retired)}, "who is retired is still served"
        for each in self:
            with suppress(EngineDead):
                each.engine.check()

    def _retire(self, served: Served | None) -> Served | None:
        if served is not None:
            self._retired.append(served)
            self._retirements += 1
            served.engine.metrics.model_name = f"{served.name}:retired-{self._retirements}"
        return served


def stamp_of(source: str) -> int:
    """When a model's file, or one in its folder, was last changed, as far as its source is a path; else 0."""
    path = Path(source)
    with suppress(OSError):
        files = [path, *path.iterdir()] if path.is_dir() else [path]
        return max(file.stat().st_mtime_ns for file in files)
    return 0
