"""What a step's output says of each of its sequences: one Result a slice, one token for each that samples. Pure."""

from collections.abc import Iterator

from ..door import Result, TokenLogprobs
from .plan import NOT_FINITE, Slice, StepOutput, StepPlan
from .sequence import Sequence

Drawn = tuple[int, TokenLogprobs | None]


def told_of(sequence: Sequence, piece: Slice | None = None, prompt: tuple[TokenLogprobs, ...] = ()) -> Result:
    """What a Report says of a sequence, without tokens and outcome: what a slice computed, if one did.

    What a later attempt knew at admission counts as recomputed where the prefix cache did not have it.
    """
    if piece is None:
        return Result(sequence.seq, sequence.attempt)
    again = max(min(piece.end, sequence.known) - piece.start, 0) if sequence.attempt > 1 else 0
    return Result(
        sequence.seq,
        sequence.attempt,
        cached=sequence.hits if piece.start == sequence.hits else 0,
        computed=len(piece.tokens) - again,
        recomputed=again,
        prompt_logprobs=prompt,
        prompt_from=piece.start + 1,
    )


def drawn_tokens(plan: StepPlan, output: StepOutput) -> Iterator[Drawn | None]:
    """For each slice the token drawn and its log probabilities; None for a slice that doesn't sample."""
    sampling = [piece.sampling for piece in plan.slices if piece.samples]
    logprobs = output.logprobs or (None,) * len(sampling)
    assert len(output.tokens) == len(logprobs) == len(sampling), "one token for each slice that samples"
    drawn = list(zip(output.tokens, logprobs, strict=True))
    for (token, its_logprobs), asked in zip(drawn, sampling, strict=True):
        assert asked.logprobs < 0 or its_logprobs or token == NOT_FINITE, "log probabilities were asked for"
    each = iter(drawn)
    return (next(each) if piece.samples else None for piece in plan.slices)


def prompt_logprobs_of(plan: StepPlan, output: StepOutput) -> tuple[tuple[TokenLogprobs, ...], ...]:
    """For each slice the log probabilities of its targets."""
    found = output.prompt_logprobs or ((),) * len(plan.slices)
    assert [len(one) for one in found] == [len(piece.targets) for piece in plan.slices], "one for each target"
    return found
