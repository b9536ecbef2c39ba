"""A conversation: the messages so far, and the next answer streamed to stdout. Knows no keyboard and no commands.

The engine lives on an event loop in another thread; calls go through anyio's portal.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace

import click
from anyio.from_thread import BlockingPortal

from ..admission.fit import answer_room
from ..async_engine import AsyncEngine
from ..errors import ContextTooLong, InvalidRequest
from ..request import Delta, SamplingParams
from ..streams import Stream
from .seeds import mixed_seed

Messages = list[dict[str, str]]


@dataclass(slots=True)
class Pace:
    """How fast one answer came; instants in seconds."""

    asked: float
    first: float | None = None
    last: float = 0.0
    tokens: int = 0

    def take(self, tokens: int, now: float) -> None:
        if not tokens:
            return
        self.first = now if self.first is None else self.first
        self.last = now
        self.tokens += tokens

    def __str__(self) -> str:
        if self.first is None:
            return "no tokens"
        seconds = self.last - self.first
        speed = f", {(self.tokens - 1) / seconds:.1f} tokens/s" if seconds > 0 else ""
        return f"{self.tokens} tokens, the first after {self.first - self.asked:.2f} s{speed}"


class Conversation:
    """Messages so far. `show_pace`: a line about speed and room after each answer, on stderr."""

    def __init__(
        self,
        portal: BlockingPortal,
        engine: AsyncEngine,
        params: SamplingParams,
        system: str | None = None,
        *,
        show_pace: bool = False,
    ) -> None:
        self.messages: Messages = []
        self.system = system
        self._portal = portal
        self._engine = engine
        self._params = params
        self._show_pace = show_pace
        self._retries = 0

    def answer(self, text: str) -> None:
        """Print the answer as it comes, then remember both. Raises InvalidRequest, and then remembers nothing."""
        self._answer([*self.messages, {"role": "user", "content": text}], retries=0)

    def retry(self) -> None:
        """Answer the last question once more, in another way. Raises InvalidRequest."""
        if not self.messages:
            raise InvalidRequest("there is no answer yet")
        self._answer(self.messages[:-1], retries=self._retries + 1)

    def undo(self) -> str:
        """Forget the last question and its answer; the question. Raises InvalidRequest."""
        if not self.messages:
            raise InvalidRequest("there is nothing to undo")
        question = self.messages[-2]["content"]
        del self.messages[-2:]
        return question

    def clear(self) -> None:
        """Forget all but the system prompt."""
        self.messages = []

    def _answer(self, asked: Messages, retries: int) -> None:
        pace = Pace(self._engine.now())
        stream, room = self._portal.call(self._open, asked, retries)
        parts: list[str] = []
        last: Delta | None = None
        try:
            for last in self._deltas(stream):
                pace.take(len(last.token_ids), self._engine.now())
                parts.append(last.text)
                print(last.text, end="", flush=True)
        finally:
            self._portal.call(stream.cancel)
            print(flush=True)
            self.messages = [*asked, {"role": "assistant", "content": "".join(parts)}]
            self._retries = retries
        assert last is not None
        self._tell_end(last, pace, room)

    async def _open(self, asked: Messages, retries: int) -> tuple[Stream, int]:
        """The answer's stream, and how many tokens it may have. Raises InvalidRequest."""
        system = [{"role": "system", "content": self.system}] if self.system else []
        context = self._engine.info.context
        try:
            prompt = await self._engine.encode_chat([*system, *asked])
            room = answer_room(len(prompt), None, context)
        except ContextTooLong:
            if len(asked) == 1:  # nothing could be forgotten to make room
                raise
            raise ContextTooLong(
                f"the conversation does not fit into the context of {context} tokens any more: /undo takes the last "
                "question back, /clear begins anew",
                "messages",
            ) from None
        most = min(room, self._params.max_tokens or room)
        seed = self._params.seed
        if seed is not None and retries:
            seed = mixed_seed(seed, retries)
        return self._engine.submit(prompt, replace(self._params, max_tokens=most, seed=seed)), room

    def _deltas(self, stream: Stream) -> Iterator[Delta]:
        while True:
            delta = self._portal.call(stream.__anext__)
            yield delta
            if delta.finish_reason is not None:
                return

    def _tell_end(self, last: Delta, pace: Pace, room: int) -> None:
        """What the answer itself does not say."""
        if last.error:
            print(f"fairstep: {last.error}", file=sys.stderr)
        context, usage = self._engine.info.context, last.usage
        if last.finish_reason == "length":
            full = usage is not None and usage.completion_tokens >= room
            why = f"the context of {context} tokens is full" if full else f"--max-tokens {self._params.max_tokens}"
            print(f"fairstep: the answer was cut off: {why}", file=sys.stderr)
        if self._show_pace and usage is not None:
            used = usage.prompt_tokens + usage.completion_tokens
            click.secho(f"[{pace}; {used} of {context} tokens of context]", err=True, dim=True)
