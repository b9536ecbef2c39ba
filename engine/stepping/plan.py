"""What a step will do, as frozen values: the only thing that crosses from the scheduler to the runner.

Knows no torch. A runner turns a StepPlan into tensors and answers with a StepOutput.
"""

from dataclasses import dataclass
from typing import Protocol

import msgspec

from ..door import Sampling, TokenLogprobs

NOT_FINITE = -1  # in StepOutput.tokens: this row's logits were not finite
AWAITED = -2  # in Slice.tokens: the step before draws it


class Slice(msgspec.Struct, frozen=True, gc=False):  # one is made for every token: a dataclass takes ten times as long
    """One sequence's token range in a step.

    tokens: the ids at positions [start, start + len(tokens)). pages: the page table, covering at least the range's
    end. samples: the range reaches the last known token, so its last position's logits are drawn from.
    position: how many outputs the request has so far (over all attempts); the noise is keyed by it.
    known, prompt_len: all tokens so far and how many of them are the prompt; set only where the slice samples and
    sampling.needs_history.
    targets: prompt tokens to report log probabilities of; targets[i] is the token after the range's token number i.
    stretch: rotary scaling that depends on length takes the token at position p for one of max(p + 1, stretch) tokens.
    seat: the sequence's place among those that run, below StepSettings.seats, its own until no step under way computes
    it; -1: of no sequence. awaits: its one token, AWAITED here, is what the step launched before this one draws for its
    seat; `known`, if set, goes up to the token before it.
    """

    seq: int
    attempt: int
    start: int
    tokens: tuple[int, ...]
    pages: tuple[int, ...]
    samples: bool
    position: int
    sampling: Sampling
    decode: bool
    known: tuple[int, ...] = ()
    prompt_len: int = 0
    targets: tuple[int, ...] = ()
    stretch: int = 0
    seat: int = -1
    awaits: bool = False

    @property
    def end(self) -> int:
        return self.start + len(self.tokens)


@dataclass(frozen=True, slots=True)
class StepPlan:
    """A step: slices in the order they run, decodes first. Costs are modelled seconds (door.StepRecord).

    padding: slices of no sequence, which are computed too; what they draw is in no StepOutput.
    """

    number: int
    slices: tuple[Slice, ...]
    modelled: float = 0.0
    decode_only: float = 0.0
    target: float = 0.0
    padding: tuple[Slice, ...] = ()


@dataclass(frozen=True, slots=True)
class StepOutput:
    """One token for each slice with `samples`, in the plan's order; NOT_FINITE where the logits were not.

    logprobs: beside each token, None where not asked for or not finite; () when nobody asks. prompt_logprobs: for each
    slice of the plan, those of its targets; () when nobody asks.
    """

    tokens: tuple[int, ...]
    logprobs: tuple[TokenLogprobs | None, ...] = ()
    prompt_logprobs: tuple[tuple[TokenLogprobs, ...], ...] = ()


class Handle(Protocol):
    """A step under way."""

    def result(self) -> StepOutput:
        """Wait for the step; may be called again. Raises what went wrong with it."""
        ...


class Runner(Protocol):
    """Computes steps in the order of their launch: tensors, kernels, sampler. Owns KV memory and the device.

    Where StepSettings.ahead is not 0, launch() is called while the step before runs, and a slice may await a token of
    it. After a launch that raised, nothing is awaited until all steps have landed.
    """

    def launch(self, plan: StepPlan) -> Handle: ...
