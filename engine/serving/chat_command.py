"""`fairstep chat`: one answer or a conversation in the terminal, on an engine without HTTP.

The engine lives on an event loop in a thread (anyio's portal), so that reading a line and Ctrl-C stay ordinary.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from anyio.from_thread import BlockingPortal, start_blocking_portal

from ..async_engine import AsyncEngine
from ..errors import InvalidRequest
from ..request import Delta, SamplingParams
from ..streams import Stream
from .progress import LoadingDisplay
from .settings import Settings

PROMPT = "> "


def run_chat(
    model: str,
    prompt: str | None,
    settings: Settings,
    *,
    system: str | None,
    max_tokens: int,
    temperature: float | None,
    seed: int | None,
) -> None:
    """Answer `prompt`, or line after line of stdin. Raises ConfigError, ModelError or InvalidRequest."""
    params = SamplingParams(max_tokens=max_tokens, temperature=temperature, seed=seed)
    with start_blocking_portal() as portal, _running_engine(portal, model, settings) as engine:
        conversation = Conversation(portal, engine, params, system)
        if prompt is not None:
            conversation.answer(prompt)
        else:
            _converse(conversation)


class Conversation:
    """Messages so far, and the next answer streamed to stdout."""

    def __init__(
        self, portal: BlockingPortal, engine: AsyncEngine, params: SamplingParams, system: str | None = None
    ) -> None:
        self.messages: list[dict[str, str]] = [{"role": "system", "content": system}] if system else []
        self._portal = portal
        self._engine = engine
        self._params = params

    def answer(self, text: str) -> None:
        """Print the answer as it comes, then remember both. Raises InvalidRequest, and then remembers nothing."""
        asked = [*self.messages, {"role": "user", "content": text}]
        stream = self._portal.call(self._open, asked)
        parts: list[str] = []
        try:
            for delta in self._deltas(stream):
                parts.append(delta.text)
                print(delta.text, end="", flush=True)
                if delta.error:
                    print(f"fairstep: {delta.error}", file=sys.stderr)
        finally:
            self._portal.call(stream.cancel)
            print()
            self.messages = [*asked, {"role": "assistant", "content": "".join(parts)}]

    async def _open(self, messages: list[dict[str, str]]) -> Stream:
        return self._engine.submit(await self._engine.encode_chat(messages), self._params)

    def _deltas(self, stream: Stream) -> Iterator[Delta]:
        while True:
            delta = self._portal.call(stream.__anext__)
            yield delta
            if delta.finish_reason is not None:
                return


def _converse(conversation: Conversation) -> None:
    at_terminal = sys.stdin.isatty()
    if at_terminal:
        _edit_lines()
        print("Ctrl-C stops an answer, Ctrl-D ends.", file=sys.stderr)
    while True:
        try:
            text = input(PROMPT if at_terminal else "").strip()
            if text:
                conversation.answer(text)
        except KeyboardInterrupt:
            print()
        except EOFError:
            return
        except InvalidRequest as problem:
            print(f"fairstep: {problem}", file=sys.stderr)


def _edit_lines() -> None:
    """Arrow keys and history in input(), where Python has readline."""
    with suppress(ImportError):
        import readline as readline


@contextmanager
def _running_engine(portal: BlockingPortal, model: str, settings: Settings) -> Iterator[AsyncEngine]:
    display = LoadingDisplay()
    engine = AsyncEngine(model, settings.config.engine(), in_process=settings.config.in_process, progress=display)
    try:
        portal.call(engine.start)
        display.close()
        yield engine
    finally:
        display.close()
        portal.call(engine.stop)
