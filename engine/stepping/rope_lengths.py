"""What rotary scaling that depends on a sequence's length asks of the steps. Lengths alone: it knows no frequencies.

Equal to what transformers' generate() computes: under dynamic scaling a prompt's tokens are turned for the prompt's
length and each later one for its own, and keys stay as they are; under longrope a sequence that outgrows the edge is
turned anew from its first token on (modeling_rope_utils, modeling_phi3).
"""

from dataclasses import dataclass

from .sequence import Sequence


@dataclass(frozen=True, slots=True)
class RopeLengths:
    """edge: the length from which scaling depends on the length, 0: never. switches: longrope, else dynamic."""

    edge: int = 0
    switches: bool = False

    def stretch(self, sequence: Sequence) -> int:
        """Slice.stretch of all slices of an attempt."""
        if not self.edge:
            return 0
        return sequence.known if self.switches else sequence.prompt_len

    def regime(self, sequence: Sequence) -> int:
        """What must be the same for keys to be the same: attempts of different regimes share no pages."""
        length = self.stretch(sequence)
        if length <= self.edge:
            return 0
        return 1 if self.switches else length

    def outgrown(self, sequence: Sequence, length: int) -> bool:
        """Whether an attempt began below the edge, is past it with so many tokens, and so must be computed anew."""
        return self.switches and sequence.known <= self.edge < length
