"""What computes the steps: a model on this machine, or the times of an imagined one. Either plays any rule."""

import gc
from abc import ABC, abstractmethod
from collections import defaultdict
from dataclasses import replace

from ..config import EngineConfig
from ..door import Coefficients, Ready
from ..front_setup import make_front
from ..intake import Speech
from ..metrics import Metrics
from ..simulation.runner import SimulatedRunner, ready
from ..simulation.speech import DotSpeech
from ..simulation.step_cost import StepCost
from ..simulation.trace import Trace
from ..simulation.virtual_clock import VirtualClock
from ..stepping.cost import PRIOR, StepModel
from ..stepping.loop import StepLoop
from ..stepping.plan import Runner
from ..stepping.settings import StepSettings
from ..text.tokenizer import load_tokenizer
from ..worker import ProgressCall, Worker, spin_shortly
from .course import Course
from .playing import Leaping, Play
from .rules import Rule
from .skipping_clock import SkippingClock

ENDLESS = 2**31  # tokens that an answer would have without max_tokens

# Bounds of an 8B model in bfloat16 on an accelerator of 3 TB/s and 400 usable TFLOP/s: a step reads 16 GB of weights
# and launches for 2.5 ms; 16 GFLOP a prompt token; 20 µs to sample and tell a row; 128 KiB of keys and values a token.
LARGE_GPU = Coefficients(base=0.008, prompt=0.000_04, sequence=0.000_02, context=0.000_000_044)


class Machine(ABC):
    """Plays traces by the real front and step loop. What steps were seen to cost is kept from run to run."""

    def __init__(self, settings: StepSettings, info: Ready, speech: Speech, believed: Coefficients) -> None:
        self.info = info
        self._settings = settings
        self._speech = speech
        self._believed = believed

    @abstractmethod
    def _fresh(self) -> tuple[Leaping, Runner]:
        """A clock at 0, and what computes steps while it goes."""

    def play(self, trace: Trace, rule: Rule) -> Course:
        """One run."""
        gc.collect()  # of the run before, not within this one
        config = EngineConfig(max_seats=self._settings.seats, **rule.settings)
        static, padded = config.batching != "continuous", config.batching == "padded"
        settings = replace(self._settings, static=static, padded=padded)
        model = StepModel(self._believed)
        clock, runner = self._fresh()
        worker = Worker(StepLoop(settings, model), runner, clock)
        course = Play(trace, make_front(config, self.info, self._speech, Metrics(warns=False)), worker, clock).run()
        self._believed = model.coefficients
        return course


class RealMachine(Machine):
    """A model, loaded once. Steps take the time that they take; what lies between them is skipped."""

    def __init__(self, model: str, config: EngineConfig, progress: ProgressCall) -> None:
        spin_shortly()
        from ..model.building import build_runner  # torch comes in here

        self._runner, settings, info = build_runner(model, config, progress)
        tokenizer = load_tokenizer(model)
        tokenizer.prepare()
        super().__init__(settings, info, tokenizer, PRIOR)

    def _fresh(self) -> tuple[Leaping, Runner]:
        return SkippingClock(), self._runner


class VirtualMachine(Machine):
    """Steps take modelled seconds. kv_tokens: what all sequences together may have in memory."""

    def __init__(self, cost: StepCost, *, seats: int, step_tokens: int, kv_tokens: int, context: int) -> None:
        page_size = 16
        settings = StepSettings(
            step_tokens=step_tokens,
            seats=seats,
            pages=kv_tokens // page_size,
            page_size=page_size,
            chunk=step_tokens,
            context=context,
            prefix_cache=False,
        )
        super().__init__(settings, ready(settings), DotSpeech(), cost.coefficients)
        self._cost = cost

    def _fresh(self) -> tuple[Leaping, Runner]:
        clock = VirtualClock()
        runner = SimulatedRunner(clock, self._cost)
        runner.outputs = defaultdict(lambda: ENDLESS)
        return clock, runner
