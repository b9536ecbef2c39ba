"""`fairstep chat`: one answer or a conversation in the terminal, on an engine without HTTP.

The engine lives on an event loop in a thread (anyio's portal), so that reading a line and Ctrl-C stay ordinary.
"""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from anyio.from_thread import BlockingPortal, start_blocking_portal

from ..async_engine import AsyncEngine
from ..errors import InvalidRequest
from ..request import SamplingParams
from .chat_lines import FENCE, ChatLines, history_file
from .chat_talk import Conversation
from .progress import LoadingDisplay
from .settings import Settings

GREETING = "Ctrl-C stops an answer, Ctrl-D ends, /help lists commands."
HELP = f"""/help          this list
/clear         forget the conversation, keep the system prompt
/system TEXT   say what the model is told before the conversation; without TEXT, nothing
/undo          forget the last question and its answer
/retry         answer the last question once more
/exit          end, as Ctrl-D does
{FENCE}            begins a text of many lines, and ends it"""


def run_chat(
    model: str,
    prompt: str | None,
    settings: Settings,
    *,
    system: str | None,
    history: bool,
    sampling: Mapping[str, Any],
) -> None:
    """Answer `prompt`, or message after message of stdin. Raises ConfigError, ModelError or InvalidRequest.

    sampling: SamplingParams' fields. history: what is typed is kept for the next time.
    """
    sys.stdin.reconfigure(errors="replace")  # type: ignore[union-attr]
    at_terminal = sys.stdout.isatty() and sys.stderr.isatty()
    with start_blocking_portal() as portal, _running_engine(portal, model, settings) as engine:
        conversation = Conversation(portal, engine, SamplingParams(**sampling), system, show_pace=at_terminal)
        if prompt is not None:
            conversation.answer(prompt)
        else:
            _converse(conversation, ChatLines(history_file() if history else None))


def _converse(conversation: Conversation, lines: ChatLines) -> None:
    """Until stdin ends or /exit. Commands are for people: what comes through a pipe is never one."""
    if lines.at_terminal:
        print(GREETING, file=sys.stderr)
    while True:
        try:
            text = lines.next()
            if lines.at_terminal and text.startswith("/"):
                if not _obey(conversation, text):
                    return
            elif text.strip():
                conversation.answer(text.strip())
        except KeyboardInterrupt:
            print()
        except EOFError:
            return
        except InvalidRequest as problem:
            print(f"fairstep: {problem}", file=sys.stderr)


def _obey(conversation: Conversation, text: str) -> bool:
    """Do what a command says; False ends the conversation. Raises InvalidRequest."""
    command, _, rest = text.strip().partition(" ")
    said = ""
    match command:
        case "/exit" | "/quit":
            return False
        case "/help":
            said = HELP
        case "/clear":
            conversation.clear()
            said = "the conversation is forgotten"
        case "/system":
            conversation.system = rest.strip() or None
            said = "the model is told that from now on" if conversation.system else "the model is told nothing before"
        case "/undo":
            said = f"forgotten: {conversation.undo()}"
        case "/retry":
            conversation.retry()
        case _:
            said = f"there is no {command}; /help lists commands (a space before / makes it a message)"
    if said:
        print(said, file=sys.stderr)
    return True


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
