"""A step of a real model by how many sequences run and how long they are: step loop and runner, without HTTP.

Prompts are not computed, only planned: what lies in the pages changes no step's time. So that pages are memory of their
own, as they would be, all are filled with noise first.
"""

import statistics
import time
from collections.abc import Sequence
from dataclasses import replace

from fairstep.clock import MonotonicClock
from fairstep.config import EngineConfig
from fairstep.door import Admit, Orders, Sampling
from fairstep.machine import Machine
from fairstep.stepping.cost import StepModel
from fairstep.stepping.loop import StepLoop
from fairstep.stepping.plan import StepOutput
from fairstep.worker import Worker, spin_shortly

NO_TARGET = 1e6  # ms: prompts get all of a step
WARM_UP = 2  # steps of each visit that don't count
IDS = 250  # in any vocabulary

Size = tuple[int, int]  # sequences that run, tokens of each


class RealSteps:
    """A model, loaded once. info: what was loaded."""

    def __init__(self, model: str, *, seats: int, kv_memory: str, dtype: str, threads: int | None) -> None:
        spin_shortly()
        from fairstep.model.building import build_runner  # torch comes in here

        config = EngineConfig(
            max_seats=seats,
            kv_memory=kv_memory,
            dtype=dtype,
            threads=threads,
            prefix_cache=False,
            inter_token_target_ms=NO_TARGET,
        )
        self._runner, self._settings, self.info = build_runner(
            model, config.resolved(Machine.found()), lambda what, part: None
        )
        self._fill()

    def fits(self, size: Size, steps: int) -> bool:
        """Whether so many sequences can decode for so many steps."""
        running, context = size
        length = context + steps + WARM_UP
        pages = running * -(-length // self._settings.page_size)
        return length <= self.info.context and pages <= self._settings.pages and running <= self._settings.seats

    def medians(self, sizes: Sequence[Size], steps: int, rounds: int) -> dict[Size, float]:
        """Seconds of a whole step: plan, run, commit. All sizes by turns, so that a slow spell meets all."""
        found: dict[Size, list[float]] = {size: [] for size in sizes}
        for _ in range(rounds):
            for size in sizes:
                found[size] += self._steps(size, steps)
        return {size: statistics.median(seconds) for size, seconds in found.items()}

    def _steps(self, size: Size, steps: int) -> list[float]:
        running, context = size
        at_once = max(self._settings.seats, running * context)  # all prompts in the first step
        loop = StepLoop(replace(self._settings, step_tokens=at_once, chunk=context), StepModel())
        sampling = Sampling(max_tokens=steps + WARM_UP + 1)
        loop.apply(Orders(1, admit=tuple(_admit(seq, context, sampling) for seq in range(1, running + 1))))
        _skip_prompts(loop, running)
        worker = Worker(loop, self._runner, MonotonicClock())
        seconds = [_seconds_of_a_step(worker, running) for _ in range(WARM_UP + steps)]
        return seconds[WARM_UP:]

    def _fill(self) -> None:
        import torch

        for block in self._runner.kv.blocks:
            block[:, 1:] = torch.randn(block.shape[2:]).to(block.dtype)


def _skip_prompts(loop: StepLoop, running: int) -> None:
    """The first step, without computing it."""
    plan = loop.plan()
    assert len(plan.slices) == running, "not all of them have begun"
    loop.commit(plan, StepOutput((IDS,) * running), run_seconds=0.01)


def _seconds_of_a_step(worker: Worker, running: int) -> float:
    began = time.perf_counter()
    report = worker.step()
    seconds = time.perf_counter() - began
    assert report.step is not None and report.step.decode_tokens == running, "not all of them decode"
    return seconds


def _admit(seq: int, context: int, sampling: Sampling) -> Admit:
    """A sequence whose first decode attends to `context` tokens, itself included."""
    tokens = tuple((7919 * n + 31 * seq) % IDS for n in range(context - 1))
    return Admit(seq, 1, tokens, len(tokens), sampling, order=seq)
