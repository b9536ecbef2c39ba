"""Engines without HTTP, each in a process of its own: started, played by turns, ended. Knows how each is called.

Who waits for its turn is stopped (SIGSTOP), so that idle threads take nothing from the one that is measured.
"""

import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from peer_servers import parted
from process_tree import tree

PLAYER = Path(__file__).with_name("offline_player.py")
END_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Played:
    """Tokens a second: of prompts until each had its first token, of answers while all were running, of answers in all.

    decode: 0 where answers end with their first token.
    """

    prefill: float
    decode: float
    whole: float


class Engine(ABC):
    """name: with its precision behind a colon, fairstep:bf16; those of one precision are compared."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.precision = name.rpartition(":")[2]
        self.version = ""

    @abstractmethod
    def start(self) -> float:
        """Seconds from the command to the first token of a first answer."""

    @abstractmethod
    def play(self, count: int, prompt: int, answer: int, seed: int) -> Played:
        """So many prompts at once; tokens each of prompt and answer."""

    def stop(self) -> None:  # noqa: B027  (one that ends by itself need do nothing)
        """End it; it can be started again."""


class Player(Engine):
    """One that is called from Python, by offline_player.py in the engine's own environment."""

    def __init__(self, name: str, kind: str, python: Sequence[str], model: str, options: str) -> None:
        super().__init__(name)
        self._command = [*python, str(PLAYER), kind, model, options]

    def start(self) -> float:
        began = time.monotonic()
        self._log = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115  (closed by stop)
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True
        )
        self.version = self._reply()["version"]
        seconds = time.monotonic() - began
        self._signal(signal.SIGSTOP)
        return seconds

    def play(self, count: int, prompt: int, answer: int, seed: int) -> Played:
        self._signal(signal.SIGCONT)
        pipe = _open(self._process.stdin)
        pipe.write(json.dumps({"count": count, "prompt": prompt, "answer": answer, "seed": seed}) + "\n")
        pipe.flush()
        told = self._reply()
        self._signal(signal.SIGSTOP)
        decode = told["decoded"] / told["decode"] if told["decode"] > 0 else 0.0
        return Played(count * prompt / told["first"], decode, count * answer / told["all"])

    def stop(self) -> None:
        self._signal(signal.SIGCONT)
        children = [*tree(self._process.pid)][1:]
        with suppress(BrokenPipeError):
            _open(self._process.stdin).close()  # the player ends with its input
        try:
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for pid in children:  # those it left behind
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._log.close()

    def _reply(self) -> dict[str, Any]:
        line = _open(self._process.stdout).readline()
        if not line:
            self._log.seek(0)
            raise SystemExit(f"{self.name} ended:\n{self._log.read()[-3000:]}")
        reply: dict[str, Any] = json.loads(line)
        return reply

    def _signal(self, which: signal.Signals) -> None:
        for pid in tree(self._process.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, which)


class LlamaBench(Engine):
    """llama.cpp by its llama-batched-bench, a process for each play. It draws no tokens: its steps are bare."""

    def __init__(self, name: str, command: Sequence[str]) -> None:
        super().__init__(name)
        self._command = command

    def start(self) -> float:
        began = time.monotonic()
        self._run(1, 1, 1)
        return time.monotonic() - began

    def play(self, count: int, prompt: int, answer: int, seed: int) -> Played:
        row = self._run(count, prompt, answer)
        return Played(row["speed_pp"], row["speed_tg"] if answer > 1 else 0.0, count * answer / row["t"])

    def _run(self, count: int, prompt: int, answer: int) -> dict[str, Any]:
        sizes = {"-npl": count, "-npp": prompt, "-ntg": answer, "-c": max(512, count * (prompt + answer))}
        words = [str(word) for pair in sizes.items() for word in pair]
        done = subprocess.run(
            [*self._command, *words, "--output-format", "jsonl"], capture_output=True, text=True, check=False
        )
        rows = [line for line in done.stdout.splitlines() if line.startswith("{")]
        if done.returncode or not rows:
            raise SystemExit(f"{self.name} ended with {done.returncode}:\n{done.stderr[-3000:]}")
        row: dict[str, Any] = json.loads(rows[-1])
        return row


def _open(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None
    return pipe


def own(named: str, model: str) -> Engine:
    """NAME:PRECISION={options of EngineConfig as JSON, and perhaps a model of its own}."""
    name, words = parted(named)
    options = json.loads(words or "{}")
    return Player(name, "fairstep", [sys.executable], options.pop("model", model), json.dumps(options))


def vllm(named: str) -> Engine:
    """NAME:PRECISION=PYTHON MODEL {options of vllm.LLM as JSON}; before PYTHON: env and variables."""
    name, words = parted(named)
    *python, model, options = shlex.split(words)
    return Player(name, "vllm", python, model, options)


def llama(named: str) -> Engine:
    """NAME:PRECISION=PATH of llama-batched-bench, and its options."""
    name, words = parted(named)
    return LlamaBench(name, shlex.split(words))
