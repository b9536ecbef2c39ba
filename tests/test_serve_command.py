"""The server's life: 503 while it loads, then the application; signals and failed loads end it in order."""

import asyncio
import os
import signal
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from fairstep.config import ServeConfig
from fairstep.door import Ready
from fairstep.errors import ConfigError, EngineDead, ModelError
from fairstep.metrics import Metrics
from fairstep.serving import serve_command
from fairstep.serving.listener import listen
from fairstep.serving.models_file import sources_of
from fairstep.serving.settings import Settings

INFO = Ready(
    model="m",
    architecture="llama",
    vocab_size=9,
    context=64,
    eos_ids=(1,),
    defaults={},
    pages=4,
    page_size=16,
    seats=2,
    dtype="float32",
    device="cpu",
    parameters=1_000_000,
    seconds={"weights": 0.5},
    notes=("the KV pool is small",),
)


class FakeEngine:
    """An engine that is ready, or fails, once told."""

    def __init__(self, model: str, *args: Any, model_name: str, **named: Any) -> None:
        self.model_name = model_name
        self.source = model
        self.metrics = Metrics(model_name)
        self.named = named
        self.info = INFO
        self.seconds = {"tokenizer": 0.25, "ready": 1.0}
        self.failure: str | None = "the engine has not started"
        self.loaded = asyncio.Event()
        self.error: Exception | None = None
        self.stopped = False

    def check_alive(self) -> None:
        if self.failure is not None:
            raise EngineDead(self.failure)

    check_ready = check_alive

    @property
    def has_started(self) -> bool:
        return self.failure is None

    def refused(self, *_: Any) -> None:
        """Nobody counts here."""

    def replayed(self) -> None:
        """Nobody counts here."""

    def prospect(self, *_: Any) -> None:
        """Nothing is foreseen here."""

    async def start(self) -> None:
        await self.loaded.wait()
        if self.error is not None:
            raise self.error
        self.failure = None

    def now(self) -> float:
        return 0.0

    async def stop(self) -> None:
        self.stopped = True


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> list[FakeEngine]:
    """The engines that the command makes."""
    made: list[FakeEngine] = []

    def make(*args: Any, **named: Any) -> FakeEngine:
        made.append(FakeEngine(*args, **named))
        return made[-1]

    monkeypatch.setattr(serve_command, "AsyncEngine", make)
    return made


def names_of(config: ServeConfig) -> list[str]:
    return [each.name for each in fields(config)]


async def status_of(port: int, path: str = "/health") -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    return int(answer.split(b" ", 2)[1])


def run(script: Callable[[int], Any], config: ServeConfig | None = None, sources: dict[str, str] | None = None) -> None:
    """Serve on a free port while `script(port)` plays the outside world."""

    async def both() -> None:
        with listen("127.0.0.1", 0) as listener:
            own = config or ServeConfig()
            serving = asyncio.create_task(serve_command.serve_on(listener, sources or sources_of(["m"], own), own))
            try:
                await script(listener.getsockname()[1])
            finally:
                await serving

    asyncio.run(asyncio.wait_for(both(), 60))


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGINT])
def test_503_while_loading_then_200_and_a_signal_ends_in_order(
    engines: list[FakeEngine], capsys: pytest.CaptureFixture[str], sig: signal.Signals
) -> None:
    before = signal.getsignal(sig)

    async def script(port: int) -> None:
        assert await status_of(port) == 503
        engines[0].loaded.set()
        while await status_of(port) != 200:
            await asyncio.sleep(0)
        os.kill(os.getpid(), sig)

    run(script)
    assert engines[0].stopped
    said = capsys.readouterr().err
    assert "loaded in 1.00 s (tokenizer 0.25, worker start and imports 0.50, weights 0.50)" in said
    assert "m: llama by fairstep's decoder, 1 M parameters, float32 on cpu" in said
    assert "note: the KV pool is small\n" in said
    assert "ready: http://127.0.0.1:" in said
    assert signal.getsignal(sig) is before or before is signal.default_int_handler


def test_a_signal_while_loading_ends_in_order(engines: list[FakeEngine]) -> None:
    async def script(port: int) -> None:
        assert await status_of(port) == 503
        os.kill(os.getpid(), signal.SIGTERM)

    run(script)
    assert engines[0].stopped


def test_a_hangup_while_loading_moves_names_once_all_is_loaded(engines: list[FakeEngine], tmp_path: Path) -> None:
    file = tmp_path / "models.toml"
    file.write_text('[models]\nm = "other"\n')

    async def script(port: int) -> None:
        assert await status_of(port) == 503
        while signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:
            await asyncio.sleep(0)
        os.kill(os.getpid(), signal.SIGHUP)
        for _ in range(20):
            assert await status_of(port) == 503
        assert len(engines) == 1
        engines[0].loaded.set()
        while len(engines) == 1:
            await status_of(port)
        engines[1].loaded.set()
        while not engines[0].stopped:
            await status_of(port)
        assert await status_of(port) == 200
        os.kill(os.getpid(), signal.SIGTERM)

    run(script, ServeConfig(models=str(file)), {"m": "m"})
    assert [engine.source for engine in engines] == ["m", "other"] and engines[1].stopped


def test_a_model_that_cannot_be_loaded_ends_the_server_with_its_error(engines: list[FakeEngine]) -> None:
    async def script(port: int) -> None:
        assert await status_of(port) == 503
        engines[0].error = ModelError("no weights")
        engines[0].loaded.set()

    with pytest.raises(ModelError, match="no weights"):
        run(script)
    assert engines[0].stopped


def test_names_and_prefix_reach_the_engine(engines: list[FakeEngine]) -> None:
    async def script(port: int) -> None:
        await status_of(port)
        os.kill(os.getpid(), signal.SIGTERM)

    run(script, ServeConfig(served_model_name="mine", metrics_prefix="x", in_process=True))
    assert engines[0].model_name == "mine"
    assert engines[0].named["in_process"] is True


def test_a_busy_port_is_told_before_an_engine_is_made(engines: list[FakeEngine]) -> None:
    with listen("127.0.0.1", 0) as taken:
        config = ServeConfig(port=taken.getsockname()[1])
        with pytest.raises(ConfigError, match="in use"):
            serve_command.run_server({"m": "m"}, Settings(config, dict.fromkeys(names_of(config), "default")))
    assert engines == []


def test_what_was_loaded_says_what_weights_are_where_not_all_is_of_one_format(engines: list[FakeEngine]) -> None:
    def line(weights: str) -> str:
        engine = FakeEngine("m", model_name="m")
        engine.info = structs.replace(INFO, dtype="bfloat16", weights=weights)
        return serve_command.loaded_lines(engine)  # type: ignore[arg-type]

    assert "parameters, bfloat16 with weights Q4_1, output Q8_0 on cpu, " in line("Q4_1, output Q8_0")
    assert "parameters, bfloat16 on cpu, " in line("bfloat16")
    assert "parameters, bfloat16 on cpu, " in line("")


def test_what_was_loaded_says_when_transformers_computes_it(engines: list[FakeEngine]) -> None:
    engine = FakeEngine("m", model_name="m")
    engine.info = structs.replace(INFO, path="transformers", architecture="GPT2LMHeadModel")
    line = serve_command.loaded_lines(engine)  # type: ignore[arg-type]
    assert "m: GPT2LMHeadModel by transformers' own code, " in line
