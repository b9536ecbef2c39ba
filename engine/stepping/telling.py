"""What a step's output says of each of its sequences: one Result a slice, one token for each that samples. Pure."""

from ..door import Result, TokenLogprobs
from .plan import NOT_FINITE, Slice, StepOutput, StepPlan
from .sequence import Sequence

Drawn = tuple[tuple[int, ...], tuple[TokenLogprobs, ...]]  # one token and what is told of it, or nothing
NOTHING: Drawn = (), ()
BROKEN = (NOT_FINITE,)


def told_of(
    sequence: Sequence,
    piece: Slice | None = None,
    drawn: Drawn = NOTHING,
    prompt: tuple[TokenLogprobs, ...] = (),
) -> Result:
    """What a Report says of a sequence, without outcome: what a slice computed, if one did, and what it drew.

    What a later attempt knew at admission counts as recomputed where the prefix cache did not have it.
    """
    tokens, logprobs = drawn
    if piece is None:
        return Result(sequence.seq, sequence.attempt)
    if piece.decode:  # in short, as there is one for nearly every token
        return Result(sequence.seq, sequence.attempt, tokens, computed=1, logprobs=logprobs)
    again = max(min(piece.end, sequence.known) - piece.start, 0) if sequence.attempt > 1 else 0
    return Result(
        sequence.seq,
        sequence.attempt,
        tokens,
        cached=sequence.hits if piece.start == sequence.hits else 0,
        computed=len(piece.tokens) - again,
        recomputed=again,
        logprobs=logprobs,
        prompt_logprobs=prompt,
        prompt_from=piece.start + 1,
    )


def drawn_by(plan: StepPlan, output: StepOutput) -> list[Drawn]:
    """For each slice what it drew; nothing for a slice that doesn't sample."""
    asked = [piece.sampling.logprobs >= 0 for piece in plan.slices if piece.samples]
    logprobs = output.logprobs or (None,) * len(asked)
    assert len(output.tokens) == len(logprobs) == len(asked), "one token for each slice that samples"
    drawn: list[Drawn] = [((token,), (its,) if its else ()) for token, its in zip(output.tokens, logprobs, strict=True)]
    left_out = [tokens for (tokens, its), asks in zip(drawn, asked, strict=True) if asks and not its]
    assert all(tokens == BROKEN for tokens in left_out), "log probabilities were asked for"
    each = iter(drawn)
    return [next(each) if piece.samples else NOTHING for piece in plan.slices]


def prompt_logprobs_of(plan: StepPlan, output: StepOutput) -> tuple[tuple[TokenLogprobs, ...], ...]:
    """For each slice the log probabilities of its targets."""
    found = output.prompt_logprobs or ((),) * len(plan.slices)
    assert [len(one) for one in found] == [len(piece.targets) for piece in plan.slices], "one for each target"
    return found
