"""A file of prompts to a file of answers: order, going on after an end of any kind, and what is told.

The runs that are killed are real processes on a tiny model; the rest needs none.
"""

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fairstep.config import Machine
from fairstep.errors import ConfigError, EngineDead
from fairstep.serving import generate_command
from fairstep.serving.generate_command import Job, run_generate
from fairstep.serving.generate_line import LineOptions
from fairstep.serving.settings import Settings
from fakes_serving import FakeEngine
from tiny_models import tiny_llama

LINES = 2_000
SETTINGS = Settings.settle({}, None, Machine())
Change = Callable[[FakeEngine], None]


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> list[FakeEngine]:
    """The engines that a run makes."""
    made: list[FakeEngine] = []

    class Engine(FakeEngine):
        def __init__(self, *args: Any, **named: Any) -> None:
            super().__init__()
            self.stopped = False
            made.append(self)

        async def start(self) -> None: ...

        async def stop(self) -> None:
            self.stopped = True

    monkeypatch.setattr(generate_command, "AsyncEngine", Engine)
    return made


def job(folder: Path, lines: list[dict[str, Any]] | None = None, **changes: Any) -> Job:
    if lines is not None:
        (folder / "in").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    usual = {"model": "m", "options": LineOptions(max_tokens=5), "input": folder / "in", "output": folder / "out"}
    chosen = {**usual, **changes}
    return Job(**{**chosen, "input": str(chosen["input"]), "output": str(chosen["output"])})


def records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def prompts(count: int) -> list[dict[str, Any]]:
    return [{"id": f"line {number}", "prompt": f"number {number}"} for number in range(count)]


def test_every_line_is_answered_in_order(engines: list[FakeEngine], tmp_path: Path) -> None:
    assert run_generate(job(tmp_path, prompts(300)), SETTINGS)
    assert [each["id"] for each in records(tmp_path / "out")] == [f"line {number}" for number in range(300)]
    assert [each["index"] for each in records(tmp_path / "out")] == list(range(300))
    assert engines[0].stopped  # type: ignore[attr-defined]


def test_a_bad_line_is_told_in_its_place_and_in_the_result(engines: list[FakeEngine], tmp_path: Path) -> None:
    lines = prompts(5)
    lines[2] = {"nonsense": 1}
    assert not run_generate(job(tmp_path, lines), SETTINGS)
    assert ["error" in each for each in records(tmp_path / "out")] == [False, False, True, False, False]
    assert not run_generate(job(tmp_path), SETTINGS)  # nothing is left to do, and the error is still there
    assert len(engines) == 1


