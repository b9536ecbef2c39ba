"""Drives a runner without a step loop: sequences with pages of their own, and plans made by hand."""

from dataclasses import dataclass, field

from fairstep.door import Sampling
from fairstep.model.runner import TorchRunner
from fairstep.stepping.plan import Slice, StepPlan

GREEDY = Sampling(temperature=0.0)


@dataclass
class Hand:
    """One sequence moved through a runner by hand."""

    seq: int
    tokens: list[int]  # the prompt, then the outputs
    pages: tuple[int, ...]
    sampling: Sampling = GREEDY
    computed: int = 0
    outputs: list[int] = field(default_factory=list)
    stretch: int = 0  # Slice.stretch

    def next_slice(self, most: int) -> Slice:
        """Up to `most` of the tokens not computed yet."""
        end = min(len(self.tokens), self.computed + most)
        given = tuple(self.tokens[self.computed : end])
        samples = end == len(self.tokens)
        decode = samples and bool(self.outputs)
        position = len(self.outputs)
        return Slice(
            self.seq,
            1,
            self.computed,
            given,
            self.pages,
            samples,
            position,
            self.sampling,
            decode,
            stretch=self.stretch,
        )

    def take(self, part: Slice, token: int | None) -> None:
        self.computed = part.end
        if token is not None:
            self.tokens.append(token)
            self.outputs.append(token)


def step(runner: TorchRunner, hands: list[Hand], most: int) -> list[Slice]:
    """One step over all `hands`, each with at most `most` tokens, decodes first."""
    slices = sorted((hand.next_slice(most) for hand in hands), key=lambda part: not part.decode)
    tokens = iter(runner.launch(StepPlan(1, tuple(slices))).result().tokens)
    by_seq = {hand.seq: hand for hand in hands}
    for part in slices:
        by_seq[part.seq].take(part, next(tokens) if part.samples else None)
    assert next(tokens, None) is None, "more tokens than sampling slices"
    return slices


def run(runner: TorchRunner, hands: list[Hand], count: int, most: int) -> None:
    """Step until every one of `hands` has `count` outputs."""
    while active := [hand for hand in hands if len(hand.outputs) < count]:
        step(runner, active, most)
