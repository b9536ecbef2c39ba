"""The conversation in the terminal, on a fake engine and a real event loop in a thread; once on a real terminal."""

import builtins
import io
import os
import pty
import re
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal

from fairstep.clock import ManualClock
from fairstep.errors import ContextTooLong, InvalidRequest
from fairstep.request import Delta, FinishReason, SamplingParams, Usage
from fairstep.serving import chat_command
from fairstep.serving.chat_lines import ChatLines
from fairstep.serving.chat_talk import Conversation
from fairstep.streams import Stream

CONTEXT = 100


class FakeEngine:
    """Answers "You said <the last message>." in two deltas; with `hang`, only the first. A prompt has 10 tokens."""

    def __init__(self, *, hang: bool = False, ending: FinishReason = "stop") -> None:
        self.rendered: list[list[Mapping[str, Any]]] = []
        self.params: list[SamplingParams] = []
        self.cancelled: list[str] = []
        self.info = SimpleNamespace(context=CONTEXT)
        self.prompt_tokens = 10
        self._hang, self._ending = hang, ending
        self._clock = ManualClock()

    def now(self) -> float:
        self._clock.jump(0.5)
        return self._clock.now()

    async def encode_chat(self, messages: Sequence[Mapping[str, Any]]) -> tuple[int, ...]:
        if messages[-1]["content"] == "refuse me":
            raise InvalidRequest("refused", "messages")
        if messages[-1]["content"] == "too long":
            raise ContextTooLong("a text of 9999 characters", "prompt")
        self.rendered.append(list(messages))
        return (1,) * self.prompt_tokens

    def submit(self, prompt_ids: Sequence[int], params: SamplingParams) -> Stream:
        self.params.append(params)
        stream = Stream("r", self.cancelled.append)
        stream.deliver(Delta("r", text="You said ", token_ids=(1, 2)))
        if not self._hang:
            text = f"{self.rendered[-1][-1]['content']}."
            usage = Usage(prompt_tokens=len(prompt_ids), completion_tokens=params.max_tokens or 0)
            stream.deliver(Delta("r", text=text, token_ids=(3,), finish_reason=self._ending, usage=usage))
        return stream


@pytest.fixture
def portal() -> Iterator[BlockingPortal]:
    with start_blocking_portal() as portal:
        yield portal


def conversation(portal: BlockingPortal, engine: FakeEngine, system: str | None = None, **more: Any) -> Conversation:
    params = more.pop("params", SamplingParams())
    return Conversation(portal, engine, params, system, **more)  # type: ignore[arg-type]


def typed(monkeypatch: pytest.MonkeyPatch, *lines: str | type[BaseException], at_terminal: bool = False) -> ChatLines:
    """input() gives these lines, raises these exceptions, then ends."""
    waiting = iter(lines)

    def next_line(prompt: str = "") -> str:
        line = next(waiting, EOFError)
        if isinstance(line, str):
            return line
        raise line

    monkeypatch.setattr(builtins, "input", next_line)
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    chat_lines = ChatLines()
    chat_lines.at_terminal = at_terminal
    return chat_lines


def contents(messages: Sequence[Mapping[str, Any]]) -> list[str]:
    return [each["content"] for each in messages]


def test_an_answer_is_printed_and_remembered(portal: BlockingPortal, capsys: pytest.CaptureFixture[str]) -> None:
    engine = FakeEngine()
    talk = conversation(portal, engine, system="be brief")
    talk.answer("hello")
    assert capsys.readouterr() == ("You said hello.\n", "")
    assert [each["role"] for each in engine.rendered[0]] == ["system", "user"]
    assert [each["role"] for each in talk.messages] == ["user", "assistant"]
    assert talk.messages[-1]["content"] == "You said hello."


def test_the_next_question_comes_with_what_was_said(portal: BlockingPortal) -> None:
    engine = FakeEngine()
    talk = conversation(portal, engine)
    talk.answer("one")
    talk.answer("two")
    assert contents(engine.rendered[1]) == ["one", "You said one.", "two"]


