"""A worker process on a fake runner, which some requests kill: `python poisoned_worker.py FD` as `-m fairstep.worker`.

Whoever's prompt begins with KILLS brings the process down with its third token; SLOW makes each step take a while.
"""

import os
import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from chaos.plant import FATAL_POSITION, KILLS
from fairstep import worker
from fairstep.config import EngineConfig
from fairstep.door import Ready
from fairstep.errors import ModelError
from fairstep.stepping.plan import StepPlan
from fakes_worker import FakeRunner, fake_build, letter, settings

SLOW, SLOW_SECONDS = 104, 0.02
CAPITALS, BROKEN = "capitals", "broken"  # models: one that says A, B, C, ..., and one that cannot be loaded


def capital(position: int) -> int:
    return letter(position) - 32


class Poisoned(FakeRunner):
    def __init__(self, model: str) -> None:
        super().__init__(draw=capital if model == CAPITALS else letter, before=self.look)
        self.culprits: set[int] = set()
        self.slow: set[int] = set()

    def look(self, plan: StepPlan) -> None:
        for piece in plan.slices:
            if piece.start == 0 and piece.tokens[0] == KILLS:
                self.culprits.add(piece.seq)
            if piece.start == 0 and piece.tokens[0] == SLOW:
                self.slow.add(piece.seq)
            if piece.seq in self.culprits and piece.samples and piece.position >= FATAL_POSITION:
                os.kill(os.getpid(), signal.SIGKILL)
        if any(piece.seq in self.slow for piece in plan.slices):
            time.sleep(SLOW_SECONDS)


def build(model: str, config: EngineConfig, progress: worker.ProgressCall) -> tuple[worker.Worker, Ready]:
    if model == BROKEN:
        raise ModelError(f"there is no model {model}")
    own = settings(seats=config.max_seats or 32, pages=1000, step_tokens=128)
    return fake_build(Poisoned(model), own)(model, config, progress)


if __name__ == "__main__":
    worker.build = build
    worker.main()
