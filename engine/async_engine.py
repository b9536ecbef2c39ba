"""The asynchronous engine: one front on the event loop, workers behind the door (processes, or one in a thread).

Everything but loading and tokenizing runs on the loop, in short turns; nothing here computes.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from math import inf
from types import TracebackType
from typing import Any, Self, Unpack
from weakref import WeakValueDictionary

from .admission.deadlines import Deadlines
from .admission.forecast import Prospect
from .admission.limits import Need
from .clock import Clock, MonotonicClock
from .config import EngineConfig
from .crew import Crew
from .door import Ready, Report, StepRecord
from .engine import Prompt, quiet
from .errors import (
    ConfigError,
    ContextTooLong,
    EngineClosed,
    EngineDead,
    EngineRecovering,
    FairstepError,
    ModelError,
)
from .front import Front
from .front_setup import least_of, make_front
from .links import Build, Link, ProcessLink, ThreadLink
from .machine import Machine
from .metrics import Metrics
from .request import Completion, Delta, Place, Request, SamplingParams, Usage
from .scaling import Scale, wanted
from .stations import mismatch
from .stats import Live, Stats
from .streams import PromptStream, Stream
from .supervisor import Death
from .tenants import Tenants, TenantTerms
from .text.tokenizer import Tokenizer, load_tokenizer
from .text_thread import SHORT_TEXT, TextThread, characters
from .worker import ProgressCall, build
from .workforce import FIRST

SCALING_SECONDS = 1.0  # between two looks at how many workers are wanted
NOT_STARTED = "the engine has not started"
CLOSED = "the engine was closed"
log = logging.getLogger(__name__)


class AsyncEngine:
    """A model served to many callers of one event loop.

    >>> async with AsyncEngine("smollm2") as engine:
    ...     async for delta in engine.stream("The sky is", SamplingParams(max_tokens=8)):
    ...         print(delta.text, end="", flush=True)

    Workers are processes of their own, config.workers of them; one that dies is started again, and what it computed
    goes on. `in_process=True` runs one in a thread instead, which is slower beside other Python code (see ThreadLink)
    and has one life. model, config, progress, tenants: as Engine. Raises ModelError or ConfigError from start().
    """

    def __init__(
        self,
        model: str,
        config: EngineConfig | None = None,
        *,
        in_process: bool = False,
        model_name: str | None = None,
        metrics: Metrics | None = None,
        progress: ProgressCall = quiet,
        clock: Clock | None = None,
        tokenizer: Tokenizer | None = None,
        tenants: Tenants | None = None,
        build_worker: Build = build,
        new_link: Callable[[], Link] | None = None,
    ) -> None:
        self.config = (config or EngineConfig()).resolved(Machine.found())
        self._clock = clock or MonotonicClock()
        self.model_name = model_name or model
        self.metrics = metrics or Metrics(model_name=self.model_name)
        self.failure: str | None = NOT_STARTED
        self.seconds: dict[str, float] = {}
        self._model = model
        self._progress = progress
        self._tokenizer = tokenizer
        if in_process and self.config.worker_span[1] > 1:
            raise ConfigError(f"workers is {self.config.workers}, but in_process has the only one in a thread")
        if in_process and self.config.spare:
            raise ConfigError("spare asks for one more worker, but in_process has the only one in a thread")
        self._crew = Crew(
            new_link or ((lambda: ThreadLink(build_worker)) if in_process else ProcessLink),
            self.config.worker_span[0],
            self,
            now=self._clock.now,
            timeout=self.config.worker_timeout,
            restarts=not in_process,
            spares=int(self.config.spare),
        )
        self._scale = Scale(*self.config.worker_span)
        self._scaled_at = -inf
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ready: asyncio.Future[Ready] | None = None
        self._infos: dict[int, Ready] = {}  # of workers that are ready, by number
        self._last_death = ""
        self._front: Front | None = None
        # weak: a stream that its reader has lost must be collected, which cancels it
        self._streams: WeakValueDictionary[str, Stream] = WeakValueDictionary()
        self._texts = TextThread()
        self._tenants = tenants or Tenants()
        self._alarm: asyncio.TimerHandle | None = None  # set for the front's next wake
        self._alarm_at: float | None = None

    # --- life

    async def start(self) -> None:
        """Load model and tokenizer side by side; once. Raises ModelError, ConfigError, EngineClosed or EngineDead."""
        if self._loop is not None or self.failure != NOT_STARTED:
            raise EngineClosed("an engine starts only once: make a new one")
        began = self._clock.now()
        self._loop = asyncio.get_running_loop()
        self._ready = self._loop.create_future()
        try:
            await self._crew.start(self._model, self.config)
            if self._tokenizer is None:
                self._tokenizer = await asyncio.to_thread(load_tokenizer, self._model)
            self.seconds["tokenizer"] = self._clock.now() - began
            await asyncio.to_thread(self._tokenizer.prepare)
            info = await self._ready
            if self.failure != NOT_STARTED:
                raise EngineDead(self.failure)
        except BaseException:
            if not self._ready.cancel() and not self._ready.cancelled():
                self._ready.exception()  # seen: the first error is the one told
            await self.stop()
            raise
        self.seconds["ready"] = self._clock.now() - began
        self._front = make_front(self.config, info, self._tokenizer, self.metrics, self._tenants)
        for number in self._infos.keys() - {FIRST}:  # the first is the one that the front begins with
            self._front.join(number, self._infos[number])
        self.failure = None

    async def stop(self) -> None:
        """End what is under way with an error, then the worker. Harmless when stopped."""
        self._fail(CLOSED)
        self._texts.close()
        await self._crew.stop()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    @property
    def tenants(self) -> Tenants:
        """The terms of requests that bring none of their own."""
        return self._tenants

    @tenants.setter
    def tenants(self, tenants: Tenants) -> None:
        """Replace the book, for requests to come; on the engine's loop."""
        self._tenants = tenants
        if self._front is not None:
            self._front.use(tenants, least_of(tenants.tiers))

    # --- text

    @property
    def tokenizer(self) -> Tokenizer:
        assert self._tokenizer is not None, "start() first"
        return self._tokenizer

    async def encode(self, text: str, *, add_special: bool = True, any_length: bool = False) -> tuple[int, ...]:
        """Token ids of a text; long texts are tokenized off the event loop. Raises InvalidRequest or ContextTooLong.

        add_special: with what the model's tokenizer puts before and after a text. any_length: also of a text that
        cannot fit the context, for callers that cut it.
        """
        if len(text) > SHORT_TEXT:
            self._check_length(len(text), any_length)
            return await self._texts.run(len(text), lambda: self.tokenizer.encode(text, add_special=add_special))
        return tuple(self.tokenizer.encode(text, add_special=add_special))

    async def encode_chat(
        self, messages: Sequence[Mapping[str, Any]], *, any_length: bool = False, **how: Any
    ) -> tuple[int, ...]:
        """Token ids of a conversation through the model's chat template, off the event loop.

        how: as in Tokenizer.render. Raises TemplateError, InvalidRequest or ContextTooLong.
        """
        length = characters(messages)
        self._check_length(length, any_length)
        return await self._texts.run(length, lambda: self.tokenizer.encode_chat(messages, **how))

    def _check_length(self, length: int, any_length: bool) -> None:
        """Refuse a text that cannot fit before it is tokenized."""
        context = self._alive().info.context
        if length > context * self.tokenizer.longest_token and not any_length:
            raise ContextTooLong(
                f"a text of {length} characters is longer than the context of {context} tokens", "prompt"
            )

    # --- requests

    def submit(self, prompt_ids: Sequence[int], params: SamplingParams | None = None, **place: Unpack[Place]) -> Stream:
        """Let token ids wait for their turn. Call it on the engine's loop; RuntimeError elsewhere.

        place: tenant, terms, priority, deadlines, arrival, request_id (see Place). Raises InvalidRequest naming the
        field, ContextTooLong, EngineClosed or EngineDead.
        """
        return self.submit_group(prompt_ids, params, 1, **place)[0]

    def submit_group(
        self, prompt_ids: Sequence[int], params: SamplingParams | None, n: int, **place: Unpack[Place]
    ) -> list[Stream]:
        """Let n answers to one prompt wait for their turn: the prompt is computed once, each draws with its own seed.

        As Request.siblings tells; all or none are taken. Otherwise like submit().
        """
        front = self._alive()
        if asyncio.get_running_loop() is not self._loop:
            raise RuntimeError("submit() must be called on the event loop that started the engine")
        now = self._clock.now()
        requests = Request.at(prompt_ids, params, now, place).siblings(n)
        ended = front.submit(*requests, now=now)
        streams = [Stream(request.id, self._cancel) for request in requests]
        self._streams.update({stream.request_id: stream for stream in streams})
        self._deliver(ended)
        self._send_orders()
        return streams

    def stream(self, prompt: Prompt, params: SamplingParams | None = None, **place: Unpack[Place]) -> PromptStream:
        """The answer to a text or to token ids, for `async for`; leaving the loop cancels it. place: see submit()."""
        place.setdefault("arrival", self._clock.now())

        async def open_stream() -> Stream:
            ids = await self.encode(prompt) if isinstance(prompt, str) else prompt
            return self.submit(ids, params, **place)

        return PromptStream(open_stream)

    async def generate(
        self, prompt: Prompt, params: SamplingParams | None = None, **place: Unpack[Place]
    ) -> Completion:
        """The whole answer to a text or to token ids; cancelling the task cancels the request."""
        place.setdefault("arrival", self._clock.now())
        ids = await self.encode(prompt) if isinstance(prompt, str) else prompt
        return await self.submit(ids, params, **place).completion()

    def prospect(
        self, need: Need, terms: TenantTerms, deadlines: Deadlines, now: float, *, priority: int = 0
    ) -> Prospect | None:
        """What to expect of a request that comes now, as Front.prospect tells."""
        return self._alive().prospect(need, terms, deadlines, now, priority=priority)

    def now(self) -> float:
        """The engine's clock, in seconds: what deadlines and arrivals are measured on."""
        return self._clock.now()

    # --- what is going on

    def check_alive(self) -> None:
        """Raise EngineClosed or EngineDead with the reason if the engine cannot serve."""
        self._alive()

    def check_ready(self) -> None:
        """Raise as check_alive(), and EngineRecovering while no worker is ready."""
        self._alive()
        if not self._crew.size:
            seconds = min((at - self._clock.now() for at in self._crew.coming), default=0.0)
            told = f"{self._last_death}; another worker is being started"
            raise EngineRecovering(told, retry_after=max(1.0, seconds))

    @property
    def source(self) -> str:
        """What the model was loaded from, as it was named."""
        return self._model

    @property
    def has_started(self) -> bool:
        """Whether it was ever ready."""
        return self._front is not None

    @property
    def info(self) -> Ready:
        """What the first worker loaded."""
        return self._started().info

    @property
    def steps(self) -> Sequence[StepRecord]:
        """The last steps as planned and as they went, oldest first."""
        return tuple(self._started().steps)

    def seq_of(self, request_id: str) -> int | None:
        """The sequence number by which `steps` name a live request."""
        return self._started().seq_of(request_id)

    def live(self) -> Live:
        """Running, waiting and KV use, as they are now."""
        return self._started().live()

    def render_metrics(self) -> bytes:
        """Prometheus text of this engine's metrics, gauges read from live state."""
        return self.metrics.render(self.stats())

    def refused(self, terms: TenantTerms | None, error: FairstepError, need: Need | None) -> None:
        """A request was turned away before it was submitted: for the statistics. None: nobody knows whose, or what."""
        if self._front is not None:
            self._front.refused(terms, error, need, self._clock.now())

    def replayed(self) -> None:
        """A request was told the answer of an earlier one, and never came here: for the statistics."""
        self.metrics.requests.replayed()

    def stats(self) -> Stats:
        """All that was counted and what is going on, as a value: what render_metrics() writes."""
        return self._started().stats(self._clock.now())

    def check(self) -> None:
        """Assert the front's invariants."""
        self._started().check()

    # --- inside

    def _alive(self) -> Front:
        if self._front is not None and self.failure is None:
            return self._front
        idle = self.failure in (CLOSED, NOT_STARTED)
        raise (EngineClosed if idle else EngineDead)(self.failure or NOT_STARTED)

    def _started(self) -> Front:
        if self._front is None:
            raise EngineDead(self.failure or NOT_STARTED)
        return self._front

    def _send_orders(self) -> None:
        """End what is past its deadline, then order what there is to do, and come back when the front wants to."""
        if self._front is None:
            return
        now = self._clock.now()
        self._deliver(self._front.expire(now))
        self._crew.send(self._front.dispatch(now))
        self._set_alarm(now)

    def _set_alarm(self, now: float) -> None:
        assert self._front is not None and self._loop is not None
        at = self._front.next_wake
        if at == self._alarm_at:
            return
        self._stop_alarm()
        if at is not None:
            self._alarm_at = at
            self._alarm = self._loop.call_later(max(0.0, at - now), self._ring)

    def _ring(self) -> None:
        self._alarm = self._alarm_at = None
        self._send_orders()

    def _stop_alarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = self._alarm_at = None

    def _cancel(self, request_id: str) -> None:
        if self._front is None:
            return
        delta = self._front.cancel(request_id, self._clock.now())
        if delta is not None:
            self._deliver([delta])
            self._send_orders()

    def _deliver(self, deltas: Sequence[Delta]) -> None:
        for delta in deltas:
            if (stream := self._streams.get(delta.request_id)) is not None:
                stream.deliver(delta)

    # --- what workers say

    def on_loading(self, what: str, fraction: float) -> None:
        try:
            self._progress(what, fraction)
        except Exception:  # whoever shows it: loading goes on
            log.warning("progress could not be shown", exc_info=True)

    def objection(self, info: Ready) -> str | None:
        first = self._front.info if self._front is not None else self._infos.get(FIRST)
        return None if first is None else mismatch(first, info)

    def on_loaded(self, seconds: float) -> None:
        self.metrics.failures.loaded(seconds)

    def on_ready(self, number: int, info: Ready) -> None:
        self._infos[number] = info
        if self._ready is not None and not self._ready.done():
            self._ready.set_result(info)
        self._act(lambda front: front.join(number, info))

    def on_report(self, number: int, report: Report) -> None:
        self._act(lambda front: self._receive(front, report, number))

    def _receive(self, front: Front, report: Report, number: int) -> None:
        now = self._clock.now()
        self._deliver(front.receive(report, now, number))
        for gone in front.vacated():
            del self._infos[gone]
            self._crew.dismiss(gone)
        if now - self._scaled_at >= SCALING_SECONDS:
            self._scaled_at = now
            self._rescale(front, now)

    def _rescale(self, front: Front, now: float) -> None:
        """Start as many workers as there are to be, or let one go."""
        least, most = self.config.worker_span
        if least == most:
            return
        count = self._scale.follow(wanted(front.pressure(now)), now)
        missing = front.resize(count) - (self._crew.count - self._crew.size)
        for _ in range(missing):
            self._crew.grow()
        front.expect(self._crew.coming, self._crew.spare)

    def on_death(self, death: Death) -> None:
        self._last_death = death.reason
        if death.number is not None:
            del self._infos[death.number]
            self.metrics.failures.died(hung=death.hung)
        if self._front is None:
            self._fail_start(death)
        elif self._crew.is_lost:
            self._fail(death.reason)
        else:
            self._act(lambda front: self._lose(front, death))

    def _lose(self, front: Front, death: Death) -> None:
        if death.number is not None:
            self._deliver(front.lose(death.number, death.reason, self._clock.now()))

    def _fail_start(self, death: Death) -> None:
        """A worker could not load, or died before anybody was served."""
        if death.failed is not None and self._ready is not None and not self._ready.done():
            kind = ConfigError if death.failed.kind == ConfigError.code else ModelError
            self._ready.set_exception(kind(death.failed.message))
        self._fail(f"{death.reason} while it loaded {self._model}")

    def _act(self, act: Callable[[Front], None]) -> None:
        """Let the front take what a worker says, and order what follows from it."""
        if self._front is None or self.failure is not None:
            return
        try:
            self._front.expect(self._crew.coming, self._crew.spare)
            act(self._front)
            self._send_orders()
        except Exception as error:  # a bug of ours: better told to all than hanging them
            log.exception("the front failed")
            self._fail(f"the front failed: {type(error).__name__}: {error}")
            self._crew.quit()

    def _fail(self, reason: str) -> None:
        if self._ready is not None and not self._ready.done():
            self._ready.set_exception((EngineClosed if reason == CLOSED else EngineDead)(reason))
        alive = self.failure is None
        if self.failure in (None, NOT_STARTED) or reason == CLOSED:  # the first reason is the one to tell
            self.failure = reason
        self._stop_alarm()
        if self._front is not None and alive:
            self._deliver(self._front.fail_all(reason, self._clock.now()))
            for stream in list(self._streams.values()):
                if not stream.ended:  # its end was lost on the way here
                    stream.deliver(Delta(stream.request_id, finish_reason="error", usage=Usage(0, 0), error=reason))
