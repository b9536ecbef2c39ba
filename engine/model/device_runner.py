"""Runs steps on a device without waiting for it: inputs, forward pass, draws and answers are launched, and no more.

The tokens of one step are the inputs of the next where they were drawn; the host learns of them by result(). Knows no
scheduling, and nothing that is only on a GPU: under triton's interpreter it runs anywhere.
"""

from collections.abc import Sequence
from itertools import chain, islice

import torch
from torch import Tensor

from ..door import Sampling, TokenLogprobs
from ..kernels.triton.sampling_logprobs import Logprobs, token_logprobs
from ..stepping.plan import Slice, StepOutput, StepPlan
from ..stepping.settings import StepSettings
from .device_inputs import DeviceInputs, Sizes, StepInputs
from .device_sampler import DeviceSampler, StepDraws, told_of
from .download import Download
from .fused_decoder import FusedDecoder
from .graphs import Graphs, Recorder
from .kv import KVMemory
from .runner import TARGET_ROWS, blank_slice

WARM_UP_LENGTHS = (1, 16)
WARM_UP_DRAWS = (Sampling(), Sampling(temperature=1.0), Sampling(temperature=1.0, top_k=20, top_p=0.9))


class LaunchedStep:
    """A step under way: a stepping.plan.Handle."""

    def __init__(
        self, plan: StepPlan, draws: StepDraws, tokens: Tensor, told: Logprobs | None, prompts: Sequence[Logprobs]
    ) -> None:
        self._plan = plan
        self._draws = draws
        self._tells = told is not None
        self._download = Download([tokens, *(told or ()), *chain.from_iterable(prompts)])
        self._output: StepOutput | None = None

    def result(self) -> StepOutput:
        if self._output is None:
            self._output = self._read()
        return self._output

    def _read(self) -> StepOutput:
        came = iter(self._download.wait())
        tokens = next(came).tolist()
        told = self._draws.told(tokens, Logprobs(*islice(came, 3))) if self._tells else ()
        drawn = sum([piece.samples for piece in self._plan.slices])  # what padding draws comes behind
        return StepOutput(tuple(tokens[:drawn]), told[:drawn], self._prompt_logprobs(list(came)))

    def _prompt_logprobs(self, came: Sequence[Tensor]) -> tuple[tuple[TokenLogprobs, ...], ...]:
        """For each slice those of its targets; () where no slice has any."""
        rows = chain.from_iterable(
            zip(*(part.tolist() for part in came[place : place + 3]), strict=True) for place in range(0, len(came), 3)
        )
        if not came:
            return ()
        return tuple(
            tuple(_told(row, piece.sampling.prompt_logprobs) for row in islice(rows, len(piece.targets)))
            for piece in self._plan.slices
        )


class DeviceRunner:
    """A stepping.plan.Runner. overlaps: whether steps are better launched ahead: where they run beside the host."""

    def __init__(self, model: FusedDecoder, kv: KVMemory, settings: StepSettings, recorder: Recorder | None) -> None:
        self.model = model
        self.kv = kv
        self.overlaps = model.device.type != "cpu"
        self._widest = -(-settings.context // kv.page_size)
        self._most = min(settings.step_tokens, settings.context)
        self._inputs = DeviceInputs(
            seats=settings.seats,
            tokens=settings.step_tokens,
            pages=self._widest,
            page_size=kv.page_size,
            device=model.device,
        )
        self._sampler = DeviceSampler(seats=settings.seats, vocab=model.spec.vocab_size, device=model.device)
        self._graphs = Graphs(recorder, settings.seats)

    @torch.inference_mode()
    def launch(self, plan: StepPlan) -> LaunchedStep:
        """Launch a plan with at least one slice. Raises what torch raises; pages of the plan are then undefined."""
        slices = plan.slices + plan.padding
        draws = self._sampler.prepare([piece for piece in slices if piece.samples])
        try:
            inputs, hidden = self._forward(slices)
            tokens, told = self._draw(inputs, hidden, draws)
            return LaunchedStep(plan, draws, tokens, told, self._told_of_prompts(inputs, hidden, plan.slices))
        except BaseException:
            self._sampler.take_back(draws)
            raise

    def warm_up(self) -> None:
        """Run a few slices on the null page, so that no request waits for what is compiled at first use."""
        for length in WARM_UP_LENGTHS:
            for sampling in WARM_UP_DRAWS:
                blank = blank_slice(min(length, self._most), self.kv.page_size, sampling, seat=0)
                self.launch(StepPlan(0, (blank,))).result()
        self.kv.clear_null_page()

    def check(self) -> None:
        """The device has what this side remembers, and nothing was written to the null page."""
        self._inputs.check()
        self._sampler.check()
        self.kv.check()

    def _forward(self, slices: Sequence[Slice]) -> tuple[StepInputs, Tensor]:
        """The step's inputs and its hidden rows [T or more, hidden]."""
        only_decodes = all(len(piece.tokens) == 1 for piece in slices)
        size = self._graphs.size_for(len(slices)) if only_decodes else None
        if size is None:
            inputs = self._inputs.prepare(slices)
            return inputs, self.model.step(inputs.tensors, only_decodes=only_decodes)
        inputs = self._inputs.prepare(slices, Sizes(size, size, size, self._widest))
        return inputs, self._graphs.run(size, lambda: self.model.step(inputs.tensors, only_decodes=True))

    def _draw(self, inputs: StepInputs, hidden: Tensor, draws: StepDraws) -> tuple[Tensor, Logprobs | None]:
        """Tokens [R] on the device, put where the next step finds them, and what was asked for beside them."""
        if not inputs.logits:
            return torch.empty(0, dtype=torch.int64, device=hidden.device), None
        logits = self.model.logits(hidden.index_select(0, inputs.tensors.logit_rows[: inputs.logits]))
        tokens = self._sampler.sample(logits, draws, self._inputs.newest)
        return tokens, self._sampler.logprobs(logits, tokens, draws)

    def _told_of_prompts(self, inputs: StepInputs, hidden: Tensor, slices: Sequence[Slice]) -> list[Logprobs]:
        """Of all targets on the device, a block at a time."""
        if inputs.target_rows is None or inputs.targets is None:
            return []
        most = max(piece.sampling.prompt_logprobs for piece in slices)
        blocks = zip(inputs.target_rows.split(TARGET_ROWS), inputs.targets.split(TARGET_ROWS), strict=True)
        return [
            token_logprobs(self.model.logits(hidden.index_select(0, rows)), targets, most) for rows, targets in blocks
        ]


def _told(row: tuple[list[int], list[float], int], count: int) -> TokenLogprobs:
    return told_of(*row, count)
