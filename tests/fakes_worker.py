"""A fake runner and workers made of it: the real step loop without torch. Tokens are a function of what is known."""

from collections.abc import Callable
from dataclasses import dataclass, field

from fairstep.clock import Clock, MonotonicClock
from fairstep.config import EngineConfig
from fairstep.door import Ready, TokenLogprobs
from fairstep.stepping.cost import StepModel
from fairstep.stepping.loop import StepLoop
from fairstep.stepping.plan import StepOutput, StepPlan
from fairstep.stepping.settings import StepSettings
from fairstep.worker import ProgressCall, Worker
from fakes_text import EOS, VOCAB

LETTERS = 26


def letter(position: int) -> int:
    """The output token at a position: a, b, c, ... again and again."""
    return ord("a") + position % LETTERS


def said_of(token: int, count: int) -> TokenLogprobs:
    """The log probabilities beside a token: its own, then those of the next `count` ids."""
    return TokenLogprobs((token, *range(token, token + count)), (-token / 100,) + (-1.0,) * count, 1)


@dataclass
class FakeRunner:
    """Says a, b, c, ...; `draw` may say otherwise; `before` runs before each step, on the worker's side."""

    draw: Callable[[int], int] = letter
    before: Callable[[StepPlan], None] = lambda plan: None
    plans: list[StepPlan] = field(default_factory=list)

    def launch(self, plan: StepPlan) -> "FakeHandle":
        self.before(plan)
        self.plans.append(plan)
        drawn = [(self.draw(s.position), s.sampling.logprobs) for s in plan.slices if s.samples]
        prompts = [[said_of(token, s.sampling.prompt_logprobs) for token in s.targets] for s in plan.slices]
        return FakeHandle(
            StepOutput(
                tuple(token for token, _ in drawn),
                tuple(said_of(token, asked) if asked >= 0 else None for token, asked in drawn),
                tuple(map(tuple, prompts)),
            )
        )


@dataclass(frozen=True)
class FakeHandle:
    output: StepOutput

    def result(self) -> StepOutput:
        return self.output


def settings(**changes: int) -> StepSettings:
    """Four seats, 64 pages of 4 tokens, context 200, unless changed."""
    values = {"step_tokens": 64, "seats": 4, "pages": 64, "page_size": 4, "chunk": 64, "context": 200, **changes}
    return StepSettings(**values)


def ready(own: StepSettings) -> Ready:
    return Ready(
        model="fake",
        architecture="fake",
        vocab_size=VOCAB,
        context=own.context,
        eos_ids=(EOS,),
        defaults={},
        pages=own.pages,
        page_size=own.page_size,
        seats=own.seats,
        dtype="float32",
        device="cpu",
        parameters=0,
        seconds={},
    )


def fake_build(
    runner: FakeRunner | None = None, own: StepSettings | None = None, clock: Clock | None = None
) -> Callable[[str, EngineConfig, ProgressCall], tuple[Worker, Ready]]:
    """What Engine and AsyncEngine take as `build_worker`."""
    own = own or settings()
    runner = runner or FakeRunner()

    def build(model: str, config: EngineConfig, progress: ProgressCall) -> tuple[Worker, Ready]:
        progress("fake", 1.0)
        return Worker(StepLoop(own, StepModel()), runner, clock or MonotonicClock()), ready(own)

    return build