def test_a_refused_question_is_told_and_forgotten(
    portal: BlockingPortal, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    talk = conversation(portal, FakeEngine())
    chat_command._converse(talk, typed(monkeypatch, "refuse me", "", "hello"))
    said = capsys.readouterr()
    assert (said.out, said.err) == ("You said hello.\n", "fairstep: refused\n")
    assert contents(talk.messages) == ["hello", "You said hello."]


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
    chat_command._converse(conversation(portal, FakeEngine()), typed(monkeypatch, KeyboardInterrupt, "hello"))
    assert capsys.readouterr().out == "\nYou said hello.\n"


# --- commands


def test_commands_change_the_conversation(portal: BlockingPortal, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = FakeEngine()
    talk = conversation(portal, engine)
    lines = ("one", "two", "/undo", "three", "/system be brief", "/clear", "four", "/system", "five", "/exit", "six")
    chat_command._converse(talk, typed(monkeypatch, *lines, at_terminal=True))
    asked = [contents(messages) for messages in engine.rendered]
    assert asked[2] == ["one", "You said one.", "three"]
    assert asked[3] == ["be brief", "four"]
    assert asked[4] == ["four", "You said four.", "five"]
    assert len(asked) == 5


def test_retry_answers_the_same_question_with_another_seed(portal: BlockingPortal) -> None:
    engine = FakeEngine()
    talk = conversation(portal, engine, params=SamplingParams(seed=7))
    talk.answer("one")
    talk.retry()
    talk.retry()
    assert [contents(messages) for messages in engine.rendered] == [["one"]] * 3
    assert len({params.seed for params in engine.params}) == 3
    assert contents(talk.messages) == ["one", "You said one."]
    talk.answer("two")
    assert engine.params[-1].seed == engine.params[0].seed == 7


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("/help", "/retry"),
        ("/undo", "nothing to undo"),
        ("/retry", "no answer yet"),
        ("/nonsense", "there is no /nonsense; /help"),
    ],
)
def test_commands_that_only_tell(
    portal: BlockingPortal,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    line: str,
    said: str,
) -> None:
    engine = FakeEngine()
    chat_command._converse(conversation(portal, engine), typed(monkeypatch, line, at_terminal=True))
    assert said in capsys.readouterr().err
    assert engine.rendered == []


@pytest.mark.parametrize(("line", "at_terminal"), [("/help", False), (" /etc/hosts", True)])
def test_a_slash_that_is_no_command_is_a_message(
    portal: BlockingPortal, monkeypatch: pytest.MonkeyPatch, line: str, at_terminal: bool
) -> None:
    engine = FakeEngine()
    chat_command._converse(conversation(portal, engine), typed(monkeypatch, line, at_terminal=at_terminal))
    assert contents(engine.rendered[0]) == [line.strip()]


