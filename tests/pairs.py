"""One model in fairstep and in transformers, side by side, and what is compared of them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from fairstep.config import EngineConfig, Machine
from fairstep.model.building import build_runner
from fairstep.model.runner import TorchRunner
from fairstep.stepping.settings import StepSettings
from hand_made_plans import Hand
from loop_drive import Course
from reference import assert_all_same, assert_same, generated, leads, reference_model

LOGITS = 1e-4  # most that a float32 logit may be off


@dataclass
class Pair:
    """One model in fairstep and in transformers."""

    runner: TorchRunner
    settings: StepSettings
    reference: PreTrainedModel
    vocab: int
    answers: dict[tuple[int, ...], tuple[list[int], Tensor]] = field(default_factory=dict)

    def expected(self, prompt: Sequence[int], count: int) -> tuple[list[int], Tensor]:
        """`count` tokens of the reference and their logits; kept in `answers`."""
        key = (count, *prompt)
        if key not in self.answers:
            self.answers[key] = generated(self.reference, prompt, count)
        return self.answers[key]

    def prompt(self, length: int, seed: int = 0) -> list[int]:
        random = torch.Generator().manual_seed(1000 * seed + length)
        return torch.randint(0, self.vocab, (length,), generator=random).tolist()


def config(**changes: Any) -> EngineConfig:
    values = {"dtype": "float32", "kv_memory": "8MiB", "max_seats": 8, "threads": 1, **changes}
    return EngineConfig(**values).resolved(Machine())


def pair_of(path: Path, reference: PreTrainedModel | None = None, **changes: Any) -> Pair:
    """`reference`: one that is loaded already; `changes`: of the config."""
    runner, settings, ready = build_runner(str(path), config(**changes), lambda what, part: None)
    return Pair(runner, settings, reference or reference_model(str(path)), ready.vocab_size)


class Watched:
    """Keeps the logits a runner's model gives, row by row."""

    def __init__(self, runner: TorchRunner, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rows: list[Tensor] = []
        compute: Callable[[Tensor], Tensor] = runner.model.logits

        def watched(rows: Tensor) -> Tensor:
            logits = compute(rows)
            self.rows += list(logits)
            return logits

        monkeypatch.setattr(runner.model, "logits", watched)


def pages_from(first: int, tokens: int, page_size: int) -> tuple[int, ...]:
    """Pages in falling order, so that a page table is no identity."""
    return tuple(range(first + -(-tokens // page_size) - 1, first - 1, -1))


def assert_logits(pair: Pair, watched: Watched, hand: Hand, prompt: int) -> None:
    """The logits of each output of a sequence, up to a near tie if the reference went another way there."""
    want, logits = pair.expected(hand.tokens[:prompt], len(hand.outputs))
    same = assert_same(hand.outputs, want, leads(logits))
    count = len(want) if same else next(i for i, token in enumerate(want) if token != hand.outputs[i]) + 1
    torch.testing.assert_close(torch.stack(watched.rows)[:count], logits[:count], atol=LOGITS, rtol=0)


def assert_greedy(pair: Pair, prompts: list[list[int]], course: Course, count: int) -> None:
    """Every output of `course` is what transformers answers."""
    wanted = [pair.expected(prompt, count) for prompt in prompts]
    assert_all_same([(got, want, leads(logits)) for got, (want, logits) in zip(course.outputs, wanted, strict=True)])
