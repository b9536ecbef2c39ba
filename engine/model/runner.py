"""Runs steps with a model on one device: plan in, tokens out. Knows no scheduling; it computes what it is handed."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice

import torch
from torch import Tensor

from ..door import Sampling, TokenLogprobs
from ..stepping.pages import NULL_PAGE
from ..stepping.plan import Slice, StepOutput, StepPlan
from .batch import StepBatch
from .computed import CausalModel, Compute, Computed, computed
from .draws import DrawWhole, draw_whole
from .feedback import Feedback
from .kv import KVMemory
from .logprobs import prompt_logprobs, token_logprobs
from .row import Row, takes_likeliest
from .sampler import sample

TARGET_ROWS = 64  # most prompt tokens whose logits over the whole vocabulary are held at once


@dataclass(frozen=True, slots=True)
class FinishedStep:
    """A step that was computed by the time `launch` returned."""

    output: StepOutput

    def result(self) -> StepOutput:
        return self.output


class TorchRunner:
    """A stepping.plan.Runner. `kv` is the memory that the model's backend writes to. whole: as in sampler.sample.

    compute: how the model computes a step; None: the plain way.

    overlaps: whether steps are better launched ahead; here each is computed before launch() returns.
    """

    overlaps = False

    def __init__(
        self, model: CausalModel, kv: KVMemory, whole: DrawWhole = draw_whole, compute: Compute | None = None
    ) -> None:
        self.model = model
        self.kv = kv
        self._compute = compute or partial(computed, model)
        self._whole = whole
        self._feedback = Feedback()

    def launch(self, plan: StepPlan) -> FinishedStep:
        """Compute a plan with at least one slice. Raises what torch raises; pages of the plan are then undefined."""
        slices = self._feedback.fed(plan.slices) + plan.padding
        batch = StepBatch(slices, self.kv.page_size, self.model.device)
        values = self._compute(batch)
        sampling = [part for part in slices if part.samples]
        tokens, logprobs = _draw(values, sampling, self._whole)
        self._feedback.keep(sampling, tokens)
        if plan.padding:
            self.kv.clear_null_page()
            drawn = sum(part.samples for part in plan.slices)
            tokens, logprobs = tokens[:drawn], logprobs[:drawn]
        told = self._prompt_logprobs(values.hidden, batch, plan.slices) if batch.has_targets else ()
        return FinishedStep(StepOutput(tokens, logprobs, told))

    def warm_up(self, lengths: tuple[int, ...] = (1, 1, 16)) -> None:
        """Run a few slices on the null page, so that the first request doesn't pay for what torch sets up lazily."""
        for length in lengths:
            self.launch(StepPlan(0, (blank_slice(length, self.kv.page_size),)))
        self.kv.clear_null_page()

    def check(self) -> None:
        self.kv.check()

    @torch.inference_mode()
    def _prompt_logprobs(
        self, hidden: Tensor, batch: StepBatch, slices: Sequence[Slice]
    ) -> tuple[tuple[TokenLogprobs, ...], ...]:
        """For each slice those of its targets, computed a block at a time."""
        counts = [part.sampling.prompt_logprobs for part in slices for _ in part.targets]
        found: list[TokenLogprobs] = []
        for start in range(0, len(counts), TARGET_ROWS):
            block = slice(start, start + TARGET_ROWS)
            logits = self.model.logits(hidden[batch.target_rows[block]])
            found += prompt_logprobs(logits, batch.targets[block].tolist(), counts[block])
        each = iter(found)
        return tuple(tuple(islice(each, len(part.targets))) for part in slices)


def _draw(
    values: Computed, sampling: Sequence[Slice], whole: DrawWhole
) -> tuple[tuple[int, ...], tuple[TokenLogprobs | None, ...]]:
    """A token for each sampling slice, and what was asked for beside it."""
    if values.likeliest is not None and all(takes_likeliest(part.sampling, part.position) for part in sampling):
        return tuple(values.likeliest), ()
    return _sampled(values, sampling, whole)


@torch.inference_mode()
def _sampled(
    values: Computed, sampling: Sequence[Slice], whole: DrawWhole
) -> tuple[tuple[int, ...], tuple[TokenLogprobs | None, ...]]:
    """By the sampler, where any needs it."""
    rows = [Row(part.sampling, part.position, part.known, part.prompt_len) for part in sampling]
    tokens = sample(values.logits, rows, whole, values.likeliest)
    counts = [part.sampling.logprobs for part in sampling]
    asked = max(counts, default=-1) >= 0
    return tuple(tokens), tuple(token_logprobs(values.logits, tokens, counts)) if asked else ()


def blank_slice(length: int, page_size: int, sampling: Sampling | None = None, seat: int = -1) -> Slice:
    """Some tokens of no sequence, on the null page."""
    pages = (NULL_PAGE,) * -(-length // page_size)
    how, decode = sampling or Sampling(), length == 1
    return Slice(0, 0, 0, (0,) * length, pages, samples=True, position=0, sampling=how, decode=decode, seat=seat)
