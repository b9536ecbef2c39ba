"""The synchronous engine: front and worker joined by direct calls in the caller's thread.

For scripts, notebooks and tests. Nothing happens but inside step(). Two engines in one process know nothing of each
other.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Self, Unpack

from .clock import Clock, MonotonicClock
from .config import EngineConfig
from .door import StepRecord
from .errors import EngineClosed, InvalidRequest
from .front import Front
from .front_setup import make_front
from .links import Build
from .machine import Machine
from .metrics import Metrics
from .request import Completion, Delta, Place, Request, SamplingParams
from .stats import Stats
from .tenants import Tenants
from .text.tokenizer import Tokenizer, load_tokenizer
from .worker import ProgressCall, build

Prompt = str | Sequence[int]


def quiet(what: str, fraction: float) -> None:
    """A progress call that shows nothing."""


class Engine:
    """A model, its waiting room and its step loop in one thread.

    >>> engine = Engine("smollm2")
    >>> print(engine.generate(["The sky is"], SamplingParams(max_tokens=8))[0].text)

    model: an alias (smollm2), a Hugging Face directory or hub id, or a .gguf file. Raises ModelError if it cannot be
    loaded and ConfigError if a setting is wrong. `progress` is told what loads and how far it is, from 0 to 1. tenants:
    the terms on which requests are served that bring none of their own. Static batches never wait for more to come.
    """

    def __init__(
        self,
        model: str,
        config: EngineConfig | None = None,
        *,
        progress: ProgressCall = quiet,
        clock: Clock | None = None,
        tokenizer: Tokenizer | None = None,
        tenants: Tenants | None = None,
        build_worker: Build = build,
    ) -> None:
        self.config = (config or EngineConfig()).resolved(Machine.found())
        self.model_name = model
        self._clock = clock or MonotonicClock()
        self.tokenizer = tokenizer or load_tokenizer(model)
        self._worker, self.info = build_worker(model, self.config, progress)
        self.metrics = Metrics(model_name=model)
        at_once = replace(self.config, batch_delay_ms=0.0)  # each step() says go: nothing to wait for by choice
        self._front: Front = make_front(at_once, self.info, self.tokenizer, self.metrics, tenants)
        self._ended: list[Delta] = []
        self._closed = False

    def submit(self, prompt: Prompt, params: SamplingParams | None = None, **place: Unpack[Place]) -> str:
        """Let a prompt (text, or token ids) wait for its turn; returns the request's id.

        place: tenant, terms, priority, deadlines, arrival, request_id (see Place). Raises InvalidRequest (naming the
        field), ContextTooLong or EngineClosed.
        """
        return self.submit_group(prompt, params, 1, **place)[0]

    def submit_group(self, prompt: Prompt, params: SamplingParams | None, n: int, **place: Unpack[Place]) -> list[str]:
        """Let n answers to one prompt wait for their turn: the prompt is computed once, each draws with its own seed.

        As Request.siblings tells; all or none are taken. Returns their ids. Otherwise like submit().
        """
        if self._closed:
            raise EngineClosed("the engine is closed")
        place.setdefault("arrival", self._clock.now())
        ids = self.tokenizer.encode(prompt) if isinstance(prompt, str) else prompt
        now = self._clock.now()
        requests = Request.at(ids, params, now, place).siblings(n)
        self._ended += self._front.submit(*requests, now=now)
        return [request.id for request in requests]

    def cancel(self, request_id: str) -> bool:
        """End a request wherever it is; its last Delta comes with the next step(). False if it has ended already."""
        delta = self._front.cancel(request_id, self._clock.now())
        if delta is not None:
            self._ended.append(delta)
        return delta is not None

    @property
    def has_requests(self) -> bool:
        """Whether step() has anything left to do or to tell."""
        return self._front.has_requests or bool(self._ended)

    def step(self) -> list[Delta]:
        """Admit, compute one step, retire; what it added to each request."""
        now = self._clock.now()
        self._ended += self._front.expire(now)
        orders = self._front.orders(now)
        if orders is not None:
            self._worker.apply(orders)
        ended, self._ended = self._ended, []
        return ended + self._front.receive(self._worker.step(), self._clock.now())

    def generate(
        self,
        prompts: Iterable[Prompt],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        on_done: Callable[[Completion], None] | None = None,
    ) -> list[Completion]:
        """Answer all prompts together; completions in the prompts' order. `on_done` is told of each as it ends.

        Other requests under way in this engine go on, and their deltas are dropped: don't mix it with step().
        """
        if isinstance(prompts, str):
            raise InvalidRequest("prompts must be a list of prompts: one text alone is [text]", "prompts")
        prompts = list(prompts)
        each = list(params) if isinstance(params, Sequence) else [params] * len(prompts)
        parts: dict[str, list[Delta]] = {}
        done: dict[str, Completion] = {}
        try:
            for prompt, own in zip(prompts, each, strict=True):
                parts[self.submit(prompt, own)] = []
            while len(done) < len(parts):
                self._gather(parts, done, on_done)
        finally:
            for request_id in parts.keys() - done.keys():
                self.cancel(request_id)
        return [done[request_id] for request_id in parts]

    def _gather(
        self, parts: dict[str, list[Delta]], done: dict[str, Completion], on_done: Callable[[Completion], None] | None
    ) -> None:
        """One step; its deltas go to `parts`, and who has ended to `done`."""
        for delta in self.step():
            if delta.request_id not in parts:
                continue
            parts[delta.request_id].append(delta)
            if delta.finish_reason is not None:
                done[delta.request_id] = Completion.join(parts[delta.request_id])
                if on_done is not None:
                    on_done(done[delta.request_id])

    @property
    def steps(self) -> Sequence[StepRecord]:
        """The last steps as planned and as they went, oldest first."""
        return tuple(self._front.steps)

    def seq_of(self, request_id: str) -> int | None:
        """The sequence number by which `steps` name a live request."""
        return self._front.seq_of(request_id)

    def render_metrics(self) -> bytes:
        """Prometheus text of this engine's metrics."""
        return self.metrics.render(self.stats())

    def stats(self) -> Stats:
        """All that was counted and what is going on, as a value: what render_metrics() writes."""
        return self._front.stats(self._clock.now())

    def check(self) -> None:
        """Assert the invariants of every owner of a resource: for tests and for idle moments."""
        self._front.check()
        self._worker.check()

    def close(self) -> None:
        """End what is under way with an error, told by the next step(), and refuse what comes."""
        self._closed = True
        self._ended += self._front.fail_all("the engine was closed", self._clock.now())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
