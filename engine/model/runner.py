"""Runs steps with a model on one device: plan in, tokens out. Knows no scheduling; it computes what it is handed."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

import torch
from torch import Tensor

from ..door import Sampling, TokenLogprobs
from ..stepping.pages import NULL_PAGE
from ..stepping.plan import Slice, StepOutput, StepPlan
from .batch import StepBatch, batch_of
from .draws import DrawWhole, draw_whole
from .feedback import Feedback
from .kv import KVMemory
from .logprobs import prompt_logprobs, token_logprobs
from .row import Row
from .sampler import sample

TARGET_ROWS = 64  # most prompt tokens whose logits over the whole vocabulary are held at once


class CausalModel(Protocol):
    """A decoder-only model on one device that keeps keys and values in pages."""

    @property
    def device(self) -> torch.device: ...

    def hidden(self, batch: StepBatch) -> Tensor:
        """Compute a step and keep its keys and values: what `logits` takes, [T, hidden]."""
        ...

    def logits(self, rows: Tensor) -> Tensor:
        """Logits [R, vocab] float32 of some rows [R, hidden] of `hidden`."""
        ...


@dataclass(frozen=True, slots=True)
class FinishedStep:
    """A step that was computed by the time `launch` returned."""

    output: StepOutput

    def result(self) -> StepOutput:
        return self.output


class TorchRunner:
    """A stepping.plan.Runner. `kv` is the memory that the model's backend writes to. whole: as in sampler.sample.

    overlaps: whether steps are better launched ahead; here each is computed before launch() returns.
    """

    overlaps = False

    def __init__(self, model: CausalModel, kv: KVMemory, whole: DrawWhole = draw_whole) -> None:
        self.model = model
        self.kv = kv
        self._whole = whole
        self._feedback = Feedback()

    @torch.inference_mode()
    def launch(self, plan: StepPlan) -> FinishedStep:
        """Compute a plan with at least one slice. Raises what torch raises; pages of the plan are then undefined."""
        slices = self._feedback.fed(plan.slices) + plan.padding
        batch = batch_of(slices, self.kv.page_size, self.model.device)
        hidden = self.model.hidden(batch)
        sampling = [part for part in slices if part.samples]
        tokens, logprobs = self._draw(hidden, batch, sampling)
        self._feedback.keep(sampling, tokens)
        if plan.padding:
            self.kv.clear_null_page()
            drawn = sum(part.samples for part in plan.slices)
            tokens, logprobs = tokens[:drawn], logprobs[:drawn]
        return FinishedStep(StepOutput(tokens, logprobs, self._prompt_logprobs(hidden, batch, plan.slices)))

    def warm_up(self, lengths: tuple[int, ...] = (1, 1, 16)) -> None:
        """Run a few slices on the null page, so that the first request doesn't pay for what torch sets up lazily."""
        for length in lengths:
            self.launch(StepPlan(0, (blank_slice(length, self.kv.page_size),)))
        self.kv.clear_null_page()

    def check(self) -> None:
        self.kv.check()

    def _draw(
        self, hidden: Tensor, batch: StepBatch, sampling: list[Slice]
    ) -> tuple[tuple[int, ...], tuple[TokenLogprobs | None, ...]]:
        """A token for each sampling slice, and what was asked for beside it."""
        if not sampling:
            return (), ()
        logits = self.model.logits(hidden[batch.logit_rows])
        rows = [Row(part.sampling, part.position, part.known, part.prompt_len) for part in sampling]
        tokens = sample(logits, rows, self._whole)
        counts = [part.sampling.logprobs for part in sampling]
        asked = max(counts) >= 0
        return tuple(tokens), tuple(token_logprobs(logits, tokens, counts)) if asked else ()

    def _prompt_logprobs(
        self, hidden: Tensor, batch: StepBatch, slices: Sequence[Slice]
    ) -> tuple[tuple[TokenLogprobs, ...], ...]:
        """For each slice those of its targets, computed a block at a time; () where no slice has any."""
        counts = [part.sampling.prompt_logprobs for part in slices for _ in part.targets]
        found: list[TokenLogprobs] = []
        for start in range(0, len(counts), TARGET_ROWS):
            block = slice(start, start + TARGET_ROWS)
            logits = self.model.logits(hidden[batch.target_rows[block]])
            found += prompt_logprobs(logits, batch.targets[block].tolist(), counts[block])
        each = iter(found)
        return tuple(tuple(islice(each, len(part.targets))) for part in slices) if found else ()


def blank_slice(length: int, page_size: int, sampling: Sampling | None = None, seat: int = -1) -> Slice:
    """Some tokens of no sequence, on the null page."""
    pages = (NULL_PAGE,) * -(-length // page_size)
    how, decode = sampling or Sampling(), length == 1
    return Slice(0, 0, 0, (0,) * length, pages, samples=True, position=0, sampling=how, decode=decode, seat=seat)
