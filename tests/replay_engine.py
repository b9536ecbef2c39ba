"""A real AsyncEngine whose model says given token ids, with log probabilities that follow from them. Needs no torch."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx

from fairstep import AsyncEngine
from fairstep.door import TokenLogprobs
from fairstep.serving.app import create_app
from fairstep.stepping.plan import StepOutput, StepPlan
from fakes_serving import client_of
from fakes_text import EOS, FakeTokenizer
from fakes_worker import FakeHandle, fake_build, settings

LIKELIEST = (ord("A"), 0x80, 0x81, EOS, 0xC3, *range(ord("B"), ord("Z")))  # whole characters and not
NEVER = 3  # an id with a log probability that no float can tell well


def told(token: int, tops: int) -> TokenLogprobs:
    """What the model tells of a token: its own value first, then those of the likeliest."""
    value = -1e30 if token == NEVER else -1.0 - (token % 7) / 4
    likeliest = LIKELIEST[:tops]
    return TokenLogprobs((token, *likeliest), (value, *(-0.5 - place / 8 for place in range(tops))), 1 + token % 50)


@dataclass
class ReplayRunner:
    """Sequence i says scripts[i - 1] (in turn), then EOS for ever; `plans` are those it was given."""

    scripts: Sequence[Sequence[int]]
    plans: list[StepPlan] = field(default_factory=list)

    def launch(self, plan: StepPlan) -> FakeHandle:
        self.plans.append(plan)
        drawn = [(self.token(piece.seq, piece.position), piece) for piece in plan.slices if piece.samples]
        tops = [piece.sampling.logprobs for _, piece in drawn]
        return FakeHandle(
            StepOutput(
                tuple(token for token, _ in drawn),
                tuple(told(token, n) if n >= 0 else None for (token, _), n in zip(drawn, tops, strict=True)),
                tuple(
                    tuple(told(token, piece.sampling.prompt_logprobs) for token in piece.targets)
                    for piece in plan.slices
                ),
            )
        )

    def token(self, seq: int, position: int) -> int:
        script = self.scripts[(seq - 1) % len(self.scripts)]
        return script[position] if position < len(script) else EOS


def replay_parts(runner: ReplayRunner) -> dict[str, Any]:
    """What makes an AsyncEngine such an engine. Prompts are computed 8 tokens a step at most."""
    build: Any = fake_build(runner, settings(chunk=8))  # type: ignore[arg-type]
    return {"in_process": True, "tokenizer": FakeTokenizer(), "build_worker": build}


@asynccontextmanager
async def replaying(*scripts: Sequence[int], **limits: Any) -> AsyncIterator[tuple[httpx.AsyncClient, ReplayRunner]]:
    """A client of an application over such an engine."""
    runner = ReplayRunner(scripts)
    async with (
        AsyncEngine("fake", **replay_parts(runner)) as engine,
        client_of(create_app(engine, **limits)) as client,
    ):
        yield client, runner
        engine.check()