def test_a_text_of_many_lines_is_one_message(portal: BlockingPortal, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = FakeEngine()
    lines = ('"""one', "", "  two", 'three"""', '"""four"""', "five")
    chat_command._converse(conversation(portal, engine), typed(monkeypatch, *lines, at_terminal=True))
    assert [messages[-1]["content"] for messages in engine.rendered] == ["one\n\n  two\nthree", "four", "five"]


# --- room and pace


def test_an_answer_gets_what_the_context_leaves(portal: BlockingPortal) -> None:
    engine = FakeEngine()
    engine.prompt_tokens = CONTEXT - 5
    talk = conversation(portal, engine, params=SamplingParams(max_tokens=50))
    talk.answer("hello")
    assert engine.params[0].max_tokens == 5


@pytest.mark.parametrize("text", ["hello", "too long"])
def test_a_full_context_is_told_in_words_and_the_conversation_stays(portal: BlockingPortal, text: str) -> None:
    engine = FakeEngine()
    talk = conversation(portal, engine)
    talk.answer("one")
    engine.prompt_tokens = CONTEXT
    with pytest.raises(ContextTooLong, match="the context of 100 tokens any more: /undo"):
        talk.answer(text)
    assert contents(talk.messages) == ["one", "You said one."]


def test_a_first_question_that_is_too_long_is_told_as_such(portal: BlockingPortal) -> None:
    engine = FakeEngine()
    engine.prompt_tokens = CONTEXT
    with pytest.raises(ContextTooLong, match="the prompt has 100 tokens"):
        conversation(portal, engine).answer("hello")


@pytest.mark.parametrize(
    ("prompt_tokens", "said"), [(10, "cut off: --max-tokens 20"), (90, "cut off: the context of 100 tokens is full")]
)
def test_an_answer_cut_off_is_told(
    portal: BlockingPortal, capsys: pytest.CaptureFixture[str], prompt_tokens: int, said: str
) -> None:
    engine = FakeEngine(ending="length")
    engine.prompt_tokens = prompt_tokens
    conversation(portal, engine, params=SamplingParams(max_tokens=20)).answer("hello")
    assert said in capsys.readouterr().err


def test_pace_and_room_are_shown_where_asked_for(portal: BlockingPortal, capsys: pytest.CaptureFixture[str]) -> None:
    conversation(portal, FakeEngine(), params=SamplingParams(max_tokens=3), show_pace=True).answer("hello")
    said = capsys.readouterr()
    assert said.out == "You said hello.\n"
    assert re.fullmatch(r"\[\d tokens, the first after \d\.\d\d s.*; 13 of 100 tokens of context\]\n", said.err)


# --- a terminal

PROGRAM = """
import sys
sys.path.insert(0, {tests!r})
from fairstep.serving import chat_command, cli
from test_chat_command import FakeEngine
class Engine(FakeEngine):
    def __init__(self, *args, **named):
        super().__init__()
    async def start(self): ...
    async def stop(self): ...
chat_command.AsyncEngine = Engine
cli.main(["chat", "m", *{args!r}])
"""


def session(home: Path, keys: Sequence[str], *args: str) -> str:
    """What a person sees who types `keys`, one at each prompt."""
    ours, theirs = pty.openpty()
    program = PROGRAM.format(tests=str(Path(__file__).parent), args=args)
    environment = {**os.environ, "XDG_CACHE_HOME": str(home), "TERM": "xterm", "NO_COLOR": "1"}
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=theirs, stdout=theirs, stderr=theirs, env=environment
    ) as process:
        os.close(theirs)
        seen = "".join(_until_prompt(ours) + _sent(ours, key) for key in keys) + _until_prompt(ours)
        assert process.wait(60) == 0, seen
    os.close(ours)
    return seen


def _sent(terminal: int, key: str) -> str:
    os.write(terminal, key.encode())
    return ""


def _until_prompt(terminal: int) -> str:
    seen = b""
    while not re.search(rb"(^|\n|\x1b\[\?2004h)(> |\. )$", seen):
        try:
            seen += os.read(terminal, 1024)
        except OSError:  # the program has ended
            break
    return seen.decode()


def test_on_a_terminal_what_was_typed_comes_back_with_the_arrow_keys_of_the_next_session(tmp_path: Path) -> None:
    seen = session(tmp_path, ["first question\r", "/exit\r"])
    assert "You said first question." in seen
    assert "of 100 tokens of context]" in seen
    history = tmp_path / "fairstep" / "chat_history"
    assert stat.S_IMODE(history.stat().st_mode) == 0o600
    assert stat.S_IMODE(history.parent.stat().st_mode) == 0o700
    up = "\x1b[A"
    seen = session(tmp_path, [f"{up}{up} again\r", "\x04"])
    assert "You said first question again." in seen
    assert "first question again" in history.read_text(encoding="utf-8")


def test_on_a_terminal_nothing_is_kept_if_so_wished(tmp_path: Path) -> None:
    assert "You said secret." in session(tmp_path, ["secret\r", "\x04"], "--no-history")
    assert list(tmp_path.iterdir()) == []
