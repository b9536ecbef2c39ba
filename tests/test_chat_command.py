"""The conversation in the terminal, on a fake engine and a real event loop in a thread."""

import builtins
import io
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal

from fairstep.errors import InvalidRequest
from fairstep.request import Delta, SamplingParams, Usage
from fairstep.serving import chat_command
from fairstep.serving.chat_command import Conversation
from fairstep.streams import Stream

USAGE = Usage(prompt_tokens=1, completion_tokens=2)


class FakeEngine:
    """Answers "You said <the last message>." in two deltas; with `hang`, only the first."""

    def __init__(self, *, hang: bool = False) -> None:
        self.rendered: list[list[Mapping[str, Any]]] = []
        self.cancelled: list[str] = []
        self._hang = hang

    async def encode_chat(self, messages: Sequence[Mapping[str, Any]]) -> tuple[int, ...]:
        if messages[-1]["content"] == "refuse me":
            raise InvalidRequest("refused", "messages")
        self.rendered.append(list(messages))
        return (1,)

    def submit(self, prompt_ids: Sequence[int], params: SamplingParams) -> Stream:
        stream = Stream("r", self.cancelled.append)
        stream.deliver(Delta("r", text="You said "))
        if not self._hang:
            last = Delta("r", text=f"{self.rendered[-1][-1]['content']}.", finish_reason="stop", usage=USAGE)
            stream.deliver(last)
        return stream


@pytest.fixture
def portal() -> Iterator[BlockingPortal]:
    with start_blocking_portal() as portal:
        yield portal


def conversation(portal: BlockingPortal, engine: FakeEngine, system: str | None = None) -> Conversation:
    return Conversation(portal, engine, SamplingParams(), system)  # type: ignore[arg-type]


def lines_typed(monkeypatch: pytest.MonkeyPatch, *lines: str | type[BaseException]) -> None:
    """input() gives these lines, raises these exceptions, then ends."""
    waiting = iter(lines)

    def typed(prompt: str = "") -> str:
        line = next(waiting, EOFError)
        if isinstance(line, str):
            return line
        raise line

    monkeypatch.setattr(builtins, "input", typed)
    monkeypatch.setattr(sys, "stdin", io.StringIO())


def test_an_answer_is_printed_and_remembered(portal: BlockingPortal, capsys: pytest.CaptureFixture[str]) -> None:
    talk = conversation(portal, FakeEngine(), system="be brief")
    talk.answer("hello")
    assert capsys.readouterr().out == "You said hello.\n"
    assert [each["role"] for each in talk.messages] == ["system", "user", "assistant"]
    assert talk.messages[-1]["content"] == "You said hello."


def test_the_next_question_comes_with_what_was_said(portal: BlockingPortal) -> None:
    engine = FakeEngine()
    talk = conversation(portal, engine)
    talk.answer("one")
    talk.answer("two")
    assert [each["content"] for each in engine.rendered[1]] == ["one", "You said one.", "two"]


def test_a_refused_question_is_told_and_forgotten(
    portal: BlockingPortal, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines_typed(monkeypatch, "refuse me", "", "hello")
    talk = conversation(portal, FakeEngine())
    chat_command._converse(talk)
    said = capsys.readouterr()
    assert (said.out, said.err) == ("You said hello.\n", "fairstep: refused\n")
    assert [each["content"] for each in talk.messages] == ["hello", "You said hello."]


def test_ctrl_c_stops_the_answer_keeps_its_beginning_and_cancels(
    portal: BlockingPortal, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    engine = FakeEngine(hang=True)
    talk = conversation(portal, engine)
    call: Callable[..., Any] = portal.call
    deltas = 0

    def interrupted(function: Callable[..., Any], *args: Any) -> Any:
        nonlocal deltas
        deltas += function.__name__ == "__anext__"
        if function.__name__ == "__anext__" and deltas == 2:
            raise KeyboardInterrupt
        return call(function, *args)

    monkeypatch.setattr(portal, "call", interrupted)
    with pytest.raises(KeyboardInterrupt):
        talk.answer("hello")
    assert capsys.readouterr().out == "You said \n"
    assert talk.messages[-1]["content"] == "You said "
    assert "r" in engine.cancelled


def test_ctrl_c_at_the_prompt_only_begins_a_new_line(
    portal: BlockingPortal, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines_typed(monkeypatch, KeyboardInterrupt, "hello")
    chat_command._converse(conversation(portal, FakeEngine()))
    assert capsys.readouterr().out == "\nYou said hello.\n"