def test_what_is_there_is_kept_and_only_the_rest_is_asked(engines: list[FakeEngine], tmp_path: Path) -> None:
    run_generate(job(tmp_path, prompts(9)), SETTINGS)
    whole = (tmp_path / "out").read_bytes()
    (tmp_path / "out").write_bytes(whole[: whole.index(b"line 4") + 3])
    run_generate(job(tmp_path), SETTINGS)
    assert (tmp_path / "out").read_bytes() == whole
    assert len(engines[1].asked) == 5


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"lines": prompts(3)}, "more lines than the input"),
        ({"lines": [*prompts(2), {"prompt": "new"}, *prompts(9)[3:]]}, "line 3 of the output .* another input line"),
        ({"model": "other"}, "line 1 of the output .* another model"),
        ({"options": LineOptions(max_tokens=6)}, "line 1 of the output .* other options"),
    ],
)
def test_the_output_of_another_job_is_refused_before_anything_loads_and_stays(
    engines: list[FakeEngine], tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    run_generate(job(tmp_path, prompts(4)), SETTINGS)
    before = (tmp_path / "out").read_bytes()
    with pytest.raises(ConfigError, match=said):
        run_generate(job(tmp_path, **change), SETTINGS)
    assert (tmp_path / "out").read_bytes() == before
    assert len(engines) == 1
    run_generate(job(tmp_path, **change, overwrite=True), SETTINGS)
    assert len(records(tmp_path / "out")) == len((tmp_path / "in").read_bytes().splitlines())


def test_an_input_that_has_grown_goes_on(engines: list[FakeEngine], tmp_path: Path) -> None:
    run_generate(job(tmp_path, prompts(3)), SETTINGS)
    run_generate(job(tmp_path, prompts(5)), SETTINGS)
    assert [each["index"] for each in records(tmp_path / "out")] == [0, 1, 2, 3, 4]


def test_input_and_output_may_not_be_one_file(engines: list[FakeEngine], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="same file"):
        run_generate(job(tmp_path, prompts(1), output=tmp_path / "in"), SETTINGS)


def test_a_worker_that_dies_ends_the_run_and_leaves_what_was_done(
    engines: list[FakeEngine], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    taken = FakeEngine.submit_group

    def dying(engine: FakeEngine, *args: Any, **how: Any) -> Any:
        if len(engine.asked) == 5:
            engine.failure = "the worker process ended"
        return taken(engine, *args, **how)

    monkeypatch.setattr(FakeEngine, "submit_group", dying)
    with pytest.raises(EngineDead):
        run_generate(job(tmp_path, prompts(50)), SETTINGS)
    assert len(records(tmp_path / "out")) <= 5
    assert all("error" not in each for each in records(tmp_path / "out"))
    assert engines[0].stopped  # type: ignore[attr-defined]
    assert "the same command goes on from there" in capsys.readouterr().err


def test_an_interrupt_cancels_what_is_in_work(engines: list[FakeEngine], tmp_path: Path) -> None:
    async def interrupted() -> None:
        from fairstep.serving.generate_input import InputLines
        from fairstep.serving.generate_output import OutputFile

        whole = job(tmp_path, prompts(50))
        with InputLines.opened(whole.input) as lines, OutputFile.opened(whole.output) as output:
            running = asyncio.create_task(generate_command._generate(whole, SETTINGS, lines, output))
            while not engines:
                await asyncio.sleep(0)
            engines[0].held = True
            await engines[0].until(lambda: len(engines[0].asked) == 8)  # twice its seats
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running

    asyncio.run(asyncio.wait_for(interrupted(), 60))
    assert len(engines[0].cancelled) == 8
    assert records(tmp_path / "out") == []


def test_prompts_are_not_held_back_for_the_rhythm_of_others_unless_so_wished() -> None:
    assert generate_command.engine_config(SETTINGS).inter_token_target_ms == generate_command.NO_TARGET_MS
    chosen = Settings.settle({"inter_token_target_ms": "auto"}, None, Machine())
    assert generate_command.engine_config(chosen).inter_token_target_ms == "auto"


# --- real processes


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_llama(tmp_path_factory.mktemp("model"), hidden=32, layers=1, context=64)


def command(model: Path, input_file: str, output_file: str) -> list[str]:
    options = ["--max-tokens", "2", "--seed", "11", "--dtype", "float32"]
    args = ["generate", str(model), "--input", input_file, "--output", output_file, *options]
    # Ctrl-C is ignored in what a shell starts in the background, which the tests may be
    as_at_a_terminal = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    return [sys.executable, "-P", "-c", f"{as_at_a_terminal}; from fairstep.serving.cli import main; main({args!r})"]


def test_killed_in_the_middle_and_started_again_it_ends_with_each_line_once(model: Path, tmp_path: Path) -> None:
    lines = [{"id": number, "prompt": f"{number} cats sat"} for number in range(LINES)]
    lines[700] = {"id": 700, "prompt": "", "note": "a bad line"}
    (tmp_path / "in").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    begun, whole = tmp_path / "begun", tmp_path / "whole"
    process = subprocess.Popen(command(model, str(tmp_path / "in"), str(begun)), stderr=subprocess.DEVNULL)
    while process.poll() is None and (not begun.exists() or begun.read_bytes().count(b"\n") < LINES // 4):
        wait_a_little(process)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    killed_at = begun.read_bytes().count(b"\n")
    assert LINES // 4 <= killed_at < LINES
    with begun.open("ab") as file:
        file.write(b'{"index":')  # as if it had been killed inside a line
    again = subprocess.run(command(model, str(tmp_path / "in"), str(begun)), stderr=subprocess.PIPE, check=False)
    assert again.returncode == 1, again.stderr  # one line has an error
    assert f"has {killed_at} of {LINES} lines already" in again.stderr.decode()
    found = records(begun)
    assert [each["id"] for each in found] == list(range(LINES))
    assert [each["index"] for each in found if "error" in each] == [700]
    options = LineOptions(max_tokens=2, seed=11)
    uninterrupted = Job(model=str(model), input=str(tmp_path / "in"), output=str(whole), options=options)
    assert not run_generate(
        uninterrupted, Settings.settle({"in_process": True, "dtype": "float32"}, None, Machine.found())
    )
    assert begun.read_bytes() == whole.read_bytes()


def wait_a_little(process: "subprocess.Popen[bytes]") -> None:
    try:
        process.wait(0.02)
    except subprocess.TimeoutExpired:
        return


def test_a_pipe_is_answered_line_by_line_and_ctrl_c_ends_in_order(model: Path) -> None:
    process = subprocess.Popen(
        command(model, "-", "-"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdin and process.stdout and process.stderr
    process.stdin.write(b'{"prompt": "the cat"}\n')
    process.stdin.flush()
    assert json.loads(process.stdout.readline())["usage"]["completion_tokens"] <= 2  # before the input has ended
    process.send_signal(signal.SIGINT)
    said = process.stderr.read().decode()
    assert process.wait() == 130, said
    assert "1 lines" in said and "Traceback" not in said
    process.stdin.close()
    process.stdout.close()
    process.stderr.close()
