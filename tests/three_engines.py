"""One face for the three ways to run the engine, so that one suite can run against all: Engine, AsyncEngine with a
thread, AsyncEngine with a process."""

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from fairstep import AsyncEngine, Completion, Delta, Engine, EngineConfig, SamplingParams
from fairstep.door import StepRecord

KINDS = ("engine", "thread", "process")
T = TypeVar("T")


@dataclass(frozen=True)
class Ask:
    """One request of a test. `cancel_after`: leave after so many deltas. `wait_for`: start after so many steps."""

    prompt: str | Sequence[int]
    params: SamplingParams
    cancel_after: int | None = None
    after_deltas: int = 0  # start when the first ask has given so many deltas
    priority: int = 0


class Face(Protocol):
    def answer(self, asks: Sequence[Ask]) -> list[list[Delta]]: ...
    def steps(self) -> Sequence[StepRecord]: ...
    def metrics(self) -> str: ...
    def settle(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def join(deltas: list[Delta]) -> Completion:
    return Completion.join(deltas)


class SyncFace:
    """Engine."""

    def __init__(self, model: str, config: EngineConfig, **parts: Any) -> None:
        self.engine = Engine(model, config, **parts)

    def answer(self, asks: Sequence[Ask]) -> list[list[Delta]]:
        got: list[list[Delta]] = [[] for _ in asks]
        ids: dict[str, int] = {}
        waiting = list(range(len(asks)))
        assert not asks[0].after_deltas, "the first would wait for itself"
        while waiting or self.engine.has_requests:
            for place in [p for p in waiting if len(got[0]) >= asks[p].after_deltas]:
                waiting.remove(place)
                ask = asks[place]
                ids[self.engine.submit(ask.prompt, ask.params, priority=ask.priority)] = place
            for delta in self.engine.step():
                place = ids[delta.request_id]
                got[place].append(delta)
                if len(got[place]) == asks[place].cancel_after:
                    self.engine.cancel(delta.request_id)
            self.engine.check()
        return got

    def steps(self) -> Sequence[StepRecord]:
        return self.engine.steps

    def metrics(self) -> str:
        return self.engine.render_metrics().decode()

    def settle(self) -> None:
        self.engine.step()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.engine.close()


class AsyncFace:
    """AsyncEngine on a loop of its own."""

    def __init__(self, model: str, config: EngineConfig, *, in_process: bool, **parts: Any) -> None:
        self.engine = AsyncEngine(model, config, in_process=in_process, **parts)
        self._runner = asyncio.Runner()

    def run(self, body: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(body)

    def answer(self, asks: Sequence[Ask]) -> list[list[Delta]]:
        got: list[list[Delta]] = [[] for _ in asks]
        assert not asks[0].after_deltas, "the first would wait for itself"
        grew = asyncio.Condition()

        async def one(place: int) -> None:
            ask = asks[place]
            async with grew:
                await grew.wait_for(lambda: len(got[0]) >= ask.after_deltas)
            ids = await self.engine.encode(ask.prompt) if isinstance(ask.prompt, str) else ask.prompt
            stream = self.engine.submit(ids, ask.params, priority=ask.priority)
            async for delta in stream:
                got[place].append(delta)
                async with grew:
                    grew.notify_all()
                if len(got[place]) == ask.cancel_after:
                    stream.cancel()
            self.engine.check()

        async def all_of_them() -> None:
            await asyncio.gather(*(one(place) for place in range(len(asks))))

        self.run(all_of_them())
        return got

    def steps(self) -> Sequence[StepRecord]:
        return self.engine.steps

    def metrics(self) -> str:
        return self.engine.render_metrics().decode()

    def settle(self) -> None:
        """Let Reports come in until nothing is used."""

        async def until_idle() -> None:
            while self.engine.live().kv_usage or self.engine.live().running:
                await asyncio.sleep(0.01)

        self.run(until_idle())

    def __enter__(self) -> Self:
        try:
            self.run(self.engine.start())
        except BaseException:
            self._runner.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.run(self.engine.stop())
        self._runner.close()


def engine_of(kind: str, model: str, config: EngineConfig | None = None, **parts: Any) -> SyncFace | AsyncFace:
    """The face of one kind; start it with `with`."""
    config = config or EngineConfig()
    if kind == "engine":
        return SyncFace(model, config, **parts)
    return AsyncFace(model, config, in_process=kind == "thread", **parts)
