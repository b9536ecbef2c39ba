"""What named cards can do, as their makers print it: bytes from memory and dense 16-bit operations a second."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Card:
    """bandwidth: bytes a second. operations: of 16-bit matrix products without sparsity, a second."""

    name: str
    bandwidth: float
    operations: float

    def floor(self, moved: int, operations: int) -> float:
        """Seconds that so many bytes and operations take at least."""
        return max(moved / self.bandwidth, operations / self.operations)


CARDS = (
    Card("A100 80GB", 2.039e12, 312e12),
    Card("L40S", 0.864e12, 362e12),
    Card("H100", 3.35e12, 989e12),
    Card("H200", 4.8e12, 989e12),
    Card("B200", 8.0e12, 2250e12),
    Card("MI300X", 5.3e12, 1307e12),
)
