"""worker.py: frames over a real socket, Orders let in during a step, the end of the door, failures told in words."""

import fcntl
import socket
import threading
from dataclasses import asdict

import pytest

from fairstep.clock import ManualClock
from fairstep.config import EngineConfig
from fairstep.door import Admit, Failed, Message, Orders, Report, Sampling, Start, Stop, frame
from fairstep.machine import Machine
from fairstep.stepping.cost import StepModel
from fairstep.stepping.loop import StepLoop
from fairstep.stepping.plan import StepPlan
from fairstep.worker import DoorClosed, SocketDoor, Worker, serve, start
from fakes_worker import FakeRunner, settings

RESOLVED = asdict(EngineConfig().resolved(Machine()))


def worker(runner: FakeRunner) -> Worker:
    return Worker(StepLoop(settings(), StepModel()), runner, ManualClock())


def admit(seq: int = 1, max_tokens: int = 3) -> Admit:
    return Admit(seq, 1, (1, 2, 3), 3, Sampling(max_tokens=max_tokens), order=seq)


class ListDoor:
    """Gives prepared batches of messages, then closes."""

    def __init__(self, *batches: list[Message]) -> None:
        self.batches = list(batches)
        self.sent: list[Message] = []

    def receive(self, seconds: float) -> list[Message]:
        if not self.batches:
            raise DoorClosed
        return self.batches.pop(0)

    def send(self, message: Message) -> None:
        self.sent.append(message)


def test_a_sequence_is_stepped_to_its_end() -> None:
    w = worker(FakeRunner())
    w.apply(Orders(1, admit=(admit(),)))
    results = [w.step().results[0] for _ in range(3)]
    assert [r.tokens for r in results] == [(ord("a"),), (ord("b"),), (ord("c"),)]
    assert results[-1].outcome == "length" and not w.has_work
    w.check()


def test_a_cancel_that_comes_during_the_step_takes_its_token_back() -> None:
    w = worker(FakeRunner())
    w.apply(Orders(1, admit=(admit(1), admit(2))))
    report = w.step(lambda: w.apply(Orders(2, cancel=((1, 1),))))
    assert [r.seq for r in report.results] == [2] and report.orders == 2
    assert report.gauges.running == 1
    w.check()


def test_a_step_that_raises_ends_its_own_requests_and_the_worker_lives() -> None:
    def explode(plan: StepPlan) -> None:
        if plan.slices[0].seq == 1:
            raise RuntimeError("out of luck")

    w = worker(FakeRunner(before=explode))
    w.apply(Orders(1, admit=(admit(1),)))
    (result,) = w.step().results
    assert result.outcome == "error" and "out of luck" in (result.error or "")
    w.apply(Orders(2, admit=(admit(2),)))
    assert w.step().results[0].tokens == (ord("a"),)
    w.check()


def test_an_interrupt_leaves_the_step_to_be_run_again() -> None:
    interrupts = [KeyboardInterrupt()]

    def interrupt(plan: StepPlan) -> None:
        if interrupts:
            raise interrupts.pop()

    w = worker(FakeRunner(before=interrupt))
    w.apply(Orders(1, admit=(admit(),)))
    with pytest.raises(KeyboardInterrupt):
        w.step()
    assert w.step().results[0].tokens == (ord("a"),)
    w.check()


def test_a_worker_takes_a_descriptor_beyond_what_select_can_watch() -> None:
    ours, theirs = socket.socketpair()
    high = fcntl.fcntl(theirs.fileno(), fcntl.F_DUPFD, 1100)
    theirs.close()
    with ours, socket.socket(fileno=high) as moved:
        ours.sendall(frame(Stop()))
        assert SocketDoor(moved).receive(5.0) == [Stop()]


def test_serve_reports_each_turn_and_stops_when_told() -> None:
    door = ListDoor([Orders(1, admit=(admit(max_tokens=1),))], [], [Stop()], [])
    serve(worker(FakeRunner()), door)
    reports = [m for m in door.sent if isinstance(m, Report)]
    assert reports[0].step is not None and reports[0].results[0].outcome == "length"
    assert reports[-1].gauges.running == 0


def test_serve_returns_when_the_front_is_gone() -> None:
    serve(worker(FakeRunner()), ListDoor())


def test_frames_survive_being_cut_anywhere() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        door = SocketDoor(theirs)
        data = frame(Orders(1)) + frame(Orders(2, admit=(admit(),))) + frame(Stop())
        got: list[Message] = []
        for byte in data:
            ours.sendall(bytes([byte]))
            got += door.receive(5.0)
        assert got == [Orders(1), Orders(2, admit=(admit(),)), Stop()]
        assert door.receive(0.0) == []


def test_a_closed_socket_closes_the_door() -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        ours.close()
        door = SocketDoor(theirs)
        with pytest.raises(DoorClosed):
            door.receive(5.0)
        with pytest.raises(DoorClosed):
            for _ in range(2):
                door.send(Stop())


@pytest.mark.parametrize(
    ("message", "kind"),
    [(Start("/no/such/model", RESOLVED), "model_error"), (Start("x", {"dtype": "float8"}), "config_error")],
)
def test_a_start_that_cannot_be_is_answered_in_words(message: Start, kind: str) -> None:
    door = ListDoor([message])
    assert start(door) is None
    (failed,) = [m for m in door.sent if isinstance(m, Failed)]
    assert failed.kind == kind and "\n" not in failed.message


def test_a_worker_behind_a_socket_serves_a_front() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        thread = threading.Thread(target=serve, args=(worker(FakeRunner()), SocketDoor(theirs)))
        thread.start()
        front = SocketDoor(ours)
        front.send(Orders(1, admit=(admit(),)))
        outcomes: list[str] = []
        while not outcomes:
            for message in front.receive(5.0):
                assert isinstance(message, Report)
                outcomes += [r.outcome for r in message.results if r.outcome]
        front.send(Stop())
        thread.join()
        assert outcomes == ["length"]
