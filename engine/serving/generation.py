"""One body in the engine's hands: tokenized, let in or refused, submitted. Knows nothing of how it is told.

The only owner of the engine's streams here, and of the visit: however it ends, neither goes on.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from ..admission.fit import answer_room
from ..errors import DeadlineExceeded, EngineClosed, told_as
from ..reception import Visit
from ..request import Delta, SamplingParams
from ..text.tokenizer import Tokenizer
from .ask import Ask, named_as_sent
from .prompt_tokens import PromptTokens, tokenize
from .writer import Tally

if TYPE_CHECKING:
    from ..async_engine import AsyncEngine
    from ..streams import Stream


class Written(Protocol):
    """Whatever writes an answer: its id is the request's."""

    id: str
    tally: Tally


W = TypeVar("W", bound=Written)
MakeWriter = Callable[[str, Ask, Sequence[PromptTokens], Tokenizer], W]


class Generation(Generic[W]):
    """Whoever has it calls leave(), however it ends.

    drawn: tokens of the one answer that an earlier life of the server has drawn: told again, and not drawn anew.
    """

    def __init__(
        self,
        engine: "AsyncEngine",
        model: str,
        ask: Ask,
        writer: MakeWriter[W],
        visit: Visit,
        drawn: tuple[int, ...] = (),
    ) -> None:
        self.ask = ask
        self.answered = False  # to its end; set by whoever tells it
        self._engine = engine
        self._model = model
        self._writer = writer
        self._visit = visit
        self._drawn = drawn
        self._tally: Tally | None = None

    def leave(self, *, cut: bool = False) -> None:
        """Give back its place. cut: by the client."""
        outputs = self._tally.outputs if self._tally else 0
        self._visit.leave(outputs, answered=self.answered, cut=cut)

    @asynccontextmanager
    async def submitted(self) -> AsyncIterator[tuple[W, Sequence["Stream"]]]:
        """All prompts in the engine's hands; on leaving, those that have not ended are cancelled, together."""
        streams: list[Stream] = []
        try:
            with named_as_sent(self.ask.field_names), self._visit.refusals():
                prompts = await tokenize(self._engine, self.ask)
                writer = self._writer(self._model, self.ask, prompts, self._engine.tokenizer)
                self._tally = writer.tally
                self._visit.give_up = lambda: _cancel(streams)
                self._count(prompts)
                for index, prompt in enumerate(prompts):
                    self._visit.check_place()
                    streams += self._submit(prompt.ids, f"{writer.id}-{index}" if index else writer.id)
                    await asyncio.sleep(0)
            yield writer, streams
        finally:
            _cancel(streams)

    def check(self, index: int, delta: Delta) -> None:
        """Raise for an answer that ended other than by itself: its reason is no word of the protocol."""
        if delta.finish_reason in ("cancelled", "error") and self._tally is not None:
            self._tally.add(index, delta)  # nobody writes it, but it was computed
        if delta.code == DeadlineExceeded.code:
            raise self._visit.expired()
        if delta.token_ids:
            self._visit.begin(index)
        if delta.finish_reason == "cancelled":
            self._visit.check_place()
            raise EngineClosed("the server cancelled this request")
        if delta.finish_reason == "error":
            self._engine.check_alive()
            raise told_as(delta.code, delta.error or "the request failed")

    def _count(self, prompts: Sequence[PromptTokens]) -> None:
        """Its tokens are known: let it wait, or refuse it."""
        lengths = [len(prompt.ids) for prompt in prompts]
        params = self._params(min(lengths))
        most = answer_room(min(lengths), params.max_tokens, self._engine.info.context)
        self._visit.count(
            prompt_tokens=sum(lengths),
            max_tokens=most,
            least=params.least_tokens(most),
            sequences=len(prompts) * self.ask.samples,
        )

    def _submit(self, prompt: tuple[int, ...], request_id: str) -> Sequence["Stream"]:
        """A stream for each sample."""
        return self._engine.submit_group(
            prompt,
            self._params(len(prompt)),
            self.ask.samples,
            tenant=self._visit.terms.name,
            terms=self._visit.terms,
            priority=self.ask.priority,
            request_id=request_id,
            arrival=self._visit.arrived,
            deadline=self._visit.deadlines.whole,
            ttft_deadline=self._visit.deadlines.first,
            drawn=self._drawn,
        )

    def _params(self, prompt_tokens: int) -> SamplingParams:
        params, most = self.ask.params, self.ask.default_max_tokens
        if params.max_tokens is not None or most is None:
            return params
        return replace(params, max_tokens=min(most, answer_room(prompt_tokens, None, self._engine.info.context)))


def _cancel(streams: Sequence["Stream"]) -> None:
    for stream in streams:
        stream.cancel()
