"""The front's end of the door on an event loop: a worker in a process of its own, or in a thread of this one.

A link carries messages both ways and says when the other end is gone. It knows no requests.
"""

import asyncio
import queue
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict
from typing import ClassVar, Protocol

from msgspec import MsgspecError

from .config import EngineConfig
from .door import Failed, FrameReader, Message, Progress, Ready, Start, Stop, frame
from .errors import FairstepError
from .worker import CHUNK_BYTES, DoorClosed, ProgressCall, Worker, serve

SWITCH_SECONDS = 0.0001  # beside a compute thread, Python's usual 5 ms makes small steps many times slower
STOP_SECONDS = 5.0

Build = Callable[[str, EngineConfig, ProgressCall], tuple[Worker, Ready]]
OnMessage = Callable[[Message], None]
OnEnd = Callable[[str], None]


class Link(Protocol):
    """Both callbacks run on the event loop; `on_end` is called once, with the reason, unless stop() was."""

    async def start(self, model: str, config: EngineConfig, on_message: OnMessage, on_end: OnEnd) -> None: ...

    def send(self, message: Message) -> None: ...

    def kill(self) -> None:
        """End the other end at once, if that can be done; stop() follows."""

    async def stop(self) -> None: ...


class ProcessLink:
    """A worker started as `python -m fairstep.worker`, so the host's script needs no __main__ guard.

    program: what Python is told to run; the socket's descriptor comes after it.
    """

    program: ClassVar[tuple[str, ...]] = ("-m", f"{__package__}.worker")

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None
        self._loaded = False
        self._stopping = False

    @property
    def pid(self) -> int | None:
        """The worker's process id."""
        return self._process.pid if self._process else None

    async def start(self, model: str, config: EngineConfig, on_message: OnMessage, on_end: OnEnd) -> None:
        ours, theirs = socket.socketpair()
        reader, self._writer = await asyncio.open_connection(sock=ours)
        with theirs:
            # -P: the working folder must not shadow packages in the worker
            command = [sys.executable, "-P", *self.program, str(theirs.fileno())]
            self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)
        self.send(Start(model, asdict(config)))
        self._reading = asyncio.create_task(self._read(reader, on_message, on_end))

    def send(self, message: Message) -> None:
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(frame(message))

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()

    async def stop(self) -> None:
        self._stopping = True
        self.send(Stop())
        if self._process is not None:
            await self._wait(STOP_SECONDS if self._loaded else 0.0)  # one that still loads does not listen
        if self._writer is not None:
            self._writer.close()
        if self._reading is not None:
            await asyncio.gather(self._reading, return_exceptions=True)

    async def _read(self, reader: asyncio.StreamReader, on_message: OnMessage, on_end: OnEnd) -> None:
        frames, unreadable = FrameReader(), ""
        try:
            while data := await _read_some(reader):
                for message in frames.feed(data):
                    self._loaded = self._loaded or isinstance(message, Ready)
                    on_message(message)
        except MsgspecError as error:
            unreadable = f"the worker process sent what is no message: {error}"
        if not self._stopping:
            await self._wait(STOP_SECONDS)
            on_end(unreadable or self._how_it_ended())

    async def _wait(self, seconds: float) -> None:
        """Wait for the worker's process off the loop; end it if it does not end by itself."""
        assert self._process is not None
        try:
            await asyncio.to_thread(self._process.wait, seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            await asyncio.to_thread(self._process.wait)

    def _how_it_ended(self) -> str:
        code = self._process.returncode if self._process else None
        if code is None or code >= 0:
            return f"the worker process ended with status {code}"
        named = {each.value: each.name for each in signal.Signals}
        return f"the worker process was ended by {named.get(-code, f'signal {-code}')}"


async def _read_some(reader: asyncio.StreamReader) -> bytes:
    """What has come; nothing once the other end is gone."""
    try:
        return await reader.read(CHUNK_BYTES)
    except ConnectionError:
        return b""


class ThreadLink:
    """A worker in a thread of this process: for scripts, tests and hosts that want one process.

    It costs speed: one busy Python thread beside it slows its steps many times over. The interpreter's switch interval
    is lowered to 0.1 ms, for the rest of the process's life, which makes that better and other threads a little slower.
    stop() waits for a step, or for the model to load, to end.
    """

    def __init__(self, build: Build) -> None:
        self._build = build
        self._inbox: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._stopping = False

    async def start(self, model: str, config: EngineConfig, on_message: OnMessage, on_end: OnEnd) -> None:
        sys.setswitchinterval(min(SWITCH_SECONDS, sys.getswitchinterval()))
        loop = asyncio.get_running_loop()

        def deliver(message: Message) -> None:
            loop.call_soon_threadsafe(on_message, message)

        door = _QueueDoor(self._inbox, deliver)

        def run() -> None:
            reason = "the worker thread ended"
            try:
                self._work(model, config, door)
            except DoorClosed:
                return
            except BaseException as error:
                reason = f"the worker thread failed: {type(error).__name__}: {error}"
            if not self._stopping and not loop.is_closed():
                loop.call_soon_threadsafe(on_end, reason)

        self._thread = threading.Thread(target=run, name="fairstep-worker", daemon=True)
        self._thread.start()

    def send(self, message: Message) -> None:
        self._inbox.put(message)

    def kill(self) -> None:
        """A thread cannot be ended."""

    async def stop(self) -> None:
        self._stopping = True
        self.send(Stop())
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)

    def _work(self, model: str, config: EngineConfig, door: "_QueueDoor") -> None:
        try:
            worker, ready = self._build(model, config, lambda what, part: door.send(Progress(what, part)))
        except FairstepError as error:
            door.send(Failed(error.code, str(error)))
            return
        door.send(ready)
        serve(worker, door)


class _QueueDoor:
    """The worker's end of the door inside one process."""

    def __init__(self, inbox: "queue.SimpleQueue[Message]", deliver: OnMessage) -> None:
        self._inbox = inbox
        self._deliver = deliver

    def receive(self, seconds: float) -> list[Message]:
        messages: list[Message] = []
        try:
            messages.append(self._inbox.get(timeout=seconds) if seconds > 0 else self._inbox.get_nowait())
            while True:
                messages.append(self._inbox.get_nowait())
        except queue.Empty:
            return messages

    def send(self, message: Message) -> None:
        try:
            self._deliver(message)
        except RuntimeError as error:  # the event loop is closed: nobody listens
            raise DoorClosed from error
